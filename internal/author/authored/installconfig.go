package authored

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// FromInstallConfig converts the machine pools of an install-config to MachineConfigs, in the order of the pools: kernel
// arguments, hyperthreading, FIPS mode, and the CPUs of workloads. There are none if the report has an error.
//
// Hyperthreading and FIPS mode are those of the OpenShift installer, and result in the same MachineConfigs.
// kernelArguments and workload.partitions were proposed for the pools of an install-config, but the installer does not have
// them. Everything else in an install-config is ignored.
func FromInstallConfig(file string, data []byte, rules Rules) ([]*MachineConfig, problem.Report) {
	var pools []installPool
	documents := 0
	report := document.Read(file, data, func(root document.Node) {
		if documents++; documents > 1 {
			root.Fail("an install-config is one document; here another one begins")
			return
		}
		pools = readPools(root, rules)
		for _, p := range pools {
			if !root.Report.Failed() {
				p.together(rules)
			}
		}
	})
	if documents == 0 && len(report) == 0 {
		report.Fail("$", "it is no install-config: it is empty")
		report = report.In(file)
	}
	if report.Failed() {
		return nil, report
	}
	var all []*MachineConfig
	for _, p := range pools {
		all = append(all, p.machineConfigs()...)
	}
	return all, report
}

// installPool is the settings for the machines of a role.
type installPool struct {
	at        document.Node
	role      string
	arguments []string
	noThreads bool // hyperthreading: Disabled
	fips      bool
	workloads pinning.Workloads
}

func readPools(root document.Node, rules Rules) []installPool {
	if !root.Object() {
		return nil
	}
	if root.Get("controlPlane").IsNull() && root.Get("compute").IsNull() {
		root.Fail("it is no install-config: it has neither controlPlane nor compute")
		return nil
	}
	checkSpelling(root)
	var pools []installPool
	add := func(n document.Node, role string) {
		if p, ok := readPool(n, role, rules.KernelArguments); ok {
			pools = append(pools, p)
		}
	}
	root.Get("controlPlane").Get("name").MustBe("master")
	root.Get("arbiter").Get("name").MustBe("arbiter")
	add(root.Get("controlPlane"), "master")
	add(root.Get("arbiter"), "arbiter")
	pools = append(pools, readCompute(root.Get("compute"), rules.KernelArguments)...)
	fips := root.Get("fips").Boolean()
	for i := range pools {
		pools[i].fips = fips
	}
	checkPartitioningMode(root.Get("cpuPartitioningMode"), pools)
	return pools
}

// checkSpelling refuses members of an install-config that are close to those that are read: the others are the
// installer's, and ignored.
func checkSpelling(root document.Node) {
	read := []string{"controlPlane", "arbiter", "compute", "fips", "cpuPartitioningMode"}
	for name, n := range root.Members() {
		i := slices.IndexFunc(read, func(known string) bool { return problem.Nearly(stem(name), stem(known)) })
		if i >= 0 && !slices.Contains(read, name) {
			n.Report.Add(problem.Errorf(n.Path, "unknown member").WithHint("is " + read[i] + " meant?"))
		}
	}
}

// stem returns a name without what is easily written in another way.
func stem(name string) string {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "s"), "mode"), "ing")
}

// checkPartitioningMode judges the installer's own setting. AllNodes only allows that workloads have CPUs of their own;
// the installer has no setting for which.
func checkPartitioningMode(n document.Node, pools []installPool) {
	switch mode := n.Text(); mode {
	case "", "None":
	case "AllNodes":
		for _, p := range pools {
			if len(p.workloads) == 0 {
				n.Warn("AllNodes only allows CPU partitioning, and nothing says which CPUs of the role %s are for management: name them in its workload.partitions, or in the cluster by a PerformanceProfile", p.role)
			}
		}
	default:
		n.Fail("it is %s, neither None nor AllNodes", problem.Quoted(mode))
	}
}

// readCompute reads the compute pools, worker and edge. The machines of both have the role worker,
// so it returns at most one pool.
func readCompute(n document.Node, policy kargs.Policy) []installPool {
	var pools []installPool
	names := map[string]bool{}
	for _, item := range n.Items() {
		name := cmp.Or(item.Get("name").Text(), "worker")
		if name != "worker" && name != "edge" {
			item.Get("name").Fail("it is %s; the installer knows compute pools worker and edge", problem.Quoted(name))
		}
		if names[name] {
			item.Get("name").Fail("there is another compute pool %s", problem.Quoted(name))
		}
		names[name] = true
		p, ok := readPool(item, "worker", policy)
		switch {
		case !ok:
		case len(pools) == 0:
			pools = append(pools, p)
		case !p.sameAs(pools[0]):
			item.Fail("its machines are of the role worker too, and it asks for something else than the first compute pool")
		}
	}
	return pools
}

// sameAs reports whether both pools have the same settings.
func (p installPool) sameAs(other installPool) bool {
	return p.noThreads == other.noThreads && slices.Equal(p.arguments, other.arguments) &&
		maps.EqualFunc(p.workloads, other.workloads, pinning.CPUSet.Equal)
}

// readPool reads one pool, which may be absent.
func readPool(n document.Node, role string, policy kargs.Policy) (installPool, bool) {
	if !n.Object() {
		return installPool{}, false
	}
	n.Known("a pool of an install-config", "name", "replicas", "platform", "hyperthreading", "architecture", "fencing", "diskSetup", "kernelArguments", "workload")
	if disks := n.Get("diskSetup"); !disks.IsEmpty() {
		disks.Warn("no MachineConfig is made from it here: the installer makes its own")
	}
	p := installPool{at: n, role: role, arguments: machineconfig.Arguments(n.Get("kernelArguments"), policy)}
	p.noThreads = readHyperthreading(n.Get("hyperthreading"), kargs.Split(strings.Join(p.arguments, " ")))
	p.workloads = readPartitions(n.Get("workload"))
	return p, true
}

// readHyperthreading reports whether hyperthreading is disabled.
func readHyperthreading(n document.Node, line kargs.Line) bool {
	switch value := n.Text(); {
	case value == "Disabled":
		return true
	case value != "" && value != "Enabled":
		n.Fail("it is %s, neither Enabled nor Disabled", problem.Quoted(value))
	case value == "Enabled" && line.DisablesThreads():
		n.Fail("it is Enabled, and the pool's kernelArguments switch it off")
	}
	return false
}

// readPartitions reads the CPUs of workloads.
func readPartitions(n document.Node) pinning.Workloads {
	n.Known("a pool's workload", "partitions")
	workloads := pinning.Workloads{}
	for _, item := range n.Get("partitions").Items() {
		if !item.Object() {
			continue
		}
		item.Known("a workload partition", "name", "cpuIDs")
		name := item.Get("name").Text()
		if name != "management" {
			item.Get("name").Fail("it is %s; the one workload that has partitions is management", problem.Quoted(name))
			continue
		}
		if _, twice := workloads[name]; twice {
			item.Get("name").Fail("there is another partition %s", problem.Quoted(name))
		}
		_, set, err := pinning.ParseAssignment(name + "=" + item.Get("cpuIDs").Text())
		if err != nil {
			item.Get("cpuIDs").Fail("%v", err)
			continue
		}
		workloads[name] = set
	}
	return workloads
}

// machineConfigs returns the MachineConfigs of the pool, one for each setting.
func (p installPool) machineConfigs() []*MachineConfig {
	var all []*MachineConfig
	add := func(what string, spec machineconfig.Spec) {
		all = append(all, &MachineConfig{
			Name:   fmt.Sprintf("99-%s-%s", p.role, what),
			Labels: map[string]string{RoleLabel: p.role},
			Spec:   spec,
		})
	}
	if p.noThreads {
		add("disable-hyperthreading", machineconfig.Spec{KernelArguments: []string{"nosmt", "smt-enabled=off"}}) // the second is for POWER
	}
	if p.fips {
		add("fips", machineconfig.Spec{FIPS: true})
	}
	if len(p.arguments) > 0 {
		add("kernel-arguments", machineconfig.Spec{KernelArguments: p.arguments})
	}
	if len(p.workloads) > 0 {
		config := ignition.Empty()
		config.Ignition.Version = "3.2.0" // sufficient here, and supported by older clusters
		config.Storage.Files = []ignition.File{
			ignition.NewFile(pinning.DropInPath, 0o644, pinning.DropIn(p.workloads)),
			ignition.NewFile(pinning.KubeletPath, 0o644, pinning.KubeletFile(p.workloads)),
		}
		add("workload-partitioning", machineconfig.Spec{Config: &config})
	}
	return all
}

// together checks the MachineConfigs of the pool in combination.
func (p installPool) together(rules Rules) {
	all := p.machineConfigs()
	if len(all) == 0 {
		return
	}
	merged, err := Merge(all, Images{})
	if err != nil {
		p.at.Fail("%v", err)
		return
	}
	for _, found := range Check(merged, rules) {
		p.at.Report.Add(found.Within(p.at.Path, "its MachineConfigs together: "+found.Path+": "))
	}
}
