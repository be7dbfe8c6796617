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

// Where the two files are on a host.
const (
	// DropInDir is read whole by CRI-O, in lexical order of the names; a later
	// definition of a workload replaces an earlier one as a whole.
	DropInDir = "/etc/crio/crio.conf.d"
	// DropInPath sorts after 01-workload-pinning-default.conf, which clusters ship
	// with an empty set, and before 99-workload-pinning.conf, which a performance
	// profile writes and which shall win.
	DropInPath = DropInDir + "/50-workload-partitioning.conf"
	// ConfigPath is what CRI-O reads before its drop-ins.
	ConfigPath = "/etc/crio/crio.conf"
	// KubeletPath switches the feature on by being there.
	KubeletPath = "/etc/kubernetes/openshift-workload-pinning"
)

// The annotations by which pods choose a workload, before the workload's name,
// and by which containers override its resources.
const (
	ActivationPrefix = "target.workload.openshift.io/"
	AnnotationPrefix = "resources.workload.openshift.io"
)

// Management is the workload type of a cluster's own pods.
const Management = "management"

// Workloads are the CPUs of each workload type; Management is the one in use.
type Workloads map[string]CPUSet

// workloadName is what fits a TOML key and an annotation's name alike.
var workloadName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ParseAssignment reads WORKLOAD=SET, as in "management=0-1,52-53".
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

// Names are the workloads in the order of their names.
func (w Workloads) Names() []string { return slices.Sorted(maps.Keys(w)) }

// DropIn is the CRI-O drop-in. "cpushares" = 0 says nothing; it is there because
// every generator of this file has written it, and consumers compare texts.
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

// KubeletFile is the file that switches the feature on in kubelet.
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

// configuration is what CRI-O reads that concerns the CPUs of pods.
type configuration struct {
	Crio struct {
		Runtime struct {
			Infra     *string               `toml:"infra_ctr_cpuset"`
			Workloads map[string]definition `toml:"workloads"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

// definition is a workload's table in a drop-in.
type definition struct {
	Activation string     `toml:"activation_annotation"`
	Prefix     string     `toml:"annotation_prefix"`
	Allowed    []string   `toml:"allowed_annotations"`
	Resources  *resources `toml:"resources"`
}

type resources struct {
	// Signed, to see a negative one: CRI-O itself takes it for a huge number.
	CPUShares int64  `toml:"cpushares"`
	CPUSet    string `toml:"cpuset"`
	CPUQuota  int64  `toml:"cpuquota"`
	CPUPeriod uint64 `toml:"cpuperiod"`
	CPULimit  int64  `toml:"cpulimit"`
}

// configFile is what a file of CRI-O's configuration says.
type configFile struct {
	workloads map[string]workload
	infra     *string    // infra_ctr_cpuset as given; nil if it is not set here
	ignored   []toml.Key // of workloads, that CRI-O does not know
}

// workload is what a drop-in says of one workload.
type workload struct {
	activation, prefix string
	allowed            []string // annotations
	cpus               CPUSet
	problems           problem.Report // that keep CRI-O from starting, if no later drop-in replaces it
}

// partitions reports whether this is a workload type of CPU partitioning, not
// some other use of CRI-O's workloads (such as clusters make for image builds).
func (w workload) partitions() bool { return strings.HasPrefix(w.activation, ActivationPrefix) }

// parseDropIn reads any file of CRI-O's configuration. The report has what keeps CRI-O
// from reading it.
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

// ambiguous finds keys that are one to CRI-O, whose decoder does not heed case:
// which of their values counts is left to chance.
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

// read validates the definition of a workload, at the path of its drop-in, as CRI-O does
// (pkg/config/workloads.go), and more.
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
