package pinning_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// operatorDropIn and operatorKubelet return the two files as the node tuning operator writes
// them: with an empty first line.
func operatorDropIn(t *testing.T, set string) string {
	return "\n" + string(pinning.DropIn(pinning.Workloads{pinning.Management: mustSet(t, set)}))
}

func operatorKubelet(t *testing.T, set string) string {
	return "\n" + string(pinning.KubeletFile(pinning.Workloads{pinning.Management: mustSet(t, set)}))
}

// TestNodeTuningOperator: the operator's files are accepted even if kubelet's file differs from
// CRI-O's, because kubelet only checks that its file exists.
func TestNodeTuningOperator(t *testing.T) {
	const clusters, profiles = dir + "/" + pinning.ClusterDropIn, dir + "/" + pinning.ProfileDropIn
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // substrings of all problems, in order
		set   string   // effective set of the management pods
	}{
		{"all nodes, no profile yet", map[string]string{clusters: operatorDropIn(t, ""), pinning.KubeletPath: operatorKubelet(t, "")},
			[]string{"its set is empty, so its pods run on all CPUs"}, ""},
		{"a profile", map[string]string{
			clusters: operatorDropIn(t, ""), profiles: operatorDropIn(t, "0-1"), pinning.KubeletPath: operatorKubelet(t, "0-1"),
		}, []string{"is replaced by that of " + profiles}, "0-1"},
		// The pool's MachineConfig restores the empty kubelet file over that of the profile,
		// which is for the role worker.
		{"a custom pool below a profile for worker", map[string]string{
			clusters: operatorDropIn(t, ""), profiles: operatorDropIn(t, "2-3"), pinning.KubeletPath: operatorKubelet(t, ""),
		}, []string{"is replaced by that of " + profiles, "CPU 0, which the machine boots on"}, "2-3"},
		{"a single node of the older kind", map[string]string{pinning.KubeletPath: strings.TrimPrefix(operatorKubelet(t, ""), "\n")},
			[]string{`workload "management": no CRI-O drop-in defines it, so its pods run on all CPUs`}, ""},
		{"kubelet's file without content", map[string]string{profiles: operatorDropIn(t, "0-1"), pinning.KubeletPath: ""}, nil, "0-1"},
		{"kubelet's file without workloads", map[string]string{profiles: operatorDropIn(t, "0-1"), pinning.KubeletPath: "{}"}, nil, "0-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string][]byte{}
			for path, text := range c.files {
				files[path] = []byte(text)
			}
			r := pinning.Inspect(pinning.Input{Files: files, Machine: server(t)})
			if got := texts(r.Problems); len(got) != len(c.want) || slices.ContainsFunc(c.want, func(want string) bool {
				return !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) })
			}) {
				t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if set := r.Workloads[pinning.Management].String(); set != c.set || !slices.Contains(r.Files, pinning.KubeletPath) {
				t.Errorf("management runs on %q, want %q; files %v", set, c.set, r.Files)
			}
			// The same for the files of a MachineConfig alone.
			if problems := append(r.Problems, check(files, mustSet(t, "0-7"))...); problems.Failed() {
				t.Errorf("refused:\n%s", strings.Join(texts(problems), "\n"))
			}
		})
	}
}

// TestKubeletFileThatContradicts: a set in kubelet's file that differs from CRI-O's is an
// error.
func TestKubeletFileThatContradicts(t *testing.T) {
	for _, c := range []struct{ dropIn, kubelet, want string }{
		{operatorDropIn(t, "0-1"), operatorKubelet(t, "2-3"), `its CPUs "2-3" differ from "0-1"`},
		{operatorDropIn(t, ""), operatorKubelet(t, "0-1"), `its CPUs "0-1" differ from ""`},
		{builder, operatorKubelet(t, "0-1"), "no CRI-O drop-in defines it"},
		{operatorDropIn(t, "0-1"), `{"infra": {"cpuset": "2"}, "management": {"cpuset": "0-1"}}`, `"infra": no CRI-O drop-in defines it`},
		{operatorDropIn(t, "0-1"), `{"management": {"cpuset": "3-1"}}`, "invalid range"},
		{operatorDropIn(t, "0-1"), `{"management": `, "cannot parse the kubelet file"},
	} {
		r := pinning.Inspect(pinning.Input{Files: map[string][]byte{dir + "/50": []byte(c.dropIn), pinning.KubeletPath: []byte(c.kubelet)}})
		if !slices.ContainsFunc(r.Problems, func(p problem.Problem) bool {
			return p.Severity == problem.Error && strings.Contains(p.Message, c.want)
		}) {
			t.Errorf("problems %v, want %q", texts(r.Problems), c.want)
		}
	}
}

// TestInfraContainers: CRI-O runs the sandboxes of all pods, and its own processes, on
// infra_ctr_cpuset.
func TestInfraContainers(t *testing.T) {
	infra := func(set string) string { return "[crio.runtime]\ninfra_ctr_cpuset = \"" + set + "\"\n" }
	const runtimes = dir + "/99-runtimes.conf"
	for _, c := range []struct {
		name, text, line string
		want             []string
	}{
		{"as a profile has it", infra("0-1"), "", nil},
		{"spelled otherwise", infra("1,0"), "", nil},
		{"none", infra(""), "", nil},
		{"other CPUs", infra("0-3"), "", []string{`warning: infra_ctr_cpuset is "0-3", but the CPUs of workload "management" are "0-1"`}},
		{"no set", infra("3-1"), "", []string{"error: infra_ctr_cpuset: cannot parse CPU set"}},
		{"no text", "[crio.runtime]\ninfra_ctr_cpuset = 2\n", "", []string{"error: cannot parse the CRI-O drop-in: toml"}},
		{"CPUs that are not there", infra("0-1,9"), "", []string{"error: infra_ctr_cpuset: the machine has no CPU 9, only 0-7", "warning: infra_ctr_cpuset is"}},
		{"CPUs that will be off", infra("0-1,7"), "nr_cpus=6", []string{"error: infra_ctr_cpuset: CPU 7 will be offline after the reboot: nr_cpus=6", "warning: infra_ctr_cpuset is"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := pinning.Inspect(pinning.Input{Files: with(pinned(t, "0-1"), runtimes, c.text), Machine: server(t), Line: kargs.Split(c.line)})
			got := texts(r.Problems)
			if len(got) != len(c.want) {
				t.Fatalf("problems\n%s", strings.Join(got, "\n"))
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("problem %q, want %q", got[i], want)
				}
			}
		})
	}
	// Settings are independent: a later drop-in without the key changes nothing.
	files := with(with(pinned(t, "0-1"), runtimes, infra("5")), dir+"/99-z", "[crio.runtime]\nlog_level = \"info\"\n")
	if got := texts(pinning.Inspect(pinning.Input{Files: files}).Problems); len(got) != 1 || !strings.Contains(got[0], `infra_ctr_cpuset is "5"`) {
		t.Errorf("an unrelated later drop-in: %v", got)
	}
	files = with(files, dir+"/99-z", infra("0-1"))
	if got := texts(pinning.Inspect(pinning.Input{Files: files}).Problems); len(got) != 0 {
		t.Errorf("a later drop-in with the right set: %v", got)
	}
}

// TestAllowedAnnotationsAreKnown: CRI-O does not start with an annotation that it does not
// know.
func TestAllowedAnnotationsAreKnown(t *testing.T) {
	for annotation, known := range map[string]bool{
		"io.kubernetes.cri-o.userns-mode": true, "userns-mode.crio.io": true, "cpu-quota.crio.io": true,
		"io.kubernetes.cri.rdt-class": true, "run.oci.": true,
		"io.kubernetes.cri-o.usernsmode": false, "run.oci.systemd": false, "": false,
	} {
		text := operatorDropIn(t, "0-1") + "allowed_annotations = [\"" + annotation + "\"]\n"
		files := with(pinned(t, "0-1"), pinning.DropInPath, text)
		problems := append(pinning.Inspect(pinning.Input{Files: files}).Problems, check(files, pinning.CPUSet{})...)
		if known && len(problems) > 0 || !known && len(problems) != 2 || problems.Failed() {
			t.Errorf("%q: %v", annotation, texts(problems))
		}
		for _, p := range problems {
			if !strings.Contains(p.Message, `allowed_annotations has "`+annotation+`"`) {
				t.Errorf("%q: %s", annotation, p.Message)
			}
		}
	}
}
