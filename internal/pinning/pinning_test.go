package pinning_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
)

func workloads(t *testing.T, assignments ...string) pinning.Workloads {
	t.Helper()
	w := pinning.Workloads{}
	for _, a := range assignments {
		name, set, err := pinning.ParseAssignment(a)
		if err != nil {
			t.Fatal(err)
		}
		w[name] = set
	}
	return w
}

// check returns the problems of the pinning files of a host with these CPUs.
func check(files map[string][]byte, present pinning.CPUSet) problem.Report {
	return pinning.Inspect(pinning.Input{Files: files, Machine: pinning.CPUsOnly(present)}).Problems
}

// TestFiles: the files are byte for byte those of the enhancement.
func TestFiles(t *testing.T) {
	w := workloads(t, "management=0-1,52-53")
	const dropIn = `[crio.runtime.workloads.management]
activation_annotation = "target.workload.openshift.io/management"
annotation_prefix = "resources.workload.openshift.io"
resources = { "cpushares" = 0, "cpuset" = "0-1,52-53" }
`
	const kubelet = "{\n  \"management\": {\n    \"cpuset\": \"0-1,52-53\"\n  }\n}\n"
	if got := string(pinning.DropIn(w)); got != dropIn {
		t.Errorf("drop-in is\n%s", got)
	}
	if got := string(pinning.KubeletFile(w)); got != kubelet {
		t.Errorf("kubelet file is\n%s", got)
	}
}

func TestFilesReadBack(t *testing.T) {
	w := workloads(t, "management=0-1", "infra-2=4")
	if problems := check(map[string][]byte{
		pinning.DropInPath: pinning.DropIn(w), pinning.KubeletPath: pinning.KubeletFile(w),
	}, mustSet(t, "0-7")); problems.Failed() {
		t.Error(problems)
	}
}

// TestCheck (P27): CPU sets are checked as CRI-O does and against the CPUs of the machine.
func TestCheck(t *testing.T) {
	good := pinning.DropIn(workloads(t, "management=0-1"))
	kubelet := pinning.KubeletFile(workloads(t, "management=0-1"))
	const dir = pinning.DropInDir
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string // substring of the only problem
	}{
		{"no kubelet file", map[string][]byte{pinning.DropInPath: good}, "is missing"},
		{"no drop-in", map[string][]byte{pinning.KubeletPath: kubelet}, "no CRI-O drop-in defines it"},
		{"they differ", map[string][]byte{pinning.DropInPath: pinning.DropIn(workloads(t, "management=2")), pinning.KubeletPath: kubelet}, `"0-1" differ from "2"`},
		{"shadowed", map[string][]byte{dir + "/01-workload-partitioning": good, dir + "/01-workload-pinning-default.conf": good, pinning.KubeletPath: kubelet}, "is replaced by"},
		{"CPUs that are not there", map[string][]byte{pinning.DropInPath: pinning.DropIn(workloads(t, "management=0-1,9")), pinning.KubeletPath: pinning.KubeletFile(workloads(t, "management=0-1,9"))}, "no CPU 9, only 0-3"},
		{"no TOML", map[string][]byte{pinning.DropInPath: []byte("[crio"), pinning.KubeletPath: kubelet}, "toml"},
		{"bad set", map[string][]byte{pinning.DropInPath: []byte(strings.Replace(string(good), "0-1", "3-1", 1)), pinning.KubeletPath: kubelet}, "invalid range"},
		{"no annotation", map[string][]byte{pinning.DropInPath: []byte("[crio.runtime.workloads.management]\nresources = { \"cpuset\" = \"0-1\" }\n"), pinning.KubeletPath: kubelet}, "shouldn't be empty"},
		{"two problems in one table", map[string][]byte{pinning.DropInPath: []byte("[crio.runtime.workloads.management]\nresources = { \"cpuset\" = \"3-1\", \"cpuperiod\" = 5 }\n"), pinning.KubeletPath: kubelet}, "cpuperiod 5"},
		{"no resources", map[string][]byte{pinning.DropInPath: []byte("[crio.runtime.workloads.management]\nactivation_annotation = \"a\"\nannotation_prefix = \"b\"\n"), pinning.KubeletPath: kubelet}, "has no resources"},
		{"negative shares", map[string][]byte{pinning.DropInPath: []byte(strings.Replace(string(good), "= 0,", "= -1,", 1)), pinning.KubeletPath: kubelet}, "cannot be negative"},
		{"kubelet file is no JSON", map[string][]byte{pinning.DropInPath: good, pinning.KubeletPath: []byte("{")}, "kubelet file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := check(c.files, mustSet(t, "0-3"))
			if !slices.ContainsFunc(problems, func(p problem.Problem) bool { return strings.Contains(p.Message, c.want) }) {
				t.Errorf("problems %v, want %q", problems, c.want)
			}
			for _, p := range problems {
				if strings.Contains(p.Message, "\n") {
					t.Errorf("two problems in one: %q", p.Message)
				}
			}
		})
	}
}

func TestIsPinningPath(t *testing.T) {
	for path, want := range map[string]bool{
		pinning.KubeletPath: true, pinning.DropInPath: true, pinning.DropInDir + "/a/b": true, pinning.DropInDir + "/.x": true,
		pinning.DropInDir: false, pinning.DropInDir + "/": false, pinning.DropInDir + "/../../passwd": false, pinning.DropInDir + "/a/../../x": false,
		pinning.ConfigPath: false, "etc/crio/crio.conf.d/x": false, "/etc/crio/crio.conf.data": false, pinning.KubeletPath + "/x": false,
	} {
		if pinning.IsPinningPath(path) != want {
			t.Errorf("IsPinningPath(%s) is %v", path, !want)
		}
		if want = want || path == pinning.ConfigPath; pinning.IsRead(path) != want {
			t.Errorf("IsRead(%s) is %v", path, !want)
		}
	}
}

// TestShadowingIsNoError: a performance profile's drop-in replaces the empty one that clusters
// ship.
func TestShadowingIsNoError(t *testing.T) {
	w := workloads(t, "management=0-1")
	problems := check(map[string][]byte{
		pinning.DropInDir + "/01-workload-pinning-default.conf": pinning.DropIn(pinning.Workloads{"management": {}}),
		pinning.DropInDir + "/99-workload-pinning.conf":         pinning.DropIn(w),
		pinning.KubeletPath: pinning.KubeletFile(w),
	}, mustSet(t, "0-3"))
	if len(problems) != 1 || problems[0].Severity != problem.Warning {
		t.Errorf("problems %v, want one warning", problems)
	}
}

func TestAllowedAnnotations(t *testing.T) {
	w := workloads(t, "management=0-1")
	text := string(pinning.DropIn(w)) + "allowed_annotations = [\"io.kubernetes.cri-o.Devices\"]\n"
	files := map[string][]byte{pinning.DropInPath: []byte(text), pinning.KubeletPath: pinning.KubeletFile(w)}
	if problems := check(files, mustSet(t, "0-3")); len(problems) > 0 {
		t.Error(problems)
	}
}

// FuzzCheck: no text makes the check panic, and each problem is one line.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("[crio.runtime.workloads.management]\nactivation_annotation = \"x\"\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		files := map[string][]byte{pinning.DropInPath: in, pinning.KubeletPath: nil}
		for _, p := range check(files, pinning.CPUSet{}) {
			if p.Path == "" || strings.Contains(p.Message, "\n") {
				t.Errorf("%q: problem %+v", in, p)
			}
		}
	})
}
