package pinning

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
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
	// KubeletPath switches the feature on by being there.
	KubeletPath = "/etc/kubernetes/openshift-workload-pinning"
)

// The annotations by which pods choose a workload, before the workload's name,
// and by which containers override its resources.
const (
	activationPrefix = "target.workload.openshift.io/"
	annotationPrefix = "resources.workload.openshift.io"
)

// Workloads are the CPUs of each workload type; "management" is the one in use.
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

// names are the workloads in the order of their names.
func (w Workloads) names() []string { return slices.Sorted(maps.Keys(w)) }

// DropIn is the CRI-O drop-in. "cpushares" = 0 says nothing; it is there because
// every generator of this file has written it, and consumers compare texts.
func DropIn(w Workloads) []byte {
	var b bytes.Buffer
	for i, name := range w.names() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, `[crio.runtime.workloads.%s]
activation_annotation = "%s%s"
annotation_prefix = "%s"
resources = { "cpushares" = 0, "cpuset" = "%s" }
`, name, activationPrefix, name, annotationPrefix, w[name])
	}
	return b.Bytes()
}

// KubeletFile is the file that switches the feature on in kubelet.
func KubeletFile(w Workloads) []byte {
	var b bytes.Buffer
	b.WriteString("{\n")
	for i, name := range w.names() {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "  %q: {\n    \"cpuset\": %q\n  }", name, w[name])
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

// dropIn is what CRI-O reads of a drop-in that concerns workloads.
type dropIn struct {
	Crio struct {
		Runtime struct {
			Workloads map[string]struct {
				Activation string   `toml:"activation_annotation"`
				Prefix     string   `toml:"annotation_prefix"`
				Allowed    []string `toml:"allowed_annotations"`
				Resources  *struct {
					// Signed, to see a negative one: CRI-O itself takes it for a huge number.
					CPUShares int64  `toml:"cpushares"`
					CPUSet    string `toml:"cpuset"`
					CPUQuota  int64  `toml:"cpuquota"`
					CPUPeriod uint64 `toml:"cpuperiod"`
					CPULimit  int64  `toml:"cpulimit"`
				} `toml:"resources"`
			} `toml:"workloads"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

// ParseDropIn reads a CRI-O drop-in that defines workloads and nothing else. It
// refuses what would keep CRI-O from starting, with CRI-O's own reasons, and
// every key that it does not know. The error holds all problems, joined.
func ParseDropIn(data []byte) (Workloads, error) {
	var parsed dropIn
	meta, err := toml.Decode(string(data), &parsed)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the CRI-O drop-in: %w", err)
	}
	var problems []error
	for _, key := range meta.Undecoded() {
		problems = append(problems, fmt.Errorf("unknown key %s", key))
	}
	workloads := Workloads{}
	for _, name := range slices.Sorted(maps.Keys(parsed.Crio.Runtime.Workloads)) {
		w := parsed.Crio.Runtime.Workloads[name]
		wrong := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("workload %q: %w", name, fmt.Errorf(format, args...)))
		}
		if w.Activation == "" {
			wrong("activation_annotation shouldn't be empty")
		}
		if w.Resources == nil {
			// CRI-O crashes when a container overrides the resources of such a workload.
			wrong("it has no resources")
			continue
		}
		if w.Resources.CPUShares < 0 {
			wrong("cpushares %d cannot be negative", w.Resources.CPUShares)
		}
		if q, shares := w.Resources.CPUQuota, w.Resources.CPUShares; q > 0 && q < shares {
			wrong("cpuquota %d cannot be less than cpushares %d", q, shares)
		}
		if p := w.Resources.CPUPeriod; p != 0 && p < 1000 {
			wrong("cpuperiod %d cannot be less than 1000 microseconds", p)
		}
		set, err := ParseCPUSet(w.Resources.CPUSet)
		if err != nil {
			wrong("%w", err)
		}
		workloads[name] = set
	}
	if len(workloads) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("it defines no workload"))
	}
	return workloads, errors.Join(problems...)
}

// ParseKubeletFile reads kubelet's file. Kubelet itself only looks whether it is
// there; this program insists that it says the same as the drop-in.
func ParseKubeletFile(data []byte) (Workloads, error) {
	var parsed map[string]struct {
		CPUSet string `json:"cpuset"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&parsed); err != nil {
		return nil, fmt.Errorf("cannot parse the kubelet file: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("cannot parse the kubelet file: something follows the object")
	}
	var problems []error
	workloads := Workloads{}
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		set, err := ParseCPUSet(parsed[name].CPUSet)
		if err != nil {
			problems = append(problems, fmt.Errorf("workload %q: %w", name, err))
		}
		workloads[name] = set
	}
	return workloads, errors.Join(problems...)
}
