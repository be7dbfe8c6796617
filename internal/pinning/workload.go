package pinning

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"machine-pivot/internal/problem"
)

// Paths of the two files on a host.
const (
	// DropInDir is CRI-O's drop-in directory. CRI-O reads it recursively in lexical order; a
	// later definition of a workload replaces an earlier one completely.
	DropInDir = "/etc/crio/crio.conf.d"
	// DropInPath sorts after 01-workload-pinning-default.conf, which clusters ship with an
	// empty set, and before 99-workload-pinning.conf of a performance profile, which must win.
	DropInPath = DropInDir + "/50-workload-partitioning.conf"
	// ConfigPath is CRI-O's main configuration, which it reads before the drop-ins.
	ConfigPath = "/etc/crio/crio.conf"
	// KubeletPath enables the feature in kubelet by its existence. Its mode is 0644: the
	// enhancement's text wants it private, but all tools that write it use this mode, which the
	// machine-config daemon compares.
	KubeletPath = "/etc/kubernetes/openshift-workload-pinning"
)

// The annotations with which pods select a workload (the workload's name is appended), and with
// which containers override its resources.
const (
	ActivationPrefix = "target.workload.openshift.io/"
	AnnotationPrefix = "resources.workload.openshift.io"
)

// Management is the workload type of a cluster's own pods.
const Management = "management"

// Workloads maps workload types to CPUs. Only Management is in use.
type Workloads map[string]CPUSet

// workloadName matches names that are valid both as TOML keys and in annotation names.
var workloadName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ParseAssignment parses WORKLOAD=SET, such as "management=0-1,52-53".
func ParseAssignment(s string) (workload string, set CPUSet, err error) {
	workload, text, ok := strings.Cut(s, "=")
	if !ok || !workloadName.MatchString(workload) {
		return "", CPUSet{}, fmt.Errorf("cannot parse %q: it is not WORKLOAD=SET, as management=0-1", s)
	}
	if set, err = ParseCPUSet(text); err == nil && set.IsEmpty() {
		err = fmt.Errorf("cannot parse %q: the set is empty", s)
	}
	return workload, set, err
}

// Names returns the workloads in alphabetical order.
func (w Workloads) Names() []string { return slices.Sorted(maps.Keys(w)) }

// DropIn returns the CRI-O drop-in. "cpushares" = 0 has no effect; it is included because all
// generators of this file write it and consumers compare the text.
func DropIn(w Workloads) []byte {
	var b bytes.Buffer
	for i, name := range w.Names() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, `[crio.runtime.workloads.%s]
activation_annotation = "%s%s"
annotation_prefix = "%s"
resources = { "cpushares" = 0, "cpuset" = "%s" }
`, name, ActivationPrefix, name, AnnotationPrefix, w[name])
	}
	return b.Bytes()
}

// KubeletFile returns the file that enables the feature in kubelet.
func KubeletFile(w Workloads) []byte {
	var b bytes.Buffer
	b.WriteString("{\n")
	for i, name := range w.Names() {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "  %q: {\n    \"cpuset\": %q\n  }", name, w[name])
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

// configuration is the part of CRI-O's configuration that concerns the CPUs of pods.
type configuration struct {
	Crio struct {
		Runtime struct {
			Infra     *string               `toml:"infra_ctr_cpuset"`
			Workloads map[string]definition `toml:"workloads"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

// definition is the table of a workload in a drop-in.
type definition struct {
	Activation string     `toml:"activation_annotation"`
	Prefix     string     `toml:"annotation_prefix"`
	Allowed    []string   `toml:"allowed_annotations"`
	Resources  *resources `toml:"resources"`
}

type resources struct {
	// Signed, to detect negative values, which CRI-O would take for huge numbers.
	CPUShares int64  `toml:"cpushares"`
	CPUSet    string `toml:"cpuset"`
	CPUQuota  int64  `toml:"cpuquota"`
	CPUPeriod uint64 `toml:"cpuperiod"`
	CPULimit  int64  `toml:"cpulimit"`
}

// configFile is the content of a CRI-O configuration file.
type configFile struct {
	workloads map[string]workload
	infra     *string    // infra_ctr_cpuset as given; nil if not set in this file
	ignored   []toml.Key // keys of workloads that CRI-O does not know
}

// workload is the definition of a workload in a drop-in.
type workload struct {
	activation, prefix string
	allowed            []string // annotations
	cpus               CPUSet
	problems           problem.Report // keep CRI-O from starting unless a later drop-in replaces the workload
}

// partitions reports whether this is a workload type of CPU partitioning, and not another use
// of CRI-O's workloads (such as image builds in clusters).
func (w workload) partitions() bool { return strings.HasPrefix(w.activation, ActivationPrefix) }

// parseDropIn parses a CRI-O configuration file. The report has what keeps CRI-O from reading
// it.
func parseDropIn(path string, data []byte) (configFile, problem.Report) {
	var parsed configuration
	meta, err := toml.Decode(string(data), &parsed)
	if err != nil {
		return configFile{}, problem.Report{problem.Errorf(path, "cannot parse the CRI-O drop-in: %v", err)}
	}
	read := configFile{workloads: map[string]workload{}, infra: parsed.Crio.Runtime.Infra}
	for _, key := range meta.Undecoded() {
		if strings.HasPrefix(strings.ToLower(key.String())+".", "crio.runtime.workloads.") {
			read.ignored = append(read.ignored, key)
		}
	}
	for name, d := range parsed.Crio.Runtime.Workloads {
		read.workloads[name] = d.read(path, ofWorkload(name))
	}
	return read, ambiguous(path, meta.Keys())
}

// ambiguous reports keys that differ only by case. CRI-O's decoder ignores case and picks one
// of the values at random.
func ambiguous(path string, keys []toml.Key) problem.Report {
	var problems problem.Report
	seen := map[string]string{}
	for _, key := range keys {
		folded := strings.ToLower(key.String())
		if other, twice := seen[folded]; twice && other != key.String() {
			problems.Fail(path, "the keys %s and %s are the same to CRI-O", other, key)
		}
		seen[folded] = key.String()
	}
	return problems
}

// read validates the definition of a workload as CRI-O does (pkg/config/workloads.go), and more
// strictly. path is that of its drop-in.
func (d definition) read(path, name string) workload {
	w := workload{activation: d.Activation, prefix: d.Prefix, allowed: d.Allowed}
	wrong := func(format string, args ...any) { w.problems.Fail(path, "%s: %s", name, fmt.Sprintf(format, args...)) }
	if d.Activation == "" {
		wrong("activation_annotation shouldn't be empty")
	}
	if d.Resources == nil {
		if w.partitions() || w.prefix != "" {
			// CRI-O crashes when a container overrides the resources of such a workload.
			wrong("it has no resources")
		}
		return w
	}
	if d.Resources.CPUShares < 0 {
		wrong("cpushares %d cannot be negative", d.Resources.CPUShares)
	}
	if q, shares := d.Resources.CPUQuota, d.Resources.CPUShares; q != 0 && q < shares {
		wrong("cpuquota %d cannot be less than cpushares %d", q, shares)
	}
	if p := d.Resources.CPUPeriod; p != 0 && p < 1000 {
		wrong("cpuperiod %d cannot be less than 1000 microseconds", p)
	}
	var err error
	if w.cpus, err = ParseCPUSet(d.Resources.CPUSet); err != nil {
		wrong("%v", err)
	}
	return w
}
