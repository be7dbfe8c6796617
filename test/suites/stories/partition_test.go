package stories_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/pinning"
	"machine-pivot/test/worlds/hostdir"
)

// threads makes the four CPUs of a host hardware threads of the given cores.
func threads(h *hostdir.Host, cores ...string) {
	for cpu := range 4 {
		for _, core := range cores {
			if strings.Contains(core, fmt.Sprint(cpu)) {
				h.Write(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu), []byte(core+"\n"))
			}
		}
	}
}

// pin writes the pinning files into the running /etc, as Ignition does.
func pin(t *testing.T, h *hostdir.Host, set string) {
	t.Helper()
	w := workloads(t, set)
	h.Write(pinning.DropInPath, pinning.DropIn(w))
	h.Write(pinning.KubeletPath, pinning.KubeletFile(w))
}

// workloads returns the workload management with a set of CPUs.
func workloads(t *testing.T, set string) pinning.Workloads {
	t.Helper()
	_, cpus, err := pinning.ParseAssignment("management=" + set)
	must(t, err)
	return pinning.Workloads{pinning.Management: cpus}
}

// TestPartitionIsCheckedFirst: CPU partitioning with which pods could not run is refused before
// anything is pulled.
func TestPartitionIsCheckedFirst(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*testing.T, *hostdir.Host)
		want    string
	}{
		{"nosmt and sibling threads", func(_ *testing.T, h *hostdir.Host) { threads(h, "0-1", "2-3") },
			"CPU 1 will be offline after the reboot: nosmt switches the second threads of all cores off (CPU 1 is a thread of the core 0-1)"},
		{"a set of Ignition's outside the machine", func(t *testing.T, h *hostdir.Host) {
			pin(t, h, "0-9")
			askServed(h, "quiet")
		}, "the machine has no CPU 4-9, only 0-3"},
		{"a set of Ignition's that the arguments switch off", func(t *testing.T, h *hostdir.Host) {
			pin(t, h, "0,3")
			askServed(h, "maxcpus=2")
		}, "CPU 3 will be offline after the reboot: maxcpus=2"},
		{"a later drop-in with another set", func(_ *testing.T, h *hostdir.Host) {
			h.Write(pinning.DropInDir+"/"+pinning.ProfileDropIn, pinning.DropIn(pinning.Workloads{"management": {}}))
		}, `its CPUs "0-1" differ from ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.prepare(t, h)
			requests := h.Registry.Requests()
			plan := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath}
			if _, err := plan.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the plan says %v, want %q", err, c.want)
			}
			err := boot(t, h)
			if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if n := h.Registry.Requests() - requests; n != 0 || h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
				t.Errorf("%d requests, %d reboots, calls %v", n, h.Reboots, h.Ostree.Calls)
			}
		})
	}
}

// TestRebaseChecksThePartition: a pivot by hand checks too, even if only arguments change.
func TestRebaseChecksThePartition(t *testing.T) {
	h := hostdir.New(t)
	threads(h, "0,2", "1,3")
	pin(t, h, "0,2")
	r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"nosmt"}}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "CPU 2 will be offline") {
		t.Errorf("error %v", err)
	}
	r = day2.Rebase{Machine: newMachine(t, h), Append: []string{"quiet"}}
	if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// TestPartitionOfOtherFiles: a MachineConfig is judged together with the files of CRI-O and kubelet
// that the machine has.
func TestPartitionOfOtherFiles(t *testing.T) {
	kubelets := func(assignment string) (pinning.Workloads, string) {
		_, set, err := pinning.ParseAssignment(assignment)
		must(t, err)
		w := pinning.Workloads{pinning.Management: set}
		return w, "  config: {ignition: {version: 3.4.0}, storage: {files: [{path: " + pinning.KubeletPath + ", contents: {source: \"data:;base64," +
			base64.StdEncoding.EncodeToString(pinning.KubeletFile(w)) + "\"}}]}}\n"
	}
	h := hostdir.New(t)
	threads(h, "0,2", "1,3")
	same, spec := kubelets("management=0-1")
	if _, _, err := apply(t, h, spec); err == nil || !strings.Contains(err.Error(), "no CRI-O drop-in defines it") {
		t.Errorf("without CRI-O's file: %v", err)
	}
	h.Write(pinning.ConfigPath, pinning.DropIn(same))
	_, other := kubelets("management=2")
	if _, _, err := apply(t, h, other); err == nil || !strings.Contains(err.Error(), `its CPUs "2" differ from "0-1" in `+pinning.ConfigPath) {
		t.Errorf("another set: %v", err)
	}
	if changed, notes, err := apply(t, h, spec); err != nil || !changed {
		t.Errorf("changed %v, %v: %s", changed, err, notes)
	}
}

func TestVerifyFindsDriftOfThePartition(t *testing.T) {
	h := newHost(t)
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	if got := verify(t, h); got != "" {
		t.Errorf("at its target: %s", got)
	}
	h.Write(pinning.DropInDir+"/60-mine", pinning.DropIn(pinning.Workloads{"management": {}}))
	if got := verify(t, h); !strings.Contains(got, `its CPUs "0-1" differ from "" in `+pinning.DropInDir+"/60-mine") {
		t.Errorf("with another drop-in: %q", got)
	}
	h.Write(pinning.DropInDir+"/60-mine", []byte("[crio.runtime]\nlog_level = \"info\"\n"))
	h.Write("/sys/devices/system/cpu/online", []byte("0,2-3\n"))
	if got := verify(t, h); !strings.Contains(got, "CPU 1 of workload management: offline") {
		t.Errorf("with a CPU offline: %q", got)
	}
	h.Write(pinning.KubeletPath, []byte("{}"))
	if got := verify(t, h); !strings.Contains(got, "file "+pinning.KubeletPath+": differs") {
		t.Errorf("with a changed file: %q", got)
	}
}

// TestPartitionOfTheImage: where a MachineConfig gives a file back to the image, CPU partitioning is judged on the file
// that the image has. The image that runs, or the one that the same change brings. A link is judged as the file it
// leads to.
func TestPartitionOfTheImage(t *testing.T) {
	h := hostdir.New(t)
	ship := func(set string) (image string) {
		w := workloads(t, set)
		h.PutIntoNext(map[string]string{"usr/etc" + pinning.DropInPath[4:]: string(pinning.DropIn(w)), "usr/etc" + pinning.KubeletPath[4:]: string(pinning.KubeletFile(w))})
		return h.Push(h.NativeImage())
	}
	file := func(path string, data []byte) string {
		return "{path: " + path + ", overwrite: true, contents: {source: \"data:;base64," + base64.StdEncoding.EncodeToString(data) + "\"}}"
	}
	spec := func(image, arg, files string) string {
		return "  osImageURL: " + image + "\n  kernelArguments: [" + arg + "]\n  config: {ignition: {version: 3.4.0}, storage: {files: [" + files + "]}}\n"
	}
	accepted := func(spec string) {
		t.Helper()
		if changed, notes, err := apply(t, h, spec); err != nil || !changed {
			t.Fatalf("changed %v, %v: %s", changed, err, notes)
		}
	}
	refused := func(want, spec string) {
		t.Helper()
		if _, notes, err := apply(t, h, spec); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q: %s", err, want, notes)
		}
	}
	drop := func(set string) string { return file(pinning.DropInPath, pinning.DropIn(workloads(t, set))) }
	kubelet := func(set string) string { return file(pinning.KubeletPath, pinning.KubeletFile(workloads(t, set))) }
	a := ship("0-1")
	accepted(spec(a, "a=1", drop("2")+","+kubelet("2")))
	refused(`its CPUs "2" differ from "0-1"`, spec(a, "a=1", kubelet("2")))
	accepted(spec(a, "a=1", kubelet("0-1")))
	refused("CPU 1 will be offline", spec(a, "maxcpus=1", kubelet("0-1")))
	refused("CPU 1 will be offline", spec(a, "maxcpus=1", ""))
	accepted(spec(a, "a=1", drop("2")+","+kubelet("2")))
	b := ship("0,3")
	refused("CPU 3 will be offline", spec(b, "maxcpus=2", ""))
	accepted(spec(b, "a=1", ""))
	if got := string(h.Read(pinning.DropInPath)); !strings.Contains(got, `"0,3"`) {
		t.Errorf("drop-in %q", got)
	}
	expectStatus(t, h)

	link := func(target string) string {
		return "  osImageURL: " + b + "\n  kernelArguments: [a=1]\n  config: {ignition: {version: 3.4.0}, storage: {links: [{path: " + pinning.DropInPath +
			", overwrite: true, target: " + target + "}], files: [" + file("/etc/mine.conf", pinning.DropIn(workloads(t, "1"))) + "," + kubelet("0,3") + "]}}\n"
	}
	refused(`its CPUs "0,3" differ from "1"`, link("../../mine.conf"))
	refused("no CRI-O drop-in defines it", link("/dev/null"))
}

// TestBrokenWithoutPartition: each way to change a machine refuses what keeps CRI-O or its pods from starting, also if
// no workload with CPU partitioning remains. A fault that the machine has already is no reason.
func TestBrokenWithoutPartition(t *testing.T) {
	const table = "[crio.runtime.workloads."
	for _, c := range []struct{ name, text, argument, want string }{
		{"sandboxes on a CPU that is switched off", "[crio.runtime]\ninfra_ctr_cpuset = \"2-3\"\n", "maxcpus=2", "infra_ctr_cpuset: CPU 2-3 will be offline"},
		{"a set that cannot be parsed", "[crio.runtime]\ninfra_ctr_cpuset = \"2-\"\n", "quiet", "infra_ctr_cpuset: cannot parse"},
		{"the only workload is broken", table + "management]\nactivation_annotation = \"target.workload.openshift.io/management\"\nresources = { \"cpuset\" = \"0-\" }\n", "quiet", `workload "management": cannot parse CPU set "0-"`},
		{"no TOML", "[crio", "quiet", "cannot parse the CRI-O drop-in"},
		{"another use of workloads", table + "x]\nactivation_annotation = \"a\"\nresources = { \"cpuperiod\" = 5 }\n", "quiet", `workload "x": cpuperiod 5 cannot be less`},
	} {
		t.Run(c.name, func(t *testing.T) {
			const name = pinning.DropInDir + "/60-mine"
			expect := func(what string, err error) {
				t.Helper()
				if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), name+": "+c.want) {
					t.Errorf("%s: error %v, want %q", what, err, c.want)
				}
			}
			h := hostdir.New(t) // its Ignition has written the file
			h.Write(name, []byte(c.text))
			askServed(h, c.argument)
			expect("first boot", boot(t, h))

			byHand := func(argument string) (bool, error) {
				r := day2.Rebase{Machine: newMachine(t, h), Append: []string{argument}}
				return r.Run(t.Context(), day2.RunOptions{})
			}
			h = hostdir.New(t)
			h.Write(name, []byte(c.text))
			changed, err := byHand(c.argument)
			if c.argument == "maxcpus=2" { // it brings the fault
				expect("rebase", err)
			} else if err != nil || !changed {
				t.Errorf("a fault that the machine has already: changed %v, %v", changed, err)
			}

			h = hostdir.New(t)
			h.Write("/etc/of-crio", []byte(c.text))
			_, _, err = apply(t, h, "  kernelArguments: ["+c.argument+"]\n  config: {ignition: {version: 3.4.0}, storage: {links: [{path: "+name+", target: /etc/of-crio}]}}\n")
			expect("apply", err)
		})
	}
}
