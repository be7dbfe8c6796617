package pinning_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// server returns a machine with 8 CPUs in 4 cores of two threads, n and n+4.
func server(t *testing.T) pinning.Machine {
	t.Helper()
	m := pinning.CPUsOnly(mustSet(t, "0-7"))
	m.CoresKnown = true
	for cpu := range 4 {
		m.Cores = append(m.Cores, mustSet(t, fmt.Sprintf("%d,%d", cpu, cpu+4)))
	}
	return m
}

// pinned returns the two files of a management set.
func pinned(t *testing.T, set string) map[string][]byte {
	t.Helper()
	w := workloads(t, "management="+set)
	return map[string][]byte{pinning.DropInPath: pinning.DropIn(w), pinning.KubeletPath: pinning.KubeletFile(w)}
}

func with(files map[string][]byte, path, content string) map[string][]byte {
	files[path] = []byte(content)
	return files
}

// texts returns the problems as lines.
func texts(problems problem.Report) []string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, fmt.Sprintf("%s: %s", p.Severity, p.Message))
	}
	return lines
}

func TestAgainstTheNextBoot(t *testing.T) {
	for _, c := range []struct {
		set, line string
		want      []string // one substring per problem, in order
		online    string
	}{
		{"0-1", "root=/dev/vda rw", nil, "0-7"},
		{"0,4", "", nil, "0-7"},
		{"0-1", "nosmt", nil, "0-3"},
		{"0,4", "nosmt", []string{"error: workload \"management\": CPU 4 will be offline after the reboot: nosmt switches the second threads of all cores off (CPU 4 is a thread of the core 0,4)"}, "0-3"},
		{"0-1,4-5", "nosmt=force", []string{"CPU 4-5 will be offline"}, "0-3"},
		{"0,4", "smt-enabled=off", []string{"error: workload \"management\": CPU 4 will be offline after the reboot: smt-enabled=off"}, "0-3"},
		{"0,4", "mitigations=auto,nosmt", []string{"warning: workload \"management\": CPU 4 may be offline after the reboot: mitigations=auto,nosmt"}, "0-7"},
		{"0,4", "l1tf=full,force", []string{"may be offline"}, "0-7"},
		{"0,4", "mitigations=auto,nosmt mitigations=auto", nil, "0-7"},
		{"0,4", `dyndbg="nosmt off"`, nil, "0-7"},
		{"0-1", "maxcpus=2", []string{"leaves no CPU to other pods"}, "0-1"},
		{"0-2", "maxcpus=2", []string{"error: workload \"management\": CPU 2 will be offline after the reboot: maxcpus=2 starts 2 of them only", "leaves no CPU"}, "0-1"},
		{"0-1", "maxcpus=2 maxcpus=8", nil, "0-7"},
		{"0-1", "maxcpus=0", []string{"CPU 1 will be offline", "leaves no CPU"}, "0"},
		{"0-1", "nosmp", []string{"CPU 1 will be offline after the reboot: nosmp", "leaves no CPU"}, "0"},
		{"0,6", "nr_cpus=6", []string{"CPU 6 will be offline after the reboot: nr_cpus=6 leaves CPUs from 6 on out"}, "0-5"},
		{"0,6", "possible_cpus=0x6", []string{"CPU 6 will be offline"}, "0-5"},
		{"0-1", "isolcpus=1-7", []string{"warning: workload \"management\": CPU 1 is isolated by isolcpus=1-7"}, "0-7"},
		{"0-1", "isolcpus=managed_irq,1-7", nil, "0-7"},
		{"0-1", "isolcpus=domain,managed_irq,0-N:1/2", []string{"CPU 0 is isolated", "CPU 3,5,7 is in no set: neither in workload \"management\" nor in isolcpus=domain"}, "0-7"},
		{"0-1", "isolcpus=nonsense", []string{"warning: isolcpus: cannot parse CPU list \"nonsense\""}, "0-7"},
		{"0-1", "isolcpus=0-7:2/2", []string{"CPU 0-1 is isolated"}, "0-7"},
		{"0-1", "isolcpus=0-7:0/1", nil, "0-7"},
		{"0-1", "isolcpus=0-7:1", []string{"warning: isolcpus: cannot parse CPU list"}, "0-7"},
		{"0-1", "isolcpus=0-7:x/2", []string{"warning: isolcpus: cannot parse CPU list"}, "0-7"},
		{"0-1", "isolcpus=0-7:1/y", []string{"warning: isolcpus: cannot parse CPU list"}, "0-7"},
		{"0-1", "isolcpus=0-7:1/99999999999999999999", []string{"warning: isolcpus: cannot parse CPU list"}, "0-7"},
		{"0-1", "isolcpus=0-7:-1/2", []string{"warning: isolcpus: cannot parse CPU list"}, "0-7"},
		{"0-1", "isolcpus=0-7:0/0", []string{"warning: isolcpus: cannot parse CPU list"}, "0-7"},
		{"0-1", "isolcpus=0-7:3/2", []string{"warning: isolcpus: cannot parse CPU list"}, "0-7"},
		{"0,7", "nr_cpus=6 maxcpus=7", []string{"CPU 7 will be offline after the reboot: nr_cpus=6 leaves CPUs from 6 on out"}, "0-5"},
		{"0,7", "nr_cpus=6 possible_cpus=7", []string{"CPU 7 will be offline after the reboot: nr_cpus=6 leaves CPUs from 6 on out"}, "0-5"},
		{"0-1", "nohz_full=1-7 rcu_nocbs=all", []string{"CPU 1 is in nohz_full=1-7", "CPU 0-1 is in rcu_nocbs=all"}, "0-7"},
		{"0-1", "systemd.cpu_affinity=0,1", nil, "0-7"},
		{"0-1", "systemd.cpu_affinity=0-1", nil, "0-7"},
		{"0-1", "systemd.cpu_affinity=2,3", []string{"systemd.cpu_affinity keeps CRI-O, kubelet and all other services on 2-3"}, "0-7"},
		{"0-1", "irqaffinity=0-1 kthread_cpus=0-1 tuned.non_isolcpus=00000003", nil, "0-7"},
		{"0-1", "irqaffinity=0-2 kthread_cpus=0-1,4", []string{"irqaffinity=0-2 puts the kernel's own work also on CPU 2", "kthread_cpus=0-1,4 puts the kernel's own work also on CPU 4"}, "0-7"},
		{"0-1", "tuned.non_isolcpus=0000000f,00000003", []string{"is the mask of 0-1,32-35"}, "0-7"},
		{"0-1", "tuned.non_isolcpus=0x3", []string{"cannot parse the mask"}, "0-7"},
		{"0-1", "nohz_full=2-9", []string{"nohz_full=2-9: the machine has no CPU 8-9, only 0-7"}, "0-7"},
		{"0-1", "isolcpus=managed_irq,2-N", nil, "0-7"},
		{"0-1", "isolcpus=4-7", []string{"CPU 2-3 is in no set: neither in workload \"management\" nor in isolcpus=4-7"}, "0-7"},
		{"0-1", "isolcpus=4-7 maxcpus=2", []string{"leaves no CPU"}, "0-1"},
		{"0-1", "nohz_full=3-7", []string{"CPU 2 is in no set: neither in workload \"management\" nor in nohz_full=3-7"}, "0-7"},
		{"0-1", "isolcpus=2-7 nohz_full=2-5", []string{"isolcpus=2-7 and nohz_full=2-5 describe one partition and differ: CPU 6-7"}, "0-7"},
		{"0-1", "isolcpus=managed_irq,domain,2-7 rcu_nocbs=4-7 nohz_full=2-7", []string{"and rcu_nocbs=4-7 describe one partition and differ: CPU 2-3"}, "0-7"},
		{"0-1", "isolcpus=2-7 nohz_full=2-7 rcu_nocbs=2-7 rcu_nocb_poll skew_tick=1 nosoftlockup", nil, "0-7"},
		{"0-1", "isolcpus=2-12", []string{"isolcpus=2-12: the machine has no CPU 8-12, only 0-7"}, "0-7"},
		{"0-1", "isolcpu=2-7", []string{"isolcpu: is isolcpus meant?"}, "0-7"},
		{"0-1", "irq_affinity=0 nohz_ful=2 nosmtt", []string{"is irqaffinity meant?", "is nohz_full meant?", "is nosmt meant?"}, "0-7"},
		{"0-1", "isolpcu=2-7 rcunocb=2 nopat noht", []string{"is isolcpus meant?", "is rcu_nocbs meant?"}, "0-7"},
		{"0-1", "systemd.cpu_afinity=0-1 hugepage=2 Nohz_full=2", []string{"is systemd.cpu_affinity meant?", "is hugepages meant?", "is nohz_full meant?"}, "0-7"},
		{"0-1", "nohz=on nosmap noibrs mds=off rcu-nocb-poll", nil, "0-7"},
		{"0-1", "default_hugepagesz=1G hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=0:2,1:3", nil, "0-7"},
		{"0-1", "hugepages=16 hugepagesz=1G", []string{"hugepagesz=1G: no hugepages= follows it"}, "0-7"},
		{"0-1", "hugepagesz=1G hugepagesz=2M hugepages=4", []string{"hugepagesz=1G: no hugepages= follows it"}, "0-7"},
		{"0-1", "default_hugepagesz=3M hugepagesz=1Gi hugepages=1e3", []string{"default_hugepagesz=3M: it is not the size", "hugepagesz=1Gi: it is not the size", "hugepages=1e3: it is not a number"}, "0-7"},
		{"0-1", "hugepagesz=512 hugepages=-1", []string{"hugepagesz=512: it is not the size", "hugepages=-1: it is not a number"}, "0-7"},
		{"0-1", "default_hugepagesz=1g hugepages=", []string{"hugepages=: it is not a number"}, "0-7"},
		{"2-3", "", []string{"warning: workload \"management\": CPU 0, which the machine boots on, is not in its set 2-3"}, "0-7"},
		{"0-7", "", []string{"its set leaves no CPU to other pods"}, "0-7"},
		{"0,9-10", "", []string{"the machine has no CPU 9-10, only 0-7", "the machine has no CPU 9-10, only 0-7"}, "0-7"},
	} {
		t.Run(c.set+" "+c.line, func(t *testing.T) {
			r := pinning.Inspect(pinning.Input{Files: pinned(t, c.set), Machine: server(t), Line: kargs.Split(c.line)})
			got := texts(r.Problems)
			if len(got) != len(c.want) {
				t.Fatalf("%d problems, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("problem %q, want %q", got[i], want)
				}
			}
			if r.Pools.Online.String() != c.online {
				t.Errorf("online %s, want %s", r.Pools.Online, c.online)
			}
		})
	}
}

// TestThreadsThatAreOffNow: the kernel does not report which offline CPUs are second threads.
func TestThreadsThatAreOffNow(t *testing.T) {
	m := pinning.CPUsOnly(mustSet(t, "0-7"))
	m.Online = mustSet(t, "0-3")
	r := pinning.Inspect(pinning.Input{Files: pinned(t, "0,4"), Machine: m, Line: kargs.Split("nosmt")})
	if got := texts(r.Problems); len(got) != 1 || !strings.Contains(got[0], "CPU 4 will be offline") {
		t.Errorf("with nosmt: %q", got)
	}
	r = pinning.Inspect(pinning.Input{Files: pinned(t, "0,4"), Machine: m})
	if got := texts(r.Problems); len(got) != 1 || !strings.Contains(got[0], "CPU 4 is offline now") {
		t.Errorf("without: %q", got)
	}
}

// TestThreadsUnknown: no CPU is reported to stay if its core is not known.
func TestThreadsUnknown(t *testing.T) {
	for _, line := range []string{"nosmt", "nosmt=force", "mitigations=auto,nosmt", "smt-enabled=off"} {
		r := pinning.Inspect(pinning.Input{Files: pinned(t, "0-1"), Machine: pinning.CPUsOnly(mustSet(t, "0-7")), Line: kargs.Split(line)})
		if got := texts(r.Problems); len(got) != 1 || !strings.Contains(got[0], "which CPUs these are is not known") || r.Pools.Dedicated != nil {
			t.Errorf("%s: %q", line, got)
		}
	}
}

const dir = pinning.DropInDir

// builder is the part of the clusters' drop-in that concerns workloads.
const builder = `[crio]
internal_wipe = true
[crio.runtime]
log_level = "info"
[crio.runtime.workloads.openshift-builder]
activation_annotation = "io.openshift.builder"
allowed_annotations = ["io.kubernetes.cri-o.userns-mode"]
[crio.runtime.workloads.openshift-builder.resources]
`

func TestAllDropInsOfAHost(t *testing.T) {
	management := func(set string) string { return string(pinning.DropIn(workloads(t, "management="+set))) }
	empty := string(pinning.DropIn(pinning.Workloads{"management": {}}))
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  []string
		set   string
	}{
		{"a cluster's own", with(pinned(t, "0-1"), dir+"/00-default", builder), nil, "0-1"},
		{"partitioning off", map[string][]byte{dir + "/00-default": []byte(builder)}, nil, ""},
		{"the seed's name beside a cluster's default", map[string][]byte{
			dir + "/01-workload-partitioning": []byte(management("0-1")), dir + "/" + pinning.ClusterDropIn: []byte(empty),
			pinning.KubeletPath: pinned(t, "0-1")[pinning.KubeletPath],
		}, []string{`warning: its workload "management" is replaced by that of ` + dir + "/" + pinning.ClusterDropIn, `its CPUs "0-1" differ from ""`}, ""},
		{"ours beside a cluster's default", with(pinned(t, "0-1"), dir+"/"+pinning.ClusterDropIn, empty), []string{"warning: its workload"}, "0-1"},
		{"a performance profile", with(pinned(t, "0-1"), dir+"/"+pinning.ProfileDropIn, management("0-2")),
			[]string{"is replaced by that of " + dir + "/" + pinning.ProfileDropIn, `its CPUs "0-1" differ from "0-2"`}, "0-2"},
		{"a directory is read where its name stands", map[string][]byte{
			dir + "/50/z": []byte(management("0-1")), dir + "/50.conf": []byte(management("2")), pinning.KubeletPath: pinned(t, "2")[pinning.KubeletPath],
		}, []string{dir + "/50.conf, which CRI-O reads later", "CPU 0, which the machine boots on"}, "2"},
		// CRI-O does not validate a definition that is replaced.
		{"CPUs that are not there, replaced", map[string][]byte{
			dir + "/50": []byte(management("0-1,9")), dir + "/99": []byte(management("0-1")), pinning.KubeletPath: pinned(t, "0-1")[pinning.KubeletPath],
		}, []string{"warning: its workload"}, "0-1"},
		{"no set, replaced", map[string][]byte{
			dir + "/50": []byte(strings.Replace(management("0-1"), "0-1", "3-1", 1)), dir + "/99": []byte(management("0-1")), pinning.KubeletPath: pinned(t, "0-1")[pinning.KubeletPath],
		}, []string{"warning: its workload"}, "0-1"},
		{"no set, and it counts", map[string][]byte{
			dir + "/50": []byte(management("0-1")), dir + "/99": []byte(strings.Replace(management("0-1"), "0-1", "3-1", 1)), pinning.KubeletPath: pinned(t, "0-1")[pinning.KubeletPath],
		}, []string{"warning: its workload", "error: workload \"management\": cannot parse CPU set \"3-1\""}, ""},
		{"crio.conf comes first", with(pinned(t, "0-1"), pinning.ConfigPath, management("5")), []string{"is replaced"}, "0-1"},
		{"a backup", with(pinned(t, "0-1"), dir+"/50-workload-partitioning.conf.bak", management("5")),
			[]string{"looks like a leftover", "is replaced", `"0-1" differ from "5"`, "CPU 0, which"}, "5"},
		{"an unknown key", with(pinned(t, "0-1"), dir+"/60", "[crio.runtime.workloads.x]\nactivation_annotation = \"x\"\nresources = { \"cpu\" = \"\" }\n"),
			[]string{"warning: unknown key crio.runtime.workloads.x.resources.cpu, which CRI-O ignores"}, "0-1"},
		{"a name misspelt", with(pinned(t, "0-1"), dir+"/60", "[crio.runtime.workloads.managment]\nactivation_annotation = \"target.workload.openshift.io/managment\"\nannotation_prefix = \"resources.workload.openshift.io\"\nresources = { cpuset = \"2\" }\n"),
			[]string{`workload "managment": is "management" meant?`, "is missing", "CPU 0, which"}, "0-1"},
		{"the same annotation twice", with(pinned(t, "0-1"), dir+"/60", "[crio.runtime.workloads.x]\nactivation_annotation = \"target.workload.openshift.io/management\"\nannotation_prefix = \"resources.workload.openshift.io\"\nresources = {}\n"),
			[]string{`pods of this type carry "target.workload.openshift.io/x"`, `is that of workload "management" too`, `workload "x" is missing`}, "0-1"},
		{"an annotation prefix of its own", with(pinned(t, "0-1"), dir+"/60", strings.Replace(management("0-1"), `"resources.workload`, `"my.workload`, 1)),
			[]string{"is replaced", `annotation_prefix is "my.workload.openshift.io"`}, "0-1"},
		{"case makes no difference to CRI-O", with(pinned(t, "0-1"), dir+"/60", "[crio.runtime.workloads.x]\nactivation_annotation = \"x\"\nresources = { cpuset = \"0\", CPUSet = \"1\" }\n"),
			[]string{"error: the keys crio.runtime.workloads.x.resources.cpuset and crio.runtime.workloads.x.resources.CPUSet are the same to CRI-O"}, "0-1"},
		{"a table twice", with(pinned(t, "0-1"), dir+"/60", management("0-1")+management("2")), []string{"toml: line 5"}, "0-1"},
		{"shares as text", with(pinned(t, "0-1"), dir+"/60", strings.Replace(management("0-1"), "= 0,", `= "0",`, 1)), []string{"toml: line 4"}, "0-1"},
		{"quota below shares", with(pinned(t, "0-1"), dir+"/60", "[crio.runtime.workloads.x]\nactivation_annotation = \"x\"\nresources = { cpushares = 200, cpuquota = 100 }\n"),
			[]string{"cpuquota 100 cannot be less than cpushares 200"}, "0-1"},
		{"quota as shares", with(pinned(t, "0-1"), dir+"/60", "[crio.runtime.workloads.x]\nactivation_annotation = \"x\"\nresources = { cpushares = 200, cpuquota = 200 }\n"), nil, "0-1"},
		{"no quota, as the kernel spells it", with(pinned(t, "0-1"), dir+"/60", "[crio.runtime.workloads.x]\nactivation_annotation = \"x\"\nresources = { cpuquota = -1 }\n"),
			[]string{"cpuquota -1 cannot be less than cpushares 0"}, "0-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := pinning.Inspect(pinning.Input{Files: c.files, Machine: server(t)})
			got := texts(r.Problems)
			if len(got) != len(c.want) {
				t.Fatalf("%d problems, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("problem %q, want %q", got[i], want)
				}
			}
			if set := r.Workloads["management"].String(); set != c.set {
				t.Errorf("management runs on %q, want %q", set, c.set)
			}
			if _, there := r.Workloads["openshift-builder"]; there {
				t.Error("the builder's workload is taken for partitioning")
			}
		})
	}
}

// TestAgainstTheCPUManager (P29): a CPU manager that will refuse its old state is reported.
func TestAgainstTheCPUManager(t *testing.T) {
	config := func(text string) string { return "kind: KubeletConfiguration\n" + text }
	state := func(policy, shared, assigned string) string {
		return fmt.Sprintf(`{"policyName":%q,"defaultCpuSet":%q,"entries":{"pod":{"ctr":%q}},"checksum":1}`, policy, shared, assigned)
	}
	for _, c := range []struct {
		name, config, state, line string
		want                      []string
		shared, dedicated         string
	}{
		{"no static policy", config(""), `{"policyName":"none","defaultCpuSet":"","checksum":1}`, "", nil, "0-7", ""},
		{"as it shall be", config("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"), state("static", "0-3,6-7", "4-5"), "", nil, "0-3,6-7", "2-7"},
		{"strictly reserved", config("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\ncpuManagerPolicyOptions:\n  strict-cpu-reservation: \"true\"\n"),
			state("static", "2-3,6-7", "4-5"), "", nil, "2-3,6-7", "2-7"},
		{"another reserved set", config("cpuManagerPolicy: static\nreservedSystemCPUs: 0-2\n"), "", "", []string{`reservedSystemCPUs "0-2" differ`}, "0-7", "3-7"},
		{"reserved CPUs that will not be there", config("reservedSystemCPUs: 0,4\n"), "", "nosmt", []string{"CPU 4 will not be online after the reboot, and kubelet will not start"}, "0-3", ""},
		{"the policy was changed", config("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"), state("none", "", ""), "",
			[]string{`it is of the policy "none", but kubelet's configuration says "static"`}, "0-7", "2-7"},
		{"pods own CPUs of the set", config("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"), state("static", "0,2-7", "1"), "",
			[]string{`CPU 1 of workload "management" is given to a pod`}, "0,2-7", "2-7"},
		{"CPUs that will be gone", config("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"), state("static", "0-5", "6-7"), "nosmt",
			[]string{"it is about the CPUs 0-7, but 0-3 will be online"}, "0-3", "2-3"},
		{"no configuration", config("a: [\n"), "", "", []string{"cannot parse kubelet's configuration"}, "0-7", "unknown"},
		{"no set", config("reservedSystemCPUs: 3-1\n"), "", "", []string{"error: reservedSystemCPUs: cannot parse"}, "0-7", ""},
		{"no state", config(""), "{", "", []string{"kubelet will not start with it"}, "0-7", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := with(pinned(t, "0-1"), pinning.KubeletConfigPath, c.config)
			if c.state != "" {
				with(files, pinning.ManagerStatePath, c.state)
			}
			r := pinning.Inspect(pinning.Input{Files: files, Machine: server(t), Line: kargs.Split(c.line)})
			got := texts(r.Problems)
			if len(got) != len(c.want) {
				t.Fatalf("%d problems, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("problem %q, want %q", got[i], want)
				}
			}
			dedicated := "unknown"
			if r.Pools.Dedicated != nil {
				dedicated = r.Pools.Dedicated.String()
			}
			if r.Pools.Shared.String() != c.shared || dedicated != c.dedicated {
				t.Errorf("shared %q, dedicated %q; want %q, %q", r.Pools.Shared, dedicated, c.shared, c.dedicated)
			}
		})
	}
}

func TestDropInNames(t *testing.T) {
	for name, want := range map[string]string{
		"50-workload-partitioning.conf": "", "01-workload-partitioning": "it replaces this one", "99-zz": "it replaces the profile's",
		pinning.ClusterDropIn: "", pinning.ProfileDropIn: "",
	} {
		path, note, err := pinning.DropInNamed(name)
		if err != nil || path != dir+"/"+name || (want == "") != (note == "") || !strings.Contains(note, want) {
			t.Errorf("%s: %q, %q, %v", name, path, note, err)
		}
	}
	for _, name := range []string{"", ".x", "a/b", "../x", "a~", "a.bak", "x\ny", strings.Repeat("x", 200)} {
		if path, _, err := pinning.DropInNamed(name); err == nil {
			t.Errorf("%q is taken as %s", name, path)
		}
	}
}

// FuzzInspect: for any content, Inspect ends, and each problem is one line.
func FuzzInspect(f *testing.F) {
	f.Add([]byte(builder), []byte(`{"management":{"cpuset":"0"}}`), []byte("cpuManagerPolicy: static"), []byte(`{"policyName":"static"}`), "nosmt isolcpus=0-N:1/2")
	f.Fuzz(func(t *testing.T, dropIn, kubelet, config, state []byte, line string) {
		r := pinning.Inspect(pinning.Input{
			Files: map[string][]byte{
				dir + "/x": dropIn, pinning.KubeletPath: kubelet,
				pinning.KubeletConfigPath: config, pinning.ManagerStatePath: state,
			},
			Machine: pinning.CPUsOnly(mustSet(t, "0-7")), Line: kargs.Split(line),
		})
		if !r.Pools.Online.Contains(0) {
			t.Errorf("the boot CPU is not online: %v", r.Pools.Online)
		}
		if slices.ContainsFunc(r.Problems, func(p problem.Problem) bool { return p.Message == "" || strings.ContainsAny(p.Message, "\n\r\x1b") }) {
			t.Errorf("a problem that is not one line: %q", r.Problems)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// TestWithKubeletConfig: an object overrides a configuration member by member, and text that is neither is an error.
func TestWithKubeletConfig(t *testing.T) {
	const under, over = "a: 1\nb: {c: 2, d: 3}\n", "spec: {kubeletConfig: {b: {c: 4}}}\n"
	for _, c := range []struct{ under, over, want, err string }{
		{under, over, "a: 1\nb:\n    c: 4\n    d: 3\n", ""},
		{"", over, "b:\n    c: 4\n", ""},
		{"- a", over, "", "cannot parse kubelet's configuration below it: yaml"},
		{under, "- a", "", "cannot parse it: yaml"},
	} {
		got, err := pinning.WithKubeletConfig([]byte(c.under), []byte(c.over))
		if string(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%q over %q: %q, %v", c.over, c.under, got, err)
		}
	}
}

// TestSetsOfKubelet: without a workload, the reserved CPUs are kubelet's, and without those only the arguments are compared.
func TestSetsOfKubelet(t *testing.T) {
	reserved := map[string][]byte{pinning.KubeletConfigPath: []byte("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n")}
	for _, c := range []struct {
		files map[string][]byte
		line  string
		want  string
	}{
		{reserved, "isolcpus=2-7 irqaffinity=0-1 tuned.non_isolcpus=00000003", ""},
		{reserved, "isolcpus=1-7", "warning: reservedSystemCPUs: CPU 1 is also in isolcpus=1-7"},
		{reserved, "isolcpus=3-7", "warning: CPU 2 is in no set: neither in reservedSystemCPUs nor in isolcpus=3-7"},
		{reserved, "irqaffinity=0-3", "warning: reservedSystemCPUs: irqaffinity=0-3 puts the kernel's own work also on CPU 2-3"},
		{reserved, "kthread_cpus=7", "warning: reservedSystemCPUs: kthread_cpus=7 puts"},
		{reserved, "tuned.non_isolcpus=00000007", "warning: reservedSystemCPUs: its CPUs are 0-1, but tuned.non_isolcpus=00000007 is the mask of 0-2"},
		{map[string][]byte{pinning.KubeletConfigPath: []byte("cpuManagerPolicy: static\nreservedSystemCPU: 0-1\n")}, "", "warning: reservedSystemCPU: is reservedSystemCPUs meant?"},
		{nil, "isolcpus=2-7 irqaffinity=0-2", "warning: irqaffinity=0-2 puts the kernel's own work also on CPU 2 of isolcpus=2-7"},
		{nil, "isolcpus=2-70", "warning: isolcpus=2-70: the machine has no CPU 8-70, only 0-7"},
		{nil, "isolcpus=2-7 nohz_full=4-7", "warning: isolcpus=2-7 and nohz_full=4-7 describe one partition and differ: CPU 2-3"},
	} {
		got := texts(pinning.Inspect(pinning.Input{Files: c.files, Machine: server(t), Line: kargs.Split(c.line)}).Problems)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}
