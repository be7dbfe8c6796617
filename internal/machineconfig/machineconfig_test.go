package machineconfig_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/pinning"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// typical is what the machine-config server writes, with values from its documentation.
const typical = `{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1",
"metadata":{"name":"rendered-worker-0123","creationTimestamp":null,"annotations":{"a":"b"}},
"spec":{"osImageURL":"quay.io/os@` + digest + `","baseOSExtensionsContainerImage":"quay.io/ext@` + digest + `",
"config":{"ignition":{"version":"3.5.0"}},"kernelArguments":["nosmt","a=\"b c\""],"extensions":[],"fips":false,"kernelType":"default"}}`

func TestTypical(t *testing.T) {
	d, report := machineconfig.Parse([]byte(typical), machineconfig.Host{})
	want := &machineconfig.MachineConfig{Name: "rendered-worker-0123", Spec: machineconfig.Spec{OSImageURL: imageref.FromOrigin("quay.io/os@" + digest), KernelArguments: []string{"nosmt", `a="b c"`}}}
	if len(report) != 0 || d.Name != want.Name || d.OSImageURL != want.OSImageURL || !slices.Equal(d.KernelArguments, want.KernelArguments) || d.Entries != nil || d.FIPS || d.FromCluster {
		t.Errorf("%+v\n%s\nwant %+v", d, report, want)
	}
}

// host returns a host with the CPUs 0 to 3.
func host(t *testing.T) machineconfig.Host {
	t.Helper()
	set, err := pinning.ParseCPUSet("0-3")
	if err != nil {
		t.Fatal(err)
	}
	return machineconfig.Host{CPUs: pinning.CPUsOnly(set), Architecture: "amd64"}
}

// TestAccepted (P37): an Ignition config without files may have any version.
func TestAccepted(t *testing.T) {
	for _, in := range []string{
		`{"spec":{}}`,
		`{"spec":{"osImageURL":"","kernelArguments":null,"extensions":null,"kernelType":"","config":null}}`,
		`{"spec":{"config":{"ignition":{"version":"9.9.9"}}}}`,
		`{"spec":{"config":{"ignition":{"version":"2.2.0","config":{},"security":{"tls":{}},"timeouts":{}},"networkd":{},"passwd":{},"storage":{},"systemd":{}}}}`,
		`{"spec":{"kernelArguments":["fips=1"],"fips":true}}`,
	} {
		if d, report := machineconfig.Parse([]byte(in), host(t)); d == nil || len(report) != 0 {
			t.Errorf("%s: %s", in, report)
		}
	}
}

// TestTooManyArguments: arguments that a machine could not boot with are rejected by the
// machine's rule. An argument that is repeated counts once.
func TestTooManyArguments(t *testing.T) {
	for _, distinct := range []bool{true, false} {
		args := make([]string, sample.Rounds(100_000))
		for i := range args {
			if args[i] = `"nosmt"`; distinct {
				args[i] = fmt.Sprintf(`"a%d=1"`, i)
			}
		}
		d, report := machineconfig.Parse([]byte(`{"spec":{"kernelArguments":[`+strings.Join(args, ",")+`]}}`), host(t))
		if distinct != (d == nil) || distinct != strings.Contains(report.String(), "more than the 2047 that a kernel takes") {
			t.Errorf("distinct %v: %s", distinct, report)
		}
		if d == nil {
			continue
		}
		state := pivot.State{Booted: pivot.Deployment{Options: kargs.Line{"rw"}}}
		if _, err := pivot.Diff(state, pivot.Target{Kargs: kargs.Change{New: d.KernelArguments}}); err != nil {
			t.Errorf("the machine refuses: %v", err)
		}
	}
}

func TestWarnings(t *testing.T) {
	d, report := machineconfig.Parse([]byte(`{"spec":{"osImageURL":"quay.io/os:latest","kernelArguments":["audit=0"]}}`), host(t))
	if d == nil || len(report) != 2 || report.Failed() || report.Err("x") != nil {
		t.Errorf("%+v\n%s", d, report)
	}
}

// TestUnknownMember: members of a later API must not stop the first boot with this
// version.
func TestUnknownMember(t *testing.T) {
	const in = `{"spec":{"osImageStream":{"name":"rhel-10"},"kernelArgs":["quiet"],"later":null,"kernelArguments":["nosmt"]}}`
	d, report := machineconfig.Parse([]byte(in), host(t))
	const want = `warning: $.spec.osImageStream: unknown member; this version of pivot does nothing about it
warning: $.spec.kernelArgs: unknown member; this version of pivot does nothing about it
warning: $.spec.later: unknown member; this version of pivot does nothing about it`
	if d == nil || !reflect.DeepEqual(d.KernelArguments, []string{"nosmt"}) || report.String() != want {
		t.Errorf("%+v\n%s\nwant\n%s", d, report, want)
	}
}

// TestFromCluster: the machine-config operator's annotation marks what it rendered.
func TestFromCluster(t *testing.T) {
	const mark = `"machineconfiguration.openshift.io/generated-by-controller-version":"2d8f1b0"`
	for in, want := range map[string]bool{
		`{"metadata":{"annotations":{` + mark + `}},"spec":{}}`:                                                                true,
		`{"metadata":{"name":"rendered-worker-0123","annotations":{"machineconfiguration.openshift.io/other":"x"}},"spec":{}}`: false,
		`{"spec":{}}`: false,
	} {
		d, report := machineconfig.Parse([]byte(in), host(t))
		if d == nil || d.FromCluster != want {
			t.Errorf("%s: %+v\n%s", in, d, report)
		}
	}
}

// TestQuotedSpace: the machine-config daemon splits the boot entry at every space, so it
// never finds such an argument.
func TestQuotedSpace(t *testing.T) {
	const want = `warning: $.spec.kernelArguments[1]: "a=\"b c\"" holds a space: a cluster's machine-config daemon reports such an argument as missing, always`
	in := strings.Replace(typical, `"a":"b"`, `"machineconfiguration.openshift.io/generated-by-controller-version":"x"`, 1)
	if d, report := machineconfig.Parse([]byte(in), machineconfig.Host{}); d == nil || report.String() != want {
		t.Errorf("encapsulated: %s\nwant %s", report, want)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{``, "error: $: it is not JSON"},
		{`{"spec":`, "line 1, column 9: error: $: it is not JSON: unexpected EOF"},
		{"{\n  \"spec\": nonsense}", "line 2"},
		{`{"spec":{}} {}`, "something follows"},
		{`null`, "error: $: it is null"},
		{`[]`, "error: $: it is an array, not an object"},
		{`{}`, "error: $.spec: it is missing"},
		{`{"spec":[]}`, "error: $.spec: it is an array, not an object"},
		{`{"kind":"Pod","spec":{}}`, `error: $.kind: it is "Pod", not "MachineConfig"`},
		{`{"spec":{"osImageURL":1}}`, "error: $.spec.osImageURL: it is a number, not a string"},
		{`{"spec":{"osImageURL":"Not A Reference"}}`, "error: $.spec.osImageURL: "},
		{`{"spec":{"kernelArguments":"x"}}`, "error: $.spec.kernelArguments: it is a string, not an array"},
		{`{"spec":{"kernelArguments":["a",7]}}`, "error: $.spec.kernelArguments[1]: it is a number"},
		{`{"spec":{"kernelArguments":["ostree=/x"]}}`, `error: $.spec.kernelArguments[0]: "ostree=/x" names the deployment`},
		{`{"spec":{"kernelArguments":["a=\"b"]}}`, "error: $.spec.kernelArguments[0]: "},
		{`{"spec":{"kernelArguments":["a\u0000b"]}}`, "control character"},
		{`{"spec":{"kernelArguments":["fips=1"]}}`, "contradicts spec.fips"},
		{`{"spec":{"fips":"true"}}`, "error: $.spec.fips: it is a string, not true or false"},
		{`{"spec":{"extensions":["usbguard","wasm"]}}`, `error: $.spec.extensions[1]: there is no extension "wasm"; there are ipsec,`},
		{`{"spec":{"extensions":["kernel-devel"],"kernelType":"realtime"}}`, "error: $.spec.extensions: kernel-devel fits the default kernel only, not the kernel type realtime"},
		{`{"spec":{"kernelType":"realtim"}}`, `error: $.spec.kernelType: there is no kernel type "realtim"; there are default, realtime, 64k-pages`},
		{`{"spec":{"kernelType":"64k-pages"}}`, "error: $.spec.kernelType: 64k-pages exists on arm64 only, and this machine is amd64"},
		{`{"spec":{"kernelType":"realtime","baseOSExtensionsContainerImage":"Not A Reference"}}`, "error: $.spec.baseOSExtensionsContainerImage: "},
		{`{"spec":{"kernelarguments":["nosmt"]}}`, "error: $.spec.kernelarguments: unknown member; is kernelArguments meant?"},
		{`{"spec":{"FIPS":true}}`, "error: $.spec.FIPS: unknown member; is fips meant?"},
		{`{"spec":{"kernelArguments":["` + strings.Repeat("x", 1_024) + `","` + strings.Repeat("y", 1_023) + `"]}}`,
			"error: $.spec.kernelArguments: together they have 2048 bytes, more than the 2047 that a kernel takes"},
		{`{"spec":{"config":"x"}}`, "error: $.spec.config: it is a string, not an object"},
		{`{"spec":{"config":{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"admin"}],"groups":[{"name":"g"}]}}}}`, "error: $.spec.config.passwd.groups: not implemented"},
		{`{"spec":{"config":{"ignition":{"version":"3.2.0"},"storage":{"filesystems":[{"path":"/x","device":"/dev/x","format":"xfs"}]}}}}`, "error: $.spec.config.storage.filesystems: not implemented"},
		{`{"spec":{"config":{"ignition":{"version":"3.2.0"},"storage":{"directories":[{"path":"/var/run"}]}}}}`, "error: $.spec.config.storage.directories[0]: cannot apply /var/run"},
		{`{"spec":{"config":{"ignition":{"version":"3.2.0","config":{"merge":[{"source":"https://x"}]}}}}}`, "error: $.spec.config.ignition.config: not implemented"},
		{`{"spec":{"config":{"ignition":{"version":"3.3.0"},"kernelArguments":{"shouldExist":["x"]}}}}`, "error: $.spec.config.kernelArguments: not implemented"},
		{`{"spec":{"config":{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/etc/x"}]}}}}`, "error: $.spec.config.ignition.version: not implemented"},
		{config(`{"path":"/run/motd"}`), "error: $.spec.config.storage.files[0]: cannot apply /run/motd"},
		{config(`{"path":"relative"}`), "error: $.spec.config.storage.files[0].path: "},
		{config(pinned("0-9", "")), "the machine has no CPU 4-9, only 0-3"},
		{config(pinned("3-1", "")), "invalid range"},
		{config(pinned("0", `,"mode":2541`)), "error: $.spec.config.storage.files[0]: "},
		{config(pinned("0", `,"nonsense":1`)), "error: $.spec.config.storage.files[0].nonsense: unknown member"},
		{config(`{"path":"` + pinning.KubeletPath + `","contents":{"source":"https://x/y"}}`), "not implemented: contents from"},
		{config(`{"path":"` + pinning.KubeletPath + `","contents":{"source":"data:,x","verification":{"hash":"sha512-` + strings.Repeat("0", 128) + `"}}}`), "its content has the hash"},
		{config(`{"path":"` + pinning.KubeletPath + `","contents":{"source":"data:,x","compression":"gzip"}}`), "cannot decompress"},
		{`{"spec":{"config":{"ignition":"x"}}}`, "error: $.spec.config.ignition: it is a string, not an object"},
		{`{"spec":{"config":{"ignition":{"version":35}}}}`, "error: $.spec.config.ignition.version: it is a number, not a string"},
		{`{"spec":{"config":{"storage":{"files":{}}}}}`, "error: $.spec.config.storage.files: it is an object, not an array"},
		{`{"spec":{"config":{"systemd":""}}}`, "error: $.spec.config.systemd: it is a string, not an object"},
		{`{"spec":{"fips":false,"fips":true}}`, "error: $.spec.fips: it is there more than once"},
		{`{"spec":{"config":{"storage":{"files":[{},{"path":"/a","path":"/b"}]}}}}`, "error: $.spec.config.storage.files[1].path: it is there more than once"},
		{`{"spec":{"kernelArguments":[null]}}`, "error: $.spec.kernelArguments[0]: it is null"},
		{"{\"spec\":{\"kernelArguments\":[\"a=\xff\"]}}", "not UTF-8"},
		{strings.Replace(config(pinned("0", "")), "3.2.0", "3.6.0-experimental", 1), "error: $.spec.config.ignition.version: "},
	} {
		d, report := machineconfig.Parse([]byte(c.in), host(t))
		if d != nil || !strings.Contains(report.String(), c.want) {
			t.Errorf("%s\n%s\nwant %q", c.in, report, c.want)
		}
	}
}

// config returns a MachineConfig with files.
func config(files ...string) string {
	return `{"spec":{"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[` + strings.Join(files, ",") + `]}}}}`
}

// pinned returns the two pinning files of a CPU set, with additional members in both.
func pinned(set, more string) string {
	dropIn := fmt.Sprintf("[crio.runtime.workloads.management]\nactivation_annotation = \"a\"\nresources = { \"cpuset\" = \"%s\" }\n", set)
	kubelet := fmt.Sprintf(`{"management":{"cpuset":"%s"}}`, set)
	file := func(path, content string) string {
		return `{"path":"` + path + `","overwrite":true,"contents":{"source":"data:;base64,` +
			base64.StdEncoding.EncodeToString([]byte(content)) + `"}` + more + `}`
	}
	return file(pinning.DropInPath, dropIn) + "," + file(pinning.KubeletPath, kubelet)
}

func TestPinningFiles(t *testing.T) {
	for _, version := range []string{"3.0.0", "3.2.0", "3.5.0", "3.6.0"} {
		in := strings.Replace(config(pinned("0-1", "")), "3.2.0", version, 1)
		d, report := machineconfig.Parse([]byte(in), host(t))
		if d == nil || len(d.Entries) != 2 || len(report) != 0 {
			t.Errorf("version %s: %+v\n%s", version, d, report)
			continue
		}
		if f := d.Entries[1]; f.Path != pinning.KubeletPath || f.Mode != 0o644 || string(f.Content) != `{"management":{"cpuset":"0-1"}}` {
			t.Errorf("file %+v", f)
		}
	}
}

func TestOneReportForEverything(t *testing.T) {
	in := `{"spec":{"osImageURL":"No Reference","kernelArguments":["ostree=/x","a=\"b"],"fips":1,"kernelType":"x","extensions":["y"],
"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/boot/motd"}]},"passwd":{"users":[{"name":"admin"}]}}}}`
	_, report := machineconfig.Parse([]byte(in), host(t))
	if len(report) != 8 {
		t.Errorf("%d problems, want 8:\n%s", len(report), report)
	}
	err := report.Err("/etc/x.json")
	if fault.KindOf(err) != fault.BadInput || strings.Count(err.Error(), "\n") != 8 {
		t.Errorf("error %v", err)
	}
}

// TestIdentityIsReportedWhole: an error in kind does not hide one in apiVersion.
func TestIdentityIsReportedWhole(t *testing.T) {
	_, report := machineconfig.Parse([]byte(`{"kind":"Pod","apiVersion":"v1","spec":{"kernelArguments":"x"}}`), host(t))
	const want = `error: $.kind: it is "Pod", not "MachineConfig"
error: $.apiVersion: it is "v1", not "machineconfiguration.openshift.io/v1"
error: $.spec.kernelArguments: it is a string, not an array`
	if report.String() != want {
		t.Errorf("report is\n%s\nwant\n%s", report, want)
	}
}

// TestReportKeepsItsLines: text of the input can neither forge a line of the report nor flood
// the console.
func TestReportKeepsItsLines(t *testing.T) {
	for _, in := range []string{
		`{"spec":{"x\nerror: $.forged: y":1}}`,
		config(`{"path":"/run/mo\ntd"}`),
		`{"spec":{"` + strings.Repeat("x", 1<<20) + `":1}}`,
		`{"spec":{"fips":true,"kernelArguments":["fips=` + strings.Repeat("x", 1_500) + `"]}}`,
		`{"spec":{"kernelArguments":["` + strings.Repeat("x", 1<<20) + `"]}}`,
		`{"spec":{"osImageURL":"a/b:\u001b[2J"}}`,
	} {
		_, report := machineconfig.Parse([]byte(in), host(t))
		text := report.String()
		if len(report) != 1 || strings.ContainsAny(text, "\n\x1b") || len(text) > 1200 {
			t.Errorf("%.60s: %d problems in %d bytes: %.300q", in, len(report), len(text), text)
		}
	}
}

func TestShadowedDropInIsAWarning(t *testing.T) {
	file := func(name, set string) string {
		text := "[crio.runtime.workloads.management]\nactivation_annotation = \"a\"\nresources = { \"cpuset\" = \"" + set + "\" }\n"
		return `{"path":"` + pinning.DropInDir + "/" + name + `","contents":{"source":"data:;base64,` + base64.StdEncoding.EncodeToString([]byte(text)) + `"}}`
	}
	in := config(pinned("0-1", ""), file("01-workload-pinning-default.conf", ""))
	d, report := machineconfig.Parse([]byte(in), host(t))
	if d == nil || len(report) != 1 || !strings.HasPrefix(report.String(), "warning: $.spec.config.storage.files[2]: ") {
		t.Errorf("%+v\n%s", d, report)
	}
}

func TestHashOfEitherCase(t *testing.T) {
	text := `{"management":{"cpuset":"0-1"}}`
	sum := fmt.Sprintf("sha256-%X", sha256.Sum256([]byte(text)))
	in := strings.Replace(config(pinned("0-1", "")), `"contents":{"source":"data:;base64,`+base64.StdEncoding.EncodeToString([]byte(text))+`"`,
		`"contents":{"verification":{"hash":"`+sum+`"},"source":"data:;base64,`+base64.StdEncoding.EncodeToString([]byte(text))+`"`, 1)
	if d, report := machineconfig.Parse([]byte(in), host(t)); d == nil || !strings.Contains(in, sum) {
		t.Error(report)
	}
}

// TestGolden compares the reports for the files in testdata with the golden files beside them.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		in, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".report")
		if err != nil {
			t.Fatal(err)
		}
		if _, report := machineconfig.Parse(in, host(t)); report.String()+"\n" != string(want) {
			t.Errorf("%s: report is\n%s\nwant\n%s", file, report, want)
		}
	}
}

func FuzzParseEncapsulated(f *testing.F) {
	f.Add([]byte(typical))
	f.Add([]byte(config(pinned("0-1", ""))))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, report := machineconfig.Parse(in, machineconfig.Host{})
		if (d == nil) != report.Failed() {
			t.Errorf("desired %v, report %s", d, report)
		}
	})
}

// TestUnusedImage: an unusable image of extensions is refused if something is installed from it.
// Otherwise it is only warned of: it must not keep a machine from its first boot.
func TestUnusedImage(t *testing.T) {
	for spec, want := range map[string]string{
		`{"baseOSExtensionsContainerImage":"foo bar"}`:                                                "warning: $.spec.baseOSExtensionsContainerImage: ",
		`{"baseOSExtensionsContainerImage":"foo bar","kernelType":"default"}`:                         "warning: $.spec.baseOSExtensionsContainerImage: ",
		`{"baseOSExtensionsContainerImage":"foo bar","extensions":["usbguard"]}`:                      "error: $.spec.baseOSExtensionsContainerImage: ",
		`{"baseOSExtensionsContainerImage":"quay.io/ext:1"}`:                                          "",
		`{"baseOSExtensionsContainerImage":"quay.io/ext:1","extensions":["usbguard"]}`:                "is not pinned by a digest",
		`{"baseOSExtensionsContainerImage":"foo bar","kernelType":"realtime","osImageURL":"foo bar"}`: "error: $.spec.osImageURL: ",
	} {
		d, report := machineconfig.Parse([]byte(`{"spec":`+spec+`}`), machineconfig.Host{})
		if (d == nil) != strings.Contains(want, "error") || !strings.Contains(report.String(), want) || want == "" && len(report) > 0 {
			t.Errorf("%s: %s, want %q", spec, report, want)
		}
	}
}
