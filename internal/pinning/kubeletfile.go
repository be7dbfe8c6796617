package pinning

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/problem"
)

// parseKubeletFile parses kubelet's pinning file, which may be empty. Kubelet itself only
// checks that it exists.
func parseKubeletFile(data []byte) (workloads Workloads, report problem.Report) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Workloads{}, nil
	}
	var parsed map[string]struct {
		CPUSet string `json:"cpuset"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&parsed); err != nil {
		report.Fail(KubeletPath, "cannot parse the kubelet file: %v", err)
		return nil, report
	}
	if _, err := d.Token(); err != io.EOF {
		report.Fail(KubeletPath, "cannot parse the kubelet file: something follows the object")
		return nil, report
	}
	workloads = Workloads{}
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		set, err := ParseCPUSet(parsed[name].CPUSet)
		if err != nil {
			report.Fail(KubeletPath, "%s: %v", ofWorkload(name), err)
		}
		workloads[name] = set
	}
	return workloads, report
}

// maxTypes is the maximum number of workload types of a machine.
const maxTypes = 16

// Types returns the workload types in the content of kubelet's pinning file, in alphabetical order. A file
// that names none, such as an empty one, means Management: OpenShift's kubelet knows only this type, which it
// enables if the file exists, and does not read it.
func Types(file []byte) ([]string, error) {
	workloads, report := parseKubeletFile(file)
	if err := report.Err(KubeletPath); err != nil {
		return nil, err
	}
	if len(workloads) > maxTypes {
		return nil, fault.New(fault.BadInput, "cannot use %s: it has more than %d workload types", KubeletPath, maxTypes).WithHint("remove from %s those that no pod chooses", KubeletPath)
	}
	types := workloads.Names()
	for _, name := range types {
		if !workloadName.MatchString(name) {
			return nil, fault.New(fault.BadInput, "cannot use %s: %s is no name of a workload type, as %s", KubeletPath, problem.Quoted(name), Management).
				WithHint("rename it in %s: lower-case letters, digits and hyphens", KubeletPath)
		}
	}
	if len(types) == 0 {
		types = []string{Management}
	}
	return types, nil
}

// kubelet compares kubelet's pinning file with CRI-O's configuration. Kubelet does not read the contents, so an empty
// set contradicts nothing. The node tuning operator leaves it empty even if CRI-O's drop-in has a set, or if there is
// no drop-in. A set that differs from CRI-O's is an error.
func (c *checker) kubelet(content []byte) {
	workloads, wrong := parseKubeletFile(content)
	if c.problems.Add(wrong...); wrong.Failed() {
		return
	}
	for _, name := range workloads.Names() {
		c.present(KubeletPath, ofWorkload(name), workloads[name])
		if !c.unread {
			c.againstKubelet(name, workloads[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.effective)) {
		if _, ok := workloads[name]; !ok && workloads.pinned() && c.effective[name].partitions() {
			c.wrong(KubeletPath, "%s is missing, though %s defines it", ofWorkload(name), c.definedIn[name])
		}
	}
}

// againstKubelet compares a workload's CPUs in kubelet's file with CRI-O's.
func (c *checker) againstKubelet(name string, set CPUSet) {
	w, defined := c.effective[name]
	switch {
	case !defined && c.partial:
	case !defined && set.IsEmpty():
		c.warn(KubeletPath, "%s: no CRI-O drop-in defines it, so its pods run on all CPUs", ofWorkload(name))
	case !defined:
		c.wrong(KubeletPath, "%s: no CRI-O drop-in defines it", ofWorkload(name))
	case !set.IsEmpty() && !w.cpus.Equal(set):
		c.wrong(KubeletPath, "%s: its CPUs %q differ from %q in %s", ofWorkload(name), set, w.cpus, c.definedIn[name])
	case w.cpus.IsEmpty():
		c.warn(c.definedIn[name], "%s: its set is empty, so its pods run on all CPUs", ofWorkload(name))
	}
}

// pinned reports whether any workload has a non-empty set.
func (w Workloads) pinned() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(w)), func(set CPUSet) bool { return !set.IsEmpty() })
}
