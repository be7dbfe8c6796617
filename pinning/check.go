package pinning

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
)

// Severity says whether a problem forbids the files.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is what is wrong with one of the files.
type Problem struct {
	Path     string // of the file on the host
	Severity Severity
	Message  string
}

// IsPinningPath reports whether a file at this path may be a pinning file: a
// drop-in of CRI-O, or kubelet's file.
func IsPinningPath(p string) bool { return p == KubeletPath || path.Dir(p) == DropInDir }

// Check reads the pinning files of a host, by path, as CRI-O and kubelet would,
// and holds them against each other and against the CPUs that the host has; no
// CPUs at all means that they are not known.
func Check(files map[string][]byte, present CPUSet) []Problem {
	c := checker{present: present, definedIn: map[string]string{}, effective: Workloads{}}
	for _, p := range slices.Sorted(maps.Keys(files)) { // CRI-O's order
		if p != KubeletPath {
			c.dropIn(p, files[p])
		}
	}
	if kubelet, ok := files[KubeletPath]; ok {
		c.kubelet(kubelet)
	} else if len(c.effective) > 0 {
		c.wrong(KubeletPath, "it is missing, though %s defines a workload", slices.Sorted(maps.Values(c.definedIn))[0])
	}
	return c.problems
}

type checker struct {
	present   CPUSet
	definedIn map[string]string // by workload: the drop-in that counts
	effective Workloads
	problems  []Problem
	unread    bool // a drop-in could not be read
}

func (c *checker) wrong(p, format string, args ...any) {
	c.problems = append(c.problems, Problem{p, Error, fmt.Sprintf(format, args...)})
}

func (c *checker) warn(p, format string, args ...any) {
	c.problems = append(c.problems, Problem{p, Warning, fmt.Sprintf(format, args...)})
}

// wrongEach makes a problem of each error that err joins.
func (c *checker) wrongEach(p string, err error) {
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		for _, e := range joined.Unwrap() {
			c.wrong(p, "%v", e)
		}
		return
	}
	c.wrong(p, "%v", err)
}

func (c *checker) dropIn(p string, content []byte) {
	workloads, err := ParseDropIn(content)
	if err != nil {
		c.unread = true
		c.wrongEach(p, err)
		return
	}
	for _, name := range workloads.names() {
		if earlier, twice := c.definedIn[name]; twice {
			// Performance profiles do it to the clusters' empty default on purpose.
			c.warn(earlier, "its workload %q is replaced by that of %s, which CRI-O reads later", name, p)
		}
		c.definedIn[name], c.effective[name] = p, workloads[name]
		c.within(p, name, workloads[name])
	}
}

// within checks that the machine has the CPUs.
func (c *checker) within(p, name string, set CPUSet) {
	if lacking := set.Difference(c.present); !c.present.IsEmpty() && !lacking.IsEmpty() {
		c.wrong(p, "workload %q: the machine has no CPU %s, only %s", name, lacking, c.present)
	}
}

func (c *checker) kubelet(content []byte) {
	workloads, err := ParseKubeletFile(content)
	if err != nil {
		c.wrongEach(KubeletPath, err)
		return
	}
	for _, name := range workloads.names() {
		c.within(KubeletPath, name, workloads[name])
		set, defined := c.effective[name]
		switch {
		case c.unread:
		case !defined:
			c.wrong(KubeletPath, "workload %q: no CRI-O drop-in defines it", name)
		case !set.Equal(workloads[name]):
			c.wrong(KubeletPath, "workload %q: its CPUs %q differ from %q in %s", name, workloads[name], set, c.definedIn[name])
		}
	}
	for _, name := range c.effective.names() {
		if _, ok := workloads[name]; !ok {
			c.wrong(KubeletPath, "workload %q is missing, though %s defines it", name, c.definedIn[name])
		}
	}
}
