package pinning

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Input is the configuration that determines CPU partitioning.
type Input struct {
	// Files are files of the host by path: CRI-O's configuration, kubelet's pinning file, and
	// if they exist, kubelet's configuration and the state of its CPU manager.
	Files map[string][]byte
	// Machine is the machine's CPUs. If unknown, they are not checked.
	Machine Machine
	// Line is the kernel command line of the next boot.
	Line kargs.Line
	// Partial says that the machine may have other files: that one of these is missing, or that
	// none of them defines a workload, is no problem.
	Partial bool
}

// Result is the resulting CPU partitioning.
type Result struct {
	Workloads Workloads      // in effect: those with CPUs of their own or known to kubelet
	Files     []string       // files that define it: the effective one for each workload, and kubelet's; sorted
	Pools     *Pools         // nil if the machine's CPUs are unknown
	Problems  problem.Report // with paths of files on the host
}

// IsPinningPath reports whether a file at this path may be a pinning file: a drop-in of CRI-O,
// which reads the directory recursively, or kubelet's file.
func IsPinningPath(p string) bool {
	return p == KubeletPath || strings.HasPrefix(p, DropInDir+"/") && path.Clean(p) == p
}

// Paths returns the files beside the drop-ins from which CRI-O and kubelet read CPU partitioning.
func Paths() []string { return []string{ConfigPath, KubeletPath, KubeletConfigPath, ManagerStatePath} }

// IsRead reports whether CRI-O or kubelet reads CPU partitioning from the file at a path. It is judged
// on all of these files, wherever they come from.
func IsRead(p string) bool { return IsPinningPath(p) || slices.Contains(Paths(), p) }

// Inspect reads a host's configuration of CPU partitioning, as CRI-O and kubelet would. It
// checks its consistency, and checks it against the CPUs that will be online after the next
// boot and against kubelet's CPU manager.
func Inspect(in Input) Result {
	c := newChecker(in.Machine)
	c.partial = in.Partial
	c.files(in.Files)
	result := Result{Workloads: Workloads{}}
	if _, ok := in.Files[KubeletPath]; ok {
		result.Files = append(result.Files, KubeletPath)
	}
	for _, name := range slices.Sorted(maps.Keys(c.effective)) {
		if w := c.effective[name]; !w.cpus.IsEmpty() || w.partitions() {
			result.Workloads[name] = w.cpus
			result.Files = append(result.Files, c.definedIn[name])
			c.onMachine(c.definedIn[name], name, w.cpus, in.Line)
		}
	}
	c.infra(in.Line)
	slices.Sort(result.Files)
	result.Files = slices.Compact(result.Files)
	manager := c.manager(in)
	c.againstManager(result.Workloads, manager, in)
	c.sets(result.Workloads, manager, in)
	c.misspelt(in.Line)
	c.hugePages(in.Line)
	if in.Machine.known() {
		result.Pools = poolsOf(in.Machine.OnlineAfter(in.Line), result.Workloads, manager)
		c.leftOver(*result.Pools, result.Workloads)
	}
	if arg, unknown := in.Machine.threadsUnknown(in.Line); unknown {
		c.warn("", "%s switches the second threads of all cores off, and which CPUs these are is not known here: fewer CPUs than %s will be online; check on a machine", arg, in.Machine.Present)
	}
	result.Problems = c.problems
	return result
}

type checker struct {
	machine   Machine
	definedIn map[string]string // by workload: the effective drop-in
	effective map[string]workload
	infraIn   string // the effective drop-in for infra_ctr_cpuset; "" if none
	infraSet  string
	problems  problem.Report
	lists     map[string]CPUSet // of the kernel arguments that were read
	unread    bool              // a drop-in could not be read
	partial   bool
}

func newChecker(m Machine) *checker {
	return &checker{machine: m, definedIn: map[string]string{}, effective: map[string]workload{}, lists: map[string]CPUSet{}}
}

// wrong reports an error, which keeps a machine from its first boot: only if CRI-O would not start,
// pods would have no CPU, or the two files contradict each other. All else is a warning.
func (c *checker) wrong(p, format string, args ...any) { c.problems.Fail(p, format, args...) }
func (c *checker) warn(p, format string, args ...any)  { c.problems.Warn(p, format, args...) }

// files reads CRI-O's configuration and then kubelet's file.
func (c *checker) files(files map[string][]byte) {
	for _, p := range slices.SortedFunc(maps.Keys(files), inWalkOrder) {
		if p == ConfigPath || strings.HasPrefix(p, DropInDir+"/") {
			c.dropIn(p, files[p])
		}
	}
	c.definitions()
	c.sameActivation()
	if kubelet, ok := files[KubeletPath]; ok {
		c.kubelet(kubelet)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.effective)) {
		if c.effective[name].partitions() && !c.partial {
			c.wrong(KubeletPath, "it is missing, though %s defines the workload %q", c.definedIn[name], name)
			return
		}
	}
}

// inWalkOrder compares paths in the order in which CRI-O reads them: that of filepath.Walk, in
// which "a/b" is before "a.conf".
func inWalkOrder(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

func (c *checker) dropIn(p string, content []byte) {
	if isLeftover(p) {
		c.warn(p, "it looks like a leftover, but CRI-O reads every file of this directory")
	}
	read, wrong := parseDropIn(p, content)
	c.problems.Add(wrong...)
	if wrong.Failed() {
		c.unread = true
		return
	}
	for _, key := range read.ignored {
		c.warn(p, "unknown key %s, which CRI-O ignores", key)
	}
	if read.infra != nil {
		c.infraIn, c.infraSet = p, *read.infra
	}
	for _, name := range slices.Sorted(maps.Keys(read.workloads)) {
		if earlier, twice := c.definedIn[name]; twice {
			// Performance profiles replace the empty default of clusters on purpose.
			c.warn(earlier, "its workload %q is replaced by that of %s, which CRI-O reads later", name, p)
		}
		c.definedIn[name], c.effective[name] = p, read.workloads[name]
	}
}

// definitions checks the effective definitions of workloads, as CRI-O does. A definition that
// keeps CRI-O from starting is removed.
func (c *checker) definitions() {
	for _, name := range slices.Sorted(maps.Keys(c.effective)) {
		p, w := c.definedIn[name], c.effective[name]
		if c.problems.Add(w.problems...); w.problems.Failed() {
			c.unread = true
			delete(c.effective, name)
		}
		c.present(p, ofWorkload(name), w.cpus)
		c.allowed(p, name, w)
		c.annotations(p, name, w)
	}
}

// annotations compares a workload's annotations with those that kubelet and the API server
// write.
func (c *checker) annotations(p, name string, w workload) {
	if !w.partitions() {
		return // another use of CRI-O's workloads
	}
	if name != Management && problem.Nearly(name, Management) {
		c.warn(p, "%s: is %q meant? No other workload has pods in a cluster by itself", ofWorkload(name), Management)
	}
	if want := ActivationPrefix + name; w.activation != want {
		c.warn(p, "%s: its activation_annotation is %q; pods of this type carry %q", ofWorkload(name), w.activation, want)
	}
	if w.prefix != AnnotationPrefix {
		c.warn(p, "%s: its annotation_prefix is %q; CPU shares come in annotations of %q", ofWorkload(name), w.prefix, AnnotationPrefix)
	}
}

// sameActivation reports workloads that the same pod would belong to: CRI-O picks one of them
// at random.
func (c *checker) sameActivation() {
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.effective)) {
		activation := c.effective[name].activation
		if other, twice := names[activation]; twice {
			c.wrong(c.definedIn[name], "workload %q: its activation_annotation %q is that of workload %q too", name, activation, other)
		}
		names[activation] = name
	}
}

// present checks that the machine has the CPUs of a set.
func (c *checker) present(p, what string, set CPUSet) {
	if lacking := set.Difference(c.machine.Present); c.machine.known() && !lacking.IsEmpty() {
		c.wrong(p, "%s: the machine has no CPU %s, only %s", what, lacking, c.machine.Present)
	}
}

// ofWorkload formats a workload's name for messages.
func ofWorkload(name string) string { return fmt.Sprintf("workload %q", name) }

// isLeftover reports whether a file looks like an editor's backup or the rest of an interrupted
// write.
func isLeftover(p string) bool {
	name := path.Base(p)
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") ||
		slices.Contains([]string{".bak", ".orig", ".rpmsave", ".rpmnew", ".rpmorig", ".swp"}, path.Ext(name))
}
