package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
)

const kindProfile = "PerformanceProfile"

// profile is a PerformanceProfile of the node tuning operator, as far as it is judged: which kernel, kernel arguments and
// kubelet configuration a machine gets from it.
type profile struct {
	Name      string                    `json:"name"`
	Role      string                    `json:"-"` // of the machines; "" if the profile names none
	Sets      map[string]pinning.CPUSet `json:"sets"`
	RealTime  bool                      `json:"realTime"`            // whether it installs the realtime kernel
	Arguments []string                  `json:"arguments,omitempty"` // of the kernel
	Topology  string                    `json:"-"`                   // kubelet's topologyManagerPolicy; "" is the operator's default
}

// Sets of a profile that tell CPUs from each other; no CPU may be in two of them.
const (
	setReserved = "reserved" // for the system
	setIsolated = "isolated" // for pods
)

func profileSets() []string { return []string{setReserved, setIsolated, "offlined", "shared"} }

// nodeRole is the prefix of the labels of nodes with a role.
const nodeRole = "node-role.kubernetes.io/"

// decodeProfile reads a profile and reports problems at their places. What changes the machine in a way that is not judged
// here is a warning.
// Sources: the node tuning operator, pkg/apis/performanceprofile/v2, and its tuned profile openshift-node-performance.
func decodeProfile(n document.Node) profile {
	spec := n.Get("spec")
	p := profile{Name: n.Get("metadata").Get("name").Text(), Sets: map[string]pinning.CPUSet{}}
	p.Role = spec.Get("machineConfigLabel").Texts()[authored.RoleLabel]
	for _, label := range slices.Sorted(maps.Keys(spec.Get("nodeSelector").Texts())) { // a custom role comes after worker
		if role, is := strings.CutPrefix(label, nodeRole); is && spec.Get("machineConfigLabel").IsNull() {
			p.Role = role
		}
	}
	if p.Role == "" {
		spec.Fail("no machine gets it: nodeSelector has no label %sROLE", nodeRole)
	}
	p.cpus(spec.Get("cpu"))
	kernel := spec.Get("realTimeKernel").Get("enabled")
	p.RealTime = !kernel.IsNull() && kernel.Boolean()
	p.Topology = spec.Get("numa").Get("topologyPolicy").Text()
	p.arguments(spec)
	for key, member := range spec.Members() {
		if !slices.Contains([]string{"cpu", "realTimeKernel", "hugepages", "additionalKernelArgs", "nodeSelector", "machineConfigLabel", "machineConfigPoolSelector", "numa"}, key) {
			member.Warn("it is not judged here: the node tuning operator decides what it does")
		}
	}
	return p
}

func (p *profile) cpus(cpu document.Node) {
	taken := pinning.CPUSet{}
	for _, name := range profileSets() {
		n := cpu.Get(name)
		set, err := pinning.ParseCPUSet(n.Text())
		switch {
		case err != nil:
			n.Fail("%v", err)
		case set.IsEmpty() && (name == setReserved || name == setIsolated):
			n.Fail("it is empty: the operator refuses a profile without it")
		}
		if twice := set.Intersection(taken); !twice.IsEmpty() {
			n.Fail("CPU %s is in another set of the profile too", twice)
		}
		p.Sets[name], taken = set, taken.Union(set)
	}
}

// arguments sets the kernel arguments, in the order of the operator.
func (p *profile) arguments(spec document.Node) {
	isolated, reserved := p.Sets[setIsolated], p.Sets[setReserved]
	if !isolated.IsEmpty() && !reserved.IsEmpty() {
		flags := "managed_irq,"
		if balance := spec.Get("cpu").Get("balanceIsolated"); !balance.IsNull() && !balance.Boolean() {
			flags = "domain,managed_irq,"
		}
		p.Arguments = []string{"nohz=on", "rcu_nocbs=" + isolated.String(), "tuned.non_isolcpus=" + reserved.Mask(),
			"systemd.cpu_affinity=" + listed(reserved), "isolcpus=" + flags + isolated.String()}
		if p.RealTime {
			p.Arguments = append(p.Arguments, "nohz_full="+isolated.String())
		}
	}
	pages := spec.Get("hugepages")
	if size := pages.Get("defaultHugepagesSize").Text(); size != "" {
		p.Arguments = append(p.Arguments, "default_hugepagesz="+size)
	}
	for _, page := range pages.Get("pages").Items() {
		if node := page.Get("node"); !node.IsNull() {
			node.Warn("it is not judged here: the pages of one NUMA node are allocated after the boot")
			continue
		}
		count, _ := page.Get("count").Number()
		p.Arguments = append(p.Arguments, "hugepagesz="+page.Get("size").Text(), "hugepages="+count)
	}
	for _, arg := range spec.Get("additionalKernelArgs").Items() {
		p.Arguments = append(p.Arguments, arg.Text())
	}
}

func listed(set pinning.CPUSet) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(set.List()), " ", ","), "[]")
}

// machineConfig returns what the machine's kernel gets, as a MachineConfig that is judged with the others of the role.
func (p profile) machineConfig() map[string]any {
	spec := map[string]any{"kernelArguments": p.Arguments}
	if p.RealTime {
		spec["kernelType"] = "realtime"
	}
	return map[string]any{
		"apiVersion": machineconfig.APIVersion, "kind": machineconfig.Kind, "spec": spec,
		"metadata": map[string]any{"name": "50-performance-" + p.Name, "labels": map[string]string{authored.RoleLabel: p.Role}},
	}
}

// kubelet returns what kubelet gets, as a KubeletConfig.
func (p profile) kubelet() []byte {
	config := map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": p.Sets[setReserved].String()}
	if p.Topology != "" {
		config["topologyManagerPolicy"] = p.Topology
	}
	return text(map[string]any{"kind": "KubeletConfig", "spec": map[string]any{"kubeletConfig": config}})
}

func text(object map[string]any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err) // strings can always be written
	}
	return data
}
