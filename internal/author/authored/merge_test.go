package authored_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/pinning"
	"machine-pivot/test/tools/sample"
)

// mc returns a MachineConfig of a role with this spec, in YAML flow style.
func mc(t testing.TB, role, name, spec string) *authored.MachineConfig {
	t.Helper()
	all, report := authored.Decode(name, fmt.Appendf(nil, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
"metadata":{"name":%q,"labels":{"machineconfiguration.openshift.io/role":%q}},"spec":%s}`, name, role, spec), rules())
	if len(all) != 1 || report.Failed() {
		t.Fatalf("%s\n%s", spec, report)
	}
	return all[0]
}

func merge(t testing.TB, base authored.Images, all ...*authored.MachineConfig) *authored.MachineConfig {
	t.Helper()
	merged, err := authored.Merge(all, base)
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func TestMergeOrder(t *testing.T) {
	merged := merge(t, authored.Images{},
		mc(t, "infra", "01-infra", `{"kernelArguments":["i"],"kernelType":"realtime"}`),
		mc(t, "worker", "99-worker", `{"kernelArguments":["z","z"],"extensions":["usbguard"],"kernelType":"64k-pages"}`),
		mc(t, "worker", "10-worker", `{"kernelArguments":["b a"],"extensions":["usbguard"],"fips":true}`),
		mc(t, "worker", "9-worker", `{"kernelArguments":["last of the workers"],"kernelType":"default"}`),
	)
	s := merged.Spec
	if want := []string{"b a", "last of the workers", "z", "z", "i"}; !reflect.DeepEqual(s.KernelArguments, want) {
		t.Errorf("kernel arguments %q, want %q", s.KernelArguments, want)
	}
	if want := []string{"usbguard", "usbguard"}; !reflect.DeepEqual(s.Extensions, want) {
		t.Errorf("extensions %q", s.Extensions)
	}
	if !s.FIPS || s.KernelType != "realtime" {
		t.Errorf("fips %v, kernelType %s", s.FIPS, s.KernelType)
	}
}

func TestMergeNothing(t *testing.T) {
	if _, err := authored.Merge(nil, authored.Images{}); fault.KindOf(err) != fault.BadInput {
		t.Error(err)
	}
	const want = `{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":""},` +
		`"spec":{"osImageURL":"","baseOSExtensionsContainerImage":"","config":{"ignition":{"version":"3.5.0"}},"kernelArguments":[],"extensions":[],"fips":false,"kernelType":"default"}}`
	if got, err := merge(t, authored.Images{}, mc(t, "worker", "a", `{}`)).MarshalJSON(); string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

func TestMergeImages(t *testing.T) {
	const at = "@" + digest
	user := mc(t, "worker", "50-user", `{"osImageURL":"quay.io/user`+at+`"}`)
	generated := mc(t, "worker", "99-generated", `{"osImageURL":"quay.io/old`+at+`","baseOSExtensionsContainerImage":"quay.io/oldext`+at+`"}`)
	generated.Annotations = map[string]string{"machineconfiguration.openshift.io/generated-by-controller-version": "abc"}
	merged := merge(t, authored.Images{OS: imageref.FromOrigin("quay.io/base" + at), Extensions: imageref.FromOrigin("quay.io/ext" + at)}, user, generated)
	if merged.Spec.OSImageURL.String() != "quay.io/user"+at || merged.Spec.ExtensionsImage.String() != "quay.io/ext"+at {
		t.Errorf("%+v", merged.Spec)
	}
	if merged.Annotations["machineconfiguration.openshift.io/os-image-url-overridden"] != "true" {
		t.Error(merged.Annotations)
	}
	if plain := merge(t, authored.Images{OS: imageref.FromOrigin("quay.io/base" + at)}, generated); plain.Annotations != nil {
		t.Error(plain.Annotations)
	}
}

func TestSelect(t *testing.T) {
	all := []*authored.MachineConfig{mc(t, "worker", "w", `{}`), mc(t, "master", "m", `{}`), mc(t, "infra", "i", `{}`), {Name: "none"}}
	for role, want := range map[string]string{"worker": "w", "master": "m", "infra": "w i", "arbiter": "", "gpu": "w"} {
		var names []string
		for _, chosen := range authored.Select(all, role) {
			names = append(names, chosen.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", role, got, want)
		}
	}
}

// files returns the spec of a MachineConfig with files.
func files(list ...string) string {
	return `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[` + strings.Join(list, ",") + `]}}}`
}

// Only files with contents get overwrite: Ignition refuses it for others.
func TestOverwrite(t *testing.T) {
	a := mc(t, "worker", "a", files(`{"path":"/etc/a","contents":{"source":"data:,x"}}`, `{"path":"/etc/b","mode":384}`,
		`{"path":"/etc/c","overwrite":false,"contents":{"source":"data:,x"}}`))
	merged := merge(t, authored.Images{}, a)
	f := merged.Spec.Config.Storage.Files
	if f[0].Overwrite == nil || !*f[0].Overwrite || f[1].Overwrite != nil || *f[2].Overwrite {
		t.Errorf("%+v", f)
	}
	if report := authored.Check(merged, rules()); len(report) > 0 {
		t.Error(report)
	}
	if a.Spec.Config.Storage.Files[0].Overwrite != nil {
		t.Error("merging changed what it merged")
	}
}

// TestRenderedName: the names were computed by the machine-config operator's own code. The
// second input has a config of version 2, which is reordered.
func TestRenderedName(t *testing.T) {
	for want, specs := range map[string][]string{
		"rendered-worker-f2324011d8e25d12c389b40290ee3f10": {
			files(`{"path":"/root/myfile","mode":384,"contents":{"source":"data:,%20"}}`), `{"kernelArguments":["loglevel=7"]}`,
		},
		"rendered-worker-8b0ce1ad68606a69b140ef744bbdc9f8": {
			`{"config":{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k1"]},{"name":"core","sshAuthorizedKeys":["k2","k2"]}]},
"storage":{"files":[{"filesystem":"root","path":"/etc/a","mode":420,"contents":{"source":"data:,1"}},
 {"filesystem":"root","path":"/etc/b","mode":420,"contents":{"source":"data:,2"}},
 {"filesystem":"root","path":"/etc/a","mode":384,"contents":{"source":"data:,3"}}]},
"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=multi-user.target\n"},{"name":"b.service","enabled":false}]}}}`,
			files(`{"path":"/etc/b","contents":{"source":"data:,4"}}`, `{"path":"/etc/c","contents":{"source":"data:,5"}}`),
		},
	} {
		var all []*authored.MachineConfig
		for i, spec := range specs {
			all = append(all, mc(t, "worker", fmt.Sprint(i), spec))
		}
		merged := merge(t, authored.Images{OS: imageref.FromOrigin("quay.io/os@sha256:aaa"), Extensions: imageref.FromOrigin("quay.io/ext@sha256:bbb")}, all...)
		if err := merged.Render("worker"); err != nil {
			t.Fatal(err)
		}
		if merged.Name != want {
			text, _ := merged.YAML()
			t.Errorf("%s, want %s\n%s", merged.Name, want, text)
		}
	}
}

// The input order does not matter.
func TestRenderIsDeterministic(t *testing.T) {
	var all []*authored.MachineConfig
	for i := range 20 {
		role := []string{"worker", "infra"}[i%2]
		all = append(all, mc(t, role, fmt.Sprintf("%02d-%s", i, role), files(
			fmt.Sprintf(`{"path":"/etc/shared","mode":%d}`, i), fmt.Sprintf(`{"path":"/etc/own%d","contents":{"source":"data:,%d"}}`, i, i))))
	}
	name := func() string {
		merged := merge(t, authored.Images{}, all...)
		if err := merged.Render("infra"); err != nil {
			t.Fatal(err)
		}
		return merged.Name
	}
	first := name()
	for range 50 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := name(); got != first {
			t.Fatalf("%s, then %s", first, got)
		}
	}
}

// Merging a part first changes nothing, as long as the part keeps its place in the order and no
// file sets overwrite.
func TestMergeIsAssociative(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pick := func(options ...string) string { return options[r.IntN(len(options))] }
	random := func(name string) *authored.MachineConfig {
		members := []string{`"fips":` + pick("true", "false", "false")}
		members = append(members, `"kernelType":`+pick(`""`, `"default"`, `"realtime"`, `"64k-pages"`))
		members = append(members, `"kernelArguments":[`+pick(``, `"a=1"`, `"b","b c"`)+`]`)
		members = append(members, `"extensions":[`+pick(``, `"usbguard"`, `"ipsec","usbguard"`)+`]`)
		members = append(members, `"osImageURL":"`+pick("", "quay.io/a@"+digest, "quay.io/b@"+digest)+`"`)
		if r.IntN(4) > 0 {
			members = append(members, `"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[`+
				pick(`{"path":"/etc/a"}`, `{"path":"/etc/a","mode":384}`, `{"path":"/etc/a","contents":{"source":"data:,`+pick("1", "2")+`"}}`)+`,`+
				pick(`{"path":"/etc/b"}`, `{"path":"/etc/c","contents":{"source":"data:,x"}}`)+`]}}`)
		}
		return mc(t, "worker", name, "{"+strings.Join(members, ",")+"}")
	}
	base := authored.Images{OS: imageref.FromOrigin("quay.io/base@" + digest)}
	part := func(name string, all ...*authored.MachineConfig) *authored.MachineConfig {
		merged := merge(t, authored.Images{}, all...)
		merged.Name, merged.Labels = name, all[0].Labels
		return merged
	}
	for range sample.Rounds(300) {
		a, b, c := random("1"), random("2"), random("3")
		whole := merge(t, base, a, b, c)
		for _, other := range []*authored.MachineConfig{merge(t, base, part("1", a, b), c), merge(t, base, a, part("2", b, c))} {
			w, _ := whole.YAML()
			if o, _ := other.YAML(); string(o) != string(w) {
				t.Fatalf("all at once\n%s\na part first\n%s", w, o)
			}
		}
	}
}

// arguments returns a spec with a kernel argument in its Ignition config.
func arguments(argument string) string {
	return `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["` + argument + `"]}}}`
}

func TestCheckMerged(t *testing.T) {
	long := strings.Repeat("x", 1100)
	for _, c := range []struct {
		want  string
		specs []string
	}{
		{"", []string{`{"fips":true}`, `{"kernelArguments":["fips=1"]}`}},
		{"warning: $.spec.kernelType: without baseOSExtensionsContainerImage", []string{`{"kernelType":"realtime"}`}},
		{"warning: $.spec.extensions: without baseOSExtensionsContainerImage", []string{`{"extensions":["usbguard"]}`}},
		{"warning: $.spec.kernelArguments: isolcpu: is isolcpus meant?", []string{`{"kernelArguments":["isolcpu=2-3"]}`}},
		{"warning: $.spec.kernelArguments: isolcpus=2-5 and nohz_full=4-5 describe one partition", []string{`{"kernelArguments":["isolcpus=2-5"]}`, `{"kernelArguments":["nohz_full=4-5"]}`}},
		{`error: $.spec.kernelArguments[0]: fips="0" contradicts spec.fips, which is true`, []string{`{"kernelArguments":["fips=0"]}`, `{"fips":true}`}},
		{"error: $.spec.extensions: kernel-devel fits the default kernel only", []string{`{"extensions":["kernel-devel"]}`, `{"kernelType":"realtime"}`}},
		{"error: $.spec.kernelArguments: together they have 2205 bytes", []string{`{"kernelArguments":["a=` + long + `"]}`, `{"kernelArguments":["b=` + long + `"]}`}},
		{`error: $.spec.config.kernelArguments.shouldExist[0]: fips="0" contradicts spec.fips, which is true`, []string{arguments("fips=0"), `{"fips":true}`}},
		{"error: $.spec.kernelArguments: together they have 2205 bytes", []string{arguments("a=" + long), `{"kernelArguments":["b=` + long + `"]}`}},
		{"error: $.spec.kernelArguments: smt-enabled asks", []string{arguments("smt-enabled=on"), `{"kernelArguments":["nosmt"]}`}},
		{"error: $.spec.kernelArguments: smt-enabled asks", []string{`{"kernelArguments":["smt-enabled=on"]}`, `{"kernelArguments":["mitigations=auto,nosmt"]}`}},
		{"error: $.spec.config.storage.files[0]: file path includes link in config", []string{files(`{"path":"/etc/a/b","contents":{"source":"data:,x"}}`), `{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/a","target":"/c"}]}}}`}},
		{"warning: $.spec.kernelArguments: nosmt switches the second threads of all cores off", []string{files(pinned("0-1", "")), `{"kernelArguments":["nosmt"]}`}},
		{"error: $.spec.config.storage.files[1]: file /etc/kubernetes/openshift-workload-pinning: workload \"management\": its CPUs \"2\" differ",
			[]string{files(pinned("0-1", "")), files(strings.TrimPrefix(pinned("2", ""), pinned("2", "")[:strings.Index(pinned("2", ""), `},{`)+2]))}},
		{"error: $.spec.config.storage.files[0]: /etc/a/b would be below /etc/a, which is a file", []string{files(`{"path":"/etc/a/b"}`), files(`{"path":"/etc/a"}`)}},
		{"error: $.spec.config.storage.files[0].path: path conflicts with systemd unit", []string{files(`{"path":"/etc/systemd/system/a.service"}`), `{"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service","contents":"[Unit]"}]}}}`}},
		{"/var/opt/x is asked for twice", []string{files(`{"path":"/opt/x"}`), `{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/var/opt/x","target":"/c"}]}}}`}},
		{"error: $.spec.config.storage.files[0]: pivot could not read its file firstboot.conf: ", []string{files(`{"path":"/etc/pivot/firstboot.conf","contents":{"source":"data:,reboot-method%3Dkexecc"}}`)}},
		{"error: $: it has 16", []string{files(`{"path":"/etc/a","contents":{"source":"data:,` + strings.Repeat("x", 1_600_000) + `"}}`)}},
		{"warning: $: it has 14", []string{files(`{"path":"/etc/a","contents":{"source":"data:,` + strings.Repeat("x", 1_400_000) + `"}}`)}},
	} {
		var all []*authored.MachineConfig
		for i, spec := range c.specs {
			all = append(all, mc(t, "worker", fmt.Sprint("mc", i), spec))
		}
		report := authored.Check(merge(t, authored.Images{}, all...), rules())
		if c.want == "" && len(report) > 0 || !strings.Contains(report.String(), c.want) {
			t.Errorf("%.100q\n%s\nwant %s", c.specs, report, c.want)
		}
	}
}

// Time and memory grow linearly with the input. The test counts allocations, which are the same on
// every machine and dominate both.
func TestMergeGrowsLinearly(t *testing.T) {
	if testing.Short() {
		t.Skip("merges a thousand configs")
	}
	allocations := func(configs, files int) float64 {
		all := many(t, configs, files)
		return testing.AllocsPerRun(1, func() {
			if _, err := authored.Merge(all, authored.Images{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	one, hundred, thousand, large := allocations(1, 10), allocations(100, 10), allocations(1000, 10), allocations(1, 10_000)
	t.Logf("1x10: %.0f, 100x10: %.0f, 1000x10: %.0f, 1x10000: %.0f", one, hundred, thousand, large)
	if hundred > 150*one || thousand > 11*hundred || large > thousand {
		t.Errorf("1x10: %.0f, 100x10: %.0f, 1000x10: %.0f, 1x10000: %.0f", one, hundred, thousand, large)
	}
}

// many returns MachineConfigs with the given number of files each, plus one file that all of them
// share.
func many(t testing.TB, configs, each int) []*authored.MachineConfig {
	t.Helper()
	var all []*authored.MachineConfig
	for i := range configs {
		list := []string{`{"path":"/etc/shared","mode":420}`}
		for j := range each {
			list = append(list, fmt.Sprintf(`{"path":"/etc/d/%d-%d","mode":420,"contents":{"source":"data:,file%%20%d"}}`, i, j, j))
		}
		all = append(all, mc(t, "worker", fmt.Sprintf("%04d", i), files(list...)))
	}
	return all
}

func BenchmarkMerge(b *testing.B) {
	for _, c := range []struct{ configs, files int }{{1, 10}, {100, 10}, {1000, 10}, {1, 10_000}} {
		b.Run(fmt.Sprintf("%dx%d", c.configs, c.files), func(b *testing.B) {
			all := many(b, c.configs, c.files)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := authored.Merge(all, authored.Images{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.configs*c.files), "ns/file")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var list []string
			for j := range n {
				list = append(list, fmt.Sprintf(`{"path":"/etc/d/%d","mode":420,"contents":{"source":"data:,file%%20%d"}}`, j, j))
			}
			in := fmt.Appendf(nil, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"a"},"spec":%s}`, files(list...))
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if _, report := authored.Decode("a.json", in, rules()); report.Failed() {
					b.Fatal(report)
				}
			}
		})
	}
}

// TestNotFromCluster: a MachineConfig that is rendered here does not claim to come from a
// cluster.
func TestNotFromCluster(t *testing.T) {
	ours := mc(t, "worker", "00-worker", `{"kernelArguments":["nosmt"]}`)
	ours.Annotations = map[string]string{"machineconfiguration.openshift.io/generated-by-controller-version": "2d8f1b0"}
	text, err := merge(t, authored.Images{}, ours).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if d, report := machineconfig.Parse(text, machineconfig.Host{}); d == nil || d.FromCluster {
		t.Errorf("%+v\n%s", d, report)
	}
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// pinned returns the two files of a CPU set, both with additional members.
func pinned(set, more string) string {
	file := func(path, content string) string {
		return `{"path":"` + path + `","overwrite":true,"contents":{"source":"data:;base64,` +
			base64.StdEncoding.EncodeToString([]byte(content)) + `"}` + more + `}`
	}
	return file(pinning.DropInPath, "[crio.runtime.workloads.management]\nactivation_annotation = \"a\"\nresources = { \"cpuset\" = \""+set+"\" }\n") +
		"," + file(pinning.KubeletPath, `{"management":{"cpuset":"`+set+`"}}`)
}
