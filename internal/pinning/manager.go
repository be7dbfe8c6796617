package pinning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/problem"
)

// Paths of kubelet's configuration and of its CPU manager's state.
const (
	KubeletConfigPath = "/etc/kubernetes/kubelet.conf"
	ManagerStatePath  = "/var/lib/kubelet/cpu_manager_state"
)

// policyStatic is the CPU manager's policy that assigns whole CPUs exclusively.
const policyStatic = "static"

// manager is the configuration and state of kubelet's CPU manager.
type manager struct {
	configured bool   // kubelet's configuration was read
	policy     string // "" means "none"
	options    map[string]string
	reserved   CPUSet // reservedSystemCPUs
	state      *managerState
}

// managerState is kubelet's checkpoint file (pkg/kubelet/cm/cpumanager/state).
type managerState struct {
	policy   string
	shared   CPUSet // defaultCpuSet
	assigned CPUSet // union of all entries
}

// dedicated returns the CPUs that are assigned to pods exclusively.
func (m manager) dedicated() CPUSet {
	if m.state == nil {
		return CPUSet{}
	}
	return m.state.assigned
}

// manager reads kubelet's configuration and the CPU manager's state, if they exist.
func (c *checker) manager(in Input) manager {
	var m manager
	if data, ok := in.Files[KubeletConfigPath]; ok {
		c.kubeletConfig(data, &m)
	}
	if data, ok := in.Files[ManagerStatePath]; ok && len(data) > 0 {
		m.state = c.managerState(data)
	}
	return m
}

// WithKubeletConfig merges an object of the kind KubeletConfig over kubelet's configuration,
// which may be empty, and returns the result. It merges recursively, member by member, like the
// machine-config operator.
func WithKubeletConfig(configuration, object []byte) ([]byte, error) {
	var under map[string]any
	if err := yaml.Unmarshal(configuration, &under); err != nil {
		return nil, fmt.Errorf("cannot parse kubelet's configuration below it: %s", problem.OneLine(err.Error()))
	}
	var over struct {
		Spec struct {
			KubeletConfig map[string]any `yaml:"kubeletConfig"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(object, &over); err != nil {
		return nil, fmt.Errorf("cannot parse it: %s", problem.OneLine(err.Error()))
	}
	return yaml.Marshal(overlay(under, over.Spec.KubeletConfig))
}

func overlay(under, over map[string]any) map[string]any {
	result := map[string]any{}
	maps.Copy(result, under)
	for name, value := range over {
		if inner, ok := value.(map[string]any); ok {
			below, _ := result[name].(map[string]any)
			value = overlay(below, inner)
		}
		result[name] = value
	}
	return result
}

func (c *checker) kubeletConfig(data []byte, m *manager) {
	var config struct {
		Policy   string            `yaml:"cpuManagerPolicy"`
		Options  map[string]string `yaml:"cpuManagerPolicyOptions"`
		Reserved string            `yaml:"reservedSystemCPUs"`
		Others   map[string]any    `yaml:",inline"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		c.warn(KubeletConfigPath, "cannot parse kubelet's configuration: %v", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(config.Others)) {
		for _, known := range []string{"cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs"} {
			if problem.Nearly(name, known) {
				c.warn(KubeletConfigPath, "%s: is %s meant?", name, known)
			}
		}
	}
	reserved, err := ParseCPUSet(config.Reserved)
	if err != nil {
		c.wrong(KubeletConfigPath, "reservedSystemCPUs: %v", err)
	}
	m.configured, m.policy, m.options, m.reserved = true, config.Policy, config.Options, reserved
}

func (c *checker) managerState(data []byte) *managerState {
	var file struct {
		Policy  string                       `json:"policyName"`
		Shared  string                       `json:"defaultCpuSet"`
		Entries map[string]map[string]string `json:"entries"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		c.warn(ManagerStatePath, "cannot parse the CPU manager's state, kubelet will not start with it: %v", err)
		return nil
	}
	state := &managerState{policy: file.Policy}
	read := func(text string) CPUSet {
		set, err := ParseCPUSet(text)
		if err != nil {
			c.warn(ManagerStatePath, "%v", err)
		}
		return set
	}
	state.shared = read(file.Shared)
	for _, pod := range slices.Sorted(maps.Keys(file.Entries)) {
		for _, container := range slices.Sorted(maps.Keys(file.Entries[pod])) {
			state.assigned = state.assigned.Union(read(file.Entries[pod][container]))
		}
	}
	return state
}

// againstManager checks workloads and machine against kubelet's CPU manager. It warns about
// anything that keeps kubelet from starting or assigns a CPU twice.
func (c *checker) againstManager(workloads Workloads, m manager, in Input) {
	management, partitioned := workloads[Management]
	if m.configured {
		if absent := m.reserved.Difference(in.Machine.OnlineAfter(in.Line)); in.Machine.known() && !absent.IsEmpty() {
			c.warn(KubeletConfigPath, "reservedSystemCPUs %s: CPU %s will not be online after the reboot, and kubelet will not start", m.reserved, absent)
		}
		if partitioned && m.policy == policyStatic && !management.Equal(m.reserved) {
			c.warn(KubeletConfigPath, "reservedSystemCPUs %q differ from the CPUs of the workload %q, %q", m.reserved, Management, management)
		}
	}
	if m.state != nil {
		c.againstState(workloads, m, in)
	}
}

func (c *checker) againstState(workloads Workloads, m manager, in Input) {
	remove := "; remove " + ManagerStatePath + " with kubelet stopped"
	if policy := cmp.Or(m.policy, "none"); m.configured && m.state.policy != "" && m.state.policy != policy {
		c.warn(ManagerStatePath, "it is of the policy %q, but kubelet's configuration says %q, and kubelet will not start%s", m.state.policy, policy, remove)
	}
	for _, name := range workloads.Names() {
		if taken := workloads[name].Intersection(m.state.assigned); !taken.IsEmpty() {
			c.warn(ManagerStatePath, "CPU %s of workload %q is given to a pod for itself%s", taken, name, remove)
		}
	}
	if m.state.policy != policyStatic || !in.Machine.known() {
		return
	}
	online, managed := in.Machine.OnlineAfter(in.Line), m.state.shared.Union(m.state.assigned)
	if m.options["strict-cpu-reservation"] == "true" {
		managed = managed.Union(m.reserved)
	}
	if !managed.Equal(online) {
		c.warn(ManagerStatePath, "it is about the CPUs %s, but %s will be online after the reboot, and kubelet will not start%s", managed, online, remove)
	}
}

// Pools is the assignment of a machine's CPUs.
type Pools struct {
	Online    CPUSet    `json:"online"`              // after the next boot
	Workloads Workloads `json:"workloads"`           // where the pods of each workload run
	Shared    CPUSet    `json:"shared"`              // where all other pods run, except those with dedicated CPUs
	Dedicated *CPUSet   `json:"dedicated,omitempty"` // that kubelet may assign exclusively, empty unless its policy is static; nil: kubelet's configuration is not known
	Rest      CPUSet    `json:"rest"`                // not in the set of any workload
}

// poolsOf assigns the CPUs as the CPU manager does: the shared pool contains the reserved CPUs,
// too, unless strict-cpu-reservation is set.
func poolsOf(online CPUSet, workloads Workloads, m manager) *Pools {
	p := &Pools{Online: online, Workloads: workloads, Shared: online.Difference(m.dedicated()), Rest: online}
	for _, set := range workloads {
		p.Rest = p.Rest.Difference(set)
	}
	if m.configured {
		p.Dedicated = &CPUSet{}
	}
	if m.policy == policyStatic {
		*p.Dedicated = online.Difference(m.reserved)
		if m.options["strict-cpu-reservation"] == "true" {
			p.Shared = p.Shared.Difference(m.reserved)
		}
	}
	return p
}

// leftOver warns if the workloads leave no CPUs to other pods.
func (c *checker) leftOver(p Pools, workloads Workloads) {
	for _, name := range workloads.Names() {
		if p.Rest.IsEmpty() && !workloads[name].IsEmpty() {
			c.warn(c.definedIn[name], "workload %q: its set leaves no CPU to other pods", name)
			return
		}
	}
}
