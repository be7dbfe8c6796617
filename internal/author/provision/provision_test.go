package provision_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/kargs"
)

// rendered returns the MachineConfig of a worker with this spec.
func rendered(t testing.TB, spec string) *authored.MachineConfig {
	t.Helper()
	all, report := authored.Decode("a.json", []byte(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
"metadata":{"name":"a","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":`+spec+`}`), authored.Rules{KernelArguments: kargs.DefaultPolicy()})
	if len(all) != 1 || report.Failed() {
		t.Fatalf("%s\n%s", spec, report)
	}
	merged, err := authored.Merge(all, authored.Images{OS: imageref.FromOrigin("quay.io/os@sha256:" + strings.Repeat("a", 64))})
	if err == nil {
		err = merged.Render("worker")
	}
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

// written is a served config, as far as the test needs it.
type written struct {
	Ignition struct{ Version string }
	Storage  struct {
		Files []struct {
			Path, Filesystem string
			Mode             int
			Overwrite        *bool
			Contents         struct{ Source, Compression string }
		}
	}
}

const spec = `{"kernelArguments":["nosmt","a=\"b c\""],"extensions":["usbguard"],"config":{"ignition":{"version":"3.4.0"},
"storage":{"files":[{"path":"/etc/motd","mode":420,"contents":{"source":"data:,hi"}}]},
"systemd":{"units":[{"name":"kubelet.service","dropins":[{"name":"20-own.conf","contents":"[Unit]\nDescription=x\n"}]}]}}}`

// The encapsulated file is the last one, as the server writes it: one line, all seven members, an
// empty config with only its version.
func TestEncapsulatedInEveryVersion(t *testing.T) {
	m := rendered(t, spec)
	for _, version := range authored.IgnitionVersions() {
		raw, report := provision.Config(m, version)
		if len(report) > 0 {
			t.Errorf("%s: %s", version, report)
			continue
		}
		var w written
		if err := json.Unmarshal(raw, &w); err != nil || w.Ignition.Version != version || len(w.Storage.Files) != 3 {
			t.Fatalf("%s: %v\n%s", version, err, raw)
		}
		last := w.Storage.Files[2]
		text, err := url.PathUnescape(strings.TrimPrefix(last.Contents.Source, "data:,"))
		want := `{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":"` + m.Name +
			`"},"spec":{"osImageURL":"quay.io/os@sha256:` + strings.Repeat("a", 64) +
			`","baseOSExtensionsContainerImage":"","config":{"ignition":{"version":"` + version + `"}},"kernelArguments":["nosmt","a=\"b c\""],"extensions":["usbguard"],"fips":false,"kernelType":"default"}}`
		if err != nil || text != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", version, err, text, want)
		}
		if last.Path != "/etc/ignition-machine-config-encapsulated.json" || last.Mode != 420 || last.Contents.Compression != "" || !strings.HasPrefix(last.Contents.Source, "data:,%7B%22kind") {
			t.Errorf("%s: %+v", version, last)
		}
		if version[0] == '3' && (last.Overwrite == nil || !*last.Overwrite) || version[0] == '2' && last.Filesystem != "root" {
			t.Errorf("%s: %+v", version, last)
		}
		if a := w.Storage.Files[1]; a.Path != "/etc/machine-config-daemon/node-annotations.json" || !strings.Contains(a.Contents.Source, "currentConfig%22%3A%22"+m.Name) {
			t.Errorf("%s: %+v", version, a)
		}
		if parsed, problems := authored.ParseIgnition(raw); len(problems) > 0 || len(parsed.Systemd.Units) != 1 {
			t.Errorf("%s: %v\n%s", version, problems, raw)
		}
	}
}

// A first boot can read the encapsulated MachineConfig.
func TestRoundTrip(t *testing.T) {
	m := rendered(t, `{"kernelArguments":["nosmt","a=\"b c\""],"fips":true}`)
	raw, report := provision.Config(m, "3.2.0")
	if report != nil {
		t.Fatal(report)
	}
	config, _ := authored.ParseIgnition(raw)
	text, err := ignition.Content(config.Storage.Files[1].Contents, ignition.NewRoom(1<<20, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	desired, report := machineconfig.Parse(text, machineconfig.Host{})
	if desired == nil || len(report) > 0 || desired.Name != m.Name || !desired.FIPS || fmt.Sprint(desired.KernelArguments) != `[nosmt a="b c"]` || desired.OSImageURL != m.Spec.OSImageURL {
		t.Errorf("%+v\n%s\n%s", desired, report, text)
	}
}

func TestKernelArgumentsOfIgnition(t *testing.T) {
	m := rendered(t, `{"kernelArguments":["own"],"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["ign"]}}}`)
	for version, want := range map[string]string{"3.3.0": "%22kernelArguments%22%3A%5B%22own%22%5D", "3.2.0": "%22kernelArguments%22%3A%5B%22own%22%2C%22ign%22%5D"} {
		raw, report := provision.Config(m, version)
		if len(report) > 0 || !strings.Contains(string(raw), want) || strings.Contains(string(raw), `"shouldExist":["ign"]`) != (version == "3.3.0") {
			t.Errorf("%s: %s\n%s", version, report, raw)
		}
	}
	if len(m.Spec.KernelArguments) != 1 || len(m.Spec.Config.KernelArguments.ShouldExist) != 1 {
		t.Error("the MachineConfig was changed")
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ spec, version, want string }{
		{`{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldNotExist":["x"]}}}`, "3.2.0", "$.spec.config.kernelArguments.shouldNotExist: an Ignition older than 3.3.0"},
		{`{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/machine-config-daemon/node-annotations.json"}]}}}`, "3.5.0", "$.spec.config.storage.files[0].path: /etc/machine-config-daemon/node-annotations.json is written for each machine"},
		{`{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/machine-config-daemon/node-annotations.json","target":"/x"}]}}}`, "3.5.0", "is written for each machine"},
		{`{"config":{"ignition":{"version":"3.4.0"},"storage":{"luks":[{"name":"x","device":"/dev/x","discard":true,"keyFile":{"source":"data:,x"}}]}}}`, "3.3.0", "$.spec.config.storage.luks[0].discard: in an Ignition config of version 3.3.0: unknown member"},
		{`{}`, "3.7.0", `cannot write version "3.7.0"`},
		{`{}`, "2.4.0", `cannot write version "2.4.0"`},
	} {
		raw, report := provision.Config(rendered(t, c.spec), c.version)
		if raw != nil || !strings.Contains(report.String(), c.want) {
			t.Errorf("%s as %s: %s\nwant %s", c.spec, c.version, report, c.want)
		}
	}
}

// program returns a minimal ELF program: a header followed by zeros.
func program() []byte {
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, header); err != nil {
		panic(err)
	}
	return append(b.Bytes(), make([]byte, 100_000)...)
}

func TestEmbed(t *testing.T) {
	program := program()
	embedded, err := provision.Embed(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range authored.IgnitionVersions() {
		raw, report := provision.Config(rendered(t, spec), version, embedded)
		if len(report) > 0 {
			t.Fatalf("%s: %s", version, report)
		}
		config, problems := authored.ParseIgnition(raw)
		if len(problems) > 0 {
			t.Fatalf("%s: %v", version, problems)
		}
		i := slices.IndexFunc(config.Storage.Files, func(f ignition.File) bool { return f.Path == "/usr/local/bin/pivot" })
		if i < 0 {
			t.Fatalf("%s: the program is not there", version)
		}
		f := config.Storage.Files[i]
		if content, err := ignition.Content(f.Contents, ignition.NewRoom(1<<28, 1<<28)); *f.Mode != 0o755 || err != nil || len(content) != len(program) {
			t.Errorf("%s: %s %v: %d bytes, %v", version, f.Path, f.Mode, len(content), err)
		}
		units := map[string]ignition.Unit{}
		for _, u := range config.Systemd.Units {
			units[u.Name] = u
		}
		unit := units["pivot-firstboot.service"]
		if unit.Enabled == nil || !*unit.Enabled || !strings.Contains(*unit.Contents, "\nExecStart=/usr/local/bin/pivot firstboot\n") || strings.Contains(*unit.Contents, "/usr/bin/pivot") {
			t.Errorf("%s: %+v", version, unit)
		}
		project := units["pivot-project.service"]
		if project.Enabled == nil || !*project.Enabled || !strings.Contains(*project.Contents, "\nExecStart=/usr/local/bin/pivot project\n") {
			t.Errorf("%s: %+v", version, project)
		}
		if d := units["kubelet.service"].Dropins; len(d) != 2 || d[0].Name != "20-own.conf" || d[1].Name != "10-pivot-firstboot.conf" {
			t.Errorf("%s: %+v", version, d)
		}
	}
	again, _ := provision.Embed(program)
	if string(ignition.Marshal(again)) != string(ignition.Marshal(embedded)) {
		t.Error("embedding twice gives two things")
	}
	for _, bad := range []string{"", "#!/bin/sh\n"} {
		if _, err := provision.Embed([]byte(bad)); fault.KindOf(err) != fault.BadInput {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if shell, err := os.ReadFile("/bin/sh"); err == nil {
		if _, err := provision.Embed(shell); err == nil || !strings.Contains(err.Error(), "dynamic loader") {
			t.Error(err)
		}
	}
}
