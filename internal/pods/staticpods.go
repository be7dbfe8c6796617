package pods

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/sepolicy"
)

// The default directories.
const (
	SourceDir   = "/etc/pivot/static-pods"    // an administrator's
	ManifestDir = "/etc/kubernetes/manifests" // kubelet's staticPodPath
)

// StaticPods writes a machine's static pods for a kubelet that does not know CPU partitioning. It reads an
// administrator's directory, changes them as OpenShift's kubelet would, and writes them where kubelet reads. One
// StaticPods at a time may do so. One thing is different from OpenShift.
//
// The pods do not request the workload's resource; its amount is only in the annotations for CRI-O. Kubelet refuses for
// good a static pod that requests a resource of which its Node has 0 (v1.37.2, pkg/kubelet/lifecycle/predicate.go and
// pkg/kubelet/preemption). Each start of a kubelet may set a resource to 0 (reconcileExtendedResource in
// pkg/kubelet/kubelet_node_status.go). So the pods start with the API server down, and before anything advertises the
// resource.
type StaticPods struct {
	Root     string   // directory of the machine
	From, To string   // absolute paths on it
	Types    []string // the machine's workload types
	// Unknown is why Types are not known; nil if they are. Pods that are written then stay as they are,
	// and those that are missing are written unchanged, so that they start.
	Unknown error
	Disk    hostfiles.Disk
	Labels  sepolicy.Labels
	Note    func(string) // is told what was done, and what somebody should know
}

// update is one run of StaticPods.
type update struct {
	*StaticPods
	record record
	saved  record // what the file has
	sum    *guard.Budget
	wanted map[string]bool  // paths of the pods that are in the source
	writes []hostfiles.File // to be written
	errs   []error
}

// Update writes the pods that are new or have changed, and removes those that were written before and are
// no longer in the source. It does as much as it can: the errors are those of single pods, each with its
// path. What cannot be read, or is not valid, is left as it was written before; what something else has
// written is never changed.
func (w *StaticPods) Update() []error {
	if err := w.check(); err != nil {
		return []error{err}
	}
	r, err := w.load()
	if err != nil {
		return []error{err}
	}
	names, err := w.names()
	if err != nil {
		return []error{err}
	}
	u := &update{StaticPods: w, record: r, saved: r.clone(), sum: guard.NewBudget(maxSum, "bytes of static pods"), wanted: map[string]bool{}}
	if w.Unknown != nil {
		u.fail(w.Unknown)
	}
	for _, name := range names {
		u.plan(name)
	}
	u.write()
	return u.errs
}

func (u *update) fail(err error) { u.errs = append(u.errs, err) }

// check checks the directories. Whoever can write a static pod is root on the machine.
func (w *StaticPods) check() error {
	for _, dir := range []string{w.From, w.To} {
		if !path.IsAbs(dir) || path.Clean(dir) != dir {
			return fault.New(fault.Usage, "cannot use the directory %q: name it by its absolute path", dir)
		}
		if hostfiles.OfUsers(w.Root, dir+"/pod") {
			return fault.New(fault.Refused, "cannot use the directory %s: others than root can write it, or a directory above it", dir).
				WithHint("a static pod can do what root can: give the directory to root, with chown and chmod go-w %s", dir)
		}
	}
	if w.From == w.To {
		return fault.New(fault.Usage, "cannot write static pods into the directory that they come from, %s", w.From)
	}
	return nil
}

// names returns the names of the pods in the source. Like kubelet, it ignores hidden files.
func (w *StaticPods) names() (names []string, err error) {
	err = hostfiles.EachName(w.Root, w.From, func(name string) error {
		if !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// plan decides what becomes of the pod of a name.
func (u *update) plan(name string) {
	target := path.Join(u.To, name)
	have, there, err := hostfiles.Read(u.Root, target)
	ours := there && u.record.has(target, have.Digest)
	var want hostfiles.File
	isPod := true
	if err == nil {
		want, isPod, err = u.read(name)
	}
	if u.wanted[target] = isPod; !isPod {
		return
	}
	switch {
	case err != nil:
		u.fail(err)
	case ours && u.Unknown != nil:
	case there && want.MetBy(have.Entry):
		if ours {
			u.record[target] = []hostfiles.Digest{want.Digest}
		}
	case there && !ours:
		u.fail(fault.New(fault.Refused, "cannot write the static pod %s: something else has written what is there", target).
			WithHint("remove or rename that file, or %s", path.Join(u.From, name)))
	default:
		u.writes = append(u.writes, want)
	}
}

// write carries out what was decided. Before a pod is written, the record has it: after a crash, what is there
// is known to be ours.
func (u *update) write() {
	done := maps.Clone(u.record)
	for _, f := range u.writes {
		if !u.record.has(f.Path, f.Digest) {
			u.record[f.Path] = append(u.record[f.Path], f.Digest)
		}
	}
	if err := u.save(u.record); err != nil {
		u.fail(err)
		return
	}
	for _, f := range u.writes {
		if err := u.put(f); err != nil {
			u.fail(fault.New(fault.CannotWrite, "cannot write the static pod %s: %w", f.Path, err))
			done[f.Path] = u.record[f.Path]
			continue
		}
		done[f.Path] = []hostfiles.Digest{f.Digest}
		u.Note("wrote " + f.Path)
	}
	for _, target := range slices.Sorted(maps.Keys(done)) {
		if u.wanted[target] {
			continue
		}
		if err := u.remove(target); err != nil {
			u.fail(err)
			continue
		}
		delete(done, target)
	}
	if err := u.save(done); err != nil {
		u.fail(err)
	}
}

// put writes a pod durably: whoever reads it, and a machine that loses its power, finds the old one or the new.
func (u *update) put(f hostfiles.File) error {
	if err := hostfiles.MakeDir(u.Disk, filepath.Join(u.Root, path.Dir(f.Path)), 0o755); err != nil {
		return err
	}
	label, err := u.Labels.Of(f.Path, f.Kind.Type())
	if err != nil {
		return err
	}
	return hostfiles.Put(u.Disk, u.Root, f, label)
}

// remove removes a pod that is no longer in the source, if it is still what was written.
func (u *update) remove(target string) error {
	have, there, err := hostfiles.Read(u.Root, target)
	if err != nil {
		return err
	}
	if there && !u.record.has(target, have.Digest) {
		u.Note(target + " stays: something else has changed it")
		return nil
	}
	if err := hostfiles.Remove(u.Disk, filepath.Join(u.Root, target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.CannotWrite, "cannot remove the static pod %s: %w", target, err)
	}
	u.Note("removed " + target)
	return nil
}
