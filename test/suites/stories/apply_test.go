package stories_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/registry"
)

// apply applies a MachineConfig with the given spec, in YAML, and reboots the machine if
// anything changes. It returns the notes.
func apply(t *testing.T, h *hostdir.Host, spec string) (changed bool, notes string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.Reboot = func(context.Context) error { cancel(); return nil } // systemd stops us on its way down
	m := newMachine(t, h)
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			notes += e.Message + "\n"
		}
	}
	a := day2.Apply{Machine: m, Config: day2.Config{File: "mc.yaml", Data: []byte("metadata: {name: a}\nspec:\n" + spec)}, When: day2.RebootNow}
	changed, err = a.Run(ctx, day2.RunOptions{})
	if changed && err == nil {
		h.Boot()
	}
	return changed, notes, err
}

// syncs is a disk that records what is synced.
type syncs struct {
	hostfiles.OS
	paths *[]string
}

func (s syncs) Sync(path string) error {
	*s.paths = append(*s.paths, path)
	return s.OS.Sync(path)
}

// TestRecordIsThere (P55): a record that a killed run has written is made durable by the next
// run, and gets its own mode.
func TestRecordIsThere(t *testing.T) {
	h := hostdir.New(t)
	const settled = "  kernelArguments: []\n"
	if changed, _, err := apply(t, h, settled); err != nil || changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	record := h.Path(machineconfig.RecordPath)
	for _, mode := range []fs.FileMode{0o600, 0o644} {
		must(t, os.Chmod(record, mode))
		var synced []string
		h.Disk = syncs{paths: &synced}
		if changed, _, err := apply(t, h, settled); err != nil || changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
		info, err := os.Stat(record)
		must(t, err)
		if info.Mode() != 0o600 || !slices.Contains(synced, filepath.Dir(record)) {
			t.Errorf("mode %s, then %s; synced %q", mode, info.Mode(), synced)
		}
	}
}

const withFiles = `
  kernelArguments: [a=1, b=2]
  config:
    ignition: {version: 3.4.0}
    storage:
      directories: [{path: /etc/ours}, {path: /etc/shared}]
      files:
      - {path: /etc/ours/file, contents: {source: "data:,one"}}
      - {path: /etc/shared/file, contents: {source: "data:,one"}}
      - {path: /etc/default, contents: {source: "data:,mine"}}
      - {path: /etc/edited, contents: {source: "data:,one"}}
    systemd:
      units: [{name: a.service, enabled: true, contents: "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"}]
`

// TestApply (P55): from one MachineConfig to another and back, with image, arguments and
// /etc in one transaction each. What is no longer asked for is removed, defaults are the new
// image's, local changes stay, and each system has its own record.
func TestApply(t *testing.T) {
	h := hostdir.New(t)
	list := func() string {
		return shell(t, h, "cd etc && (find . -path ./containers -prune -o ! -type d -print | sort; find ours shared -type d -print 2>/dev/null | sort)")
	}
	before := list()
	if changed, _, err := apply(t, h, withFiles); err != nil || !changed || h.Version() != "A.1" {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if got := shell(t, h, "cat etc/ours/file etc/default; readlink etc/systemd/system/multi-user.target.wants/a.service"); got != "onemine/etc/systemd/system/a.service\n" ||
		!strings.HasSuffix(h.Options(), " a=1 b=2") {
		t.Errorf("/etc has %q, options %s", got, h.Options())
	}
	// The same MachineConfig in another form changes nothing.
	record := h.Read(machineconfig.RecordPath)
	if changed, notes, err := apply(t, h, strings.NewReplacer(`"data:,one"`, `"data:;base64,b25l"`, "[a=1, b=2]", "[b=2, a=1]").Replace(withFiles)); err != nil || changed {
		t.Errorf("changed %v, %v: %s", changed, err, notes)
	}
	if string(record) == string(h.Read(machineconfig.RecordPath)) {
		t.Error("the record does not say what was applied last")
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("what pivot itself wrote is drift: %s", drift)
	}
	shell(t, h, "echo mine >etc/edited; echo mine >etc/shared/more")
	changed, notes, err := apply(t, h, fmt.Sprintf("  osImageURL: %s\n  kernelArguments: [b=2, c=3]\n", h.Image))
	if err != nil || !changed || h.Version() != "B.2" {
		t.Fatalf("changed %v, version %s, %v", changed, h.Version(), err)
	}
	if options := h.Options(); strings.Contains(options, "a=1") || !strings.Contains(options, " b=2 c=3") {
		t.Errorf("options %s", options)
	}
	got, want := list(), "./default\n./edited\n./pivot/machineconfig.json\n./shared/more\nshared\n"
	if got != want || string(h.Read("/etc/default")) != "default of B.2\n" || before != "./default\n" {
		t.Errorf("/etc has %s, want %s, was %s; the default is %s", got, want, before, h.Read("/etc/default"))
	}
	for _, want := range []string{"/etc/edited stays, though no MachineConfig asks for it any more: somebody has changed it", "directory /etc/shared stays, though no MachineConfig asks for it any more: there is more in it"} {
		if !strings.Contains(notes, want) {
			t.Errorf("it does not note %q: %s", want, notes)
		}
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	// The previous deployment has its own record.
	h.BootEntry(1)
	if !strings.Contains(string(h.Read(machineconfig.RecordPath)), "/etc/ours/file") {
		t.Errorf("the record is %s", h.Read(machineconfig.RecordPath))
	}
}

// TestApplyAgain (P55): applying the same MachineConfig again undoes local changes.
func TestApplyAgain(t *testing.T) {
	h := hostdir.New(t)
	for _, changes := range []string{"true", "echo mine >etc/ours/file"} {
		shell(t, h, changes)
		if changed, _, err := apply(t, h, withFiles); err != nil || !changed {
			t.Fatalf("after %s: changed %v, %v", changes, changed, err)
		}
		if got := string(h.Read("/etc/ours/file")); got != "one" {
			t.Errorf("after %s there is %q", changes, got)
		}
	}
}

// TestRebaseKeepsWhatEqualsDefaults: a change of the image by hand keeps what the MachineConfig asks for also where the
// image before had it by default: files, and the links of enabled units. What was changed by hand since stays, too, and
// what no MachineConfig asks for follows the image.
func TestRebaseKeepsWhatEqualsDefaults(t *testing.T) {
	h := hostdir.New(t)
	unit := "[Unit]\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
	for path, content := range map[string]string{"/f": "keep", "/own": "keep", "/mine": "keep"} {
		h.Write("/usr/etc"+path, []byte(content))
		h.Write("/etc"+path, []byte(content))
	}
	h.Write("/usr/lib/systemd/system/x.service", []byte(unit))
	const link = "/etc/systemd/system/multi-user.target.wants/x.service"
	for _, path := range []string{h.Path("/usr" + link), h.Path(link)} {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.Symlink("/usr/lib/systemd/system/x.service", path))
	}
	h.PutIntoNext(map[string]string{"usr/etc/f": "next", "usr/etc/own": "next", "usr/etc/mine": "next", "usr/lib/systemd/system/x.service": unit})
	h.Image = h.Push(h.NativeImage())
	if changed, _, err := apply(t, h, `  config:
    ignition: {version: 3.4.0}
    storage: {files: [{path: /etc/f, mode: 420, overwrite: true, contents: {source: "data:,keep"}}, {path: /etc/mine, mode: 420, overwrite: true, contents: {source: "data:,keep"}}]}
    systemd: {units: [{name: x.service, enabled: true}]}
`); err != nil || changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	h.Write("/etc/mine", []byte("by hand"))
	changed, err := (&day2.Rebase{Machine: newMachine(t, h), Image: h.Image}).Run(t.Context(), day2.RunOptions{})
	if err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	h.Boot()
	to, err := os.Readlink(h.Path(link))
	if got := fmt.Sprintf("%s %s %s", h.Read("/etc/f"), h.Read("/etc/own"), h.Read("/etc/mine")); got != "keep next by hand" || to == "" || h.Version() != "B.2" {
		t.Errorf("%s has %s, and the unit's link leads to %q (%v)", h.Version(), got, to, err)
	}
}

// TestApplyRecord (P55): a machine's record is a MachineConfig, and applying it undoes local
// changes.
func TestApplyRecord(t *testing.T) {
	h := hostdir.New(t)
	if _, _, err := apply(t, h, withFiles); err != nil {
		t.Fatal(err)
	}
	shell(t, h, "echo mine >etc/ours/file; rm etc/systemd/system/multi-user.target.wants/a.service")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.Reboot = func(context.Context) error { cancel(); return nil }
	a := day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: machineconfig.RecordPath, Data: h.Read(machineconfig.RecordPath)}, When: day2.RebootNow}
	if changed, err := a.Run(ctx, day2.RunOptions{}); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	h.Boot()
	if drift := verify(t, h); drift != "" || string(h.Read("/etc/ours/file")) != "one" {
		t.Errorf("drift %s", drift)
	}
}

// TestApplyAfterTheFirstBoot (P55): the MachineConfig of the first boot is the
// machine's current one until another is applied.
func TestApplyAfterTheFirstBoot(t *testing.T) {
	h := hostdir.New(t)
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil,
		`{"spec":{"osImageURL":%q,"kernelArguments":["first=1"],"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/first"}]}}}}`, h.Image))
	if _, _, err := apply(t, h, "  kernelArguments: [second=2]\n"); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "the first boot is not over") {
		t.Errorf("error %v", err)
	}
	must(t, boot(t, h))
	h.Boot()
	must(t, boot(t, h))
	if changed, _, err := apply(t, h, "  kernelArguments: [second=2]\n"); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if options := h.Options(); strings.Contains(options, "first=1") || !strings.HasSuffix(options, " second=2") || h.Read("/etc/first") != nil || h.Version() != "B.2" {
		t.Errorf("version %s, options %s, /etc/first %q", h.Version(), options, h.Read("/etc/first"))
	}
}

// TestTakeOver (P55): on a machine of the machine-config-daemon, what its MachineConfig asked
// for and the new one does not is removed. The administrator's earlier files come back,
// defaults are the image's, and pivot's own record counts from then on.
func TestTakeOver(t *testing.T) {
	h := projecting(t)
	const file = `{"path":"/etc/%s","contents":{"source":"data:,daemon"}}`
	h.Write("/etc/machine-config-daemon/currentconfig", fmt.Appendf(nil, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
		"metadata":{"name":"rendered-worker-1","annotations":{"machineconfiguration.openshift.io/generated-by-controller-version":"x"}},
		"spec":{"kernelArguments":["daemon=1"],"kernelType":"default","extensions":[],"fips":false,"osImageURL":"","config":{"ignition":{"version":"3.4.0"},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 a"]}]},
		"storage":{"disks":[{"device":"/dev/vda"}],"files":[%s,%s,%s,%s]}}}}`,
		fmt.Sprintf(file, "new"), fmt.Sprintf(file, "edited"), fmt.Sprintf(file, "default"), fmt.Sprintf(file, "kept")))
	for _, name := range []string{"new", "edited", "default", "kept"} {
		h.Write("/etc/"+name, []byte("daemon"))
	}
	h.Write("/etc/machine-config-daemon/orig/etc/edited.mcdorig", []byte("the administrator's"))
	shell(t, h, "chmod 600 etc/machine-config-daemon/orig/etc/edited.mcdorig; cp -a usr/etc/default etc/machine-config-daemon/orig/etc/default.mcdorig")
	changed, notes, err := apply(t, h, "  kernelArguments: [b=2]\n  config: {ignition: {version: 3.4.0}, storage: {disks: [{device: /dev/vda}], files: ["+strings.ReplaceAll(fmt.Sprintf(file, "kept"), `","`, `", "`)+"]}}\n")
	if err != nil || !changed {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	if got, want := shell(t, h, "ls etc/new 2>/dev/null || :; cat etc/edited etc/default etc/kept; stat -c %a etc/edited"),
		"the administrator'sdefault of A.1\ndaemon600\n"; got != want {
		t.Errorf("there is %q, want %q", got, want)
	}
	if !strings.Contains(notes, "taking over from the machine-config-daemon: the machine has its MachineConfig rendered-worker-1") {
		t.Errorf("it does not say that it takes over: %s", notes)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	// The administrator's file is not pivot's, so it stays.
	if _, notes, err = apply(t, h, "  kernelArguments: [b=2]\n  config: {ignition: {version: 3.4.0}, storage: {disks: [{device: /dev/vda}]}}\n"); err != nil || strings.Contains(notes, "taking over") {
		t.Fatalf("%v: %s", err, notes)
	}
	if got := shell(t, h, "cat etc/edited; ls etc/kept 2>/dev/null || :"); got != "the administrator's" {
		t.Errorf("there is %q", got)
	}
}

// TestTakeOverDamaged: the record of the daemon may have anything in it. What cannot be used
// is named, the rest is taken over.
func TestTakeOverDamaged(t *testing.T) {
	const head = `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"rendered-1"},"spec":{"kernelArguments":["daemon=1"],"config":`
	for _, c := range []struct{ name, record, noted, gone string }{
		{"empty", "", "it is empty", ""},
		{"cut off", head + `{"ign`, "unexpected EOF", ""},
		{"not an object", "[]", "$", ""},
		{"Ignition 2", head + `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/old"}]}}}}`, "$.spec.config", "daemon=1"},
		{"a file that pivot does not manage", head + `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/run/x"},{"path":"/etc/old","contents":{"source":"data:,old"}}]}}}}`, "/run/x", "daemon=1 /etc/old"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := projecting(t)
			h.Write("/etc/machine-config-daemon/currentconfig", []byte(c.record))
			h.Write("/etc/old", []byte("old"))
			shell(t, h, "for entry in boot/loader*/entries/*.conf; do sed -i '/^options/s/$/ daemon=1/' $entry; done")
			changed, notes, err := apply(t, h, "  kernelArguments: [b=2]\n")
			if err != nil || !changed {
				t.Fatalf("changed %v, %v: %s", changed, err, notes)
			}
			if !strings.Contains(notes, "taking over from the machine-config-daemon") || !strings.Contains(notes, "not taken over, so it stays as it is on this machine: ") || !strings.Contains(notes, c.noted) {
				t.Errorf("it does not name %q: %s", c.noted, notes)
			}
			if stays := strings.Contains(h.Options(), "daemon=1"); stays == strings.Contains(c.gone, "daemon=1") {
				t.Errorf("options %s", h.Options())
			}
			if _, err := os.Stat(h.Path("/etc/old")); (err == nil) == strings.Contains(c.gone, "/etc/old") {
				t.Errorf("/etc/old: %v", err)
			}
			if drift := verify(t, h); drift != "" {
				t.Errorf("drift %s", drift)
			}
		})
	}
}

// TestApplyRefuses (P55): one report names everything that is wrong with a MachineConfig, with
// line numbers, and nothing is changed.
func TestApplyRefuses(t *testing.T) {
	h := hostdir.New(t)
	_, _, err := apply(t, h, "  kernelArguments: [ostree=/x]\n  extensions: [wasm]\n  config:\n    ignition: {version: 3.4.0}\n    storage: {files: [{path: /run/x}]}\n")
	for _, want := range []string{"mc.yaml:3: error: $.spec.kernelArguments[0]", "mc.yaml:4: error: $.spec.extensions[0]: there is no extension", "mc.yaml:7: error: $.spec.config.storage.files[0]: cannot apply /run/x"} {
		if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := os.Stat(h.Path("/var/lib/pivot/journal.json")); err == nil {
		t.Error("the journal knows of it")
	}
	h.Write(machineconfig.RecordPath, []byte("{}"))
	if _, _, err := apply(t, h, "  kernelArguments: [a=1]\n"); fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
		t.Errorf("a bad record: %v", err)
	}
}

// TestApplyPinsTags (P55): a tag is resolved once. The image that was compared is deployed
// even if the tag moves meanwhile.
func TestApplyPinsTags(t *testing.T) {
	h := hostdir.New(t)
	name, _, _ := strings.Cut(h.Image, "@")
	digest, err := h.Registry.Push(t.Context(), strings.SplitN(name, "/", 2)[1], "moves", h.NativeImage())
	must(t, err)
	h.Registry.Spoil(registry.Rule{On: "/manifests/moves", Skip: 1, Fault: registry.Status(404)})
	changed, _, err := apply(t, h, "  osImageURL: "+name+":moves\n")
	must(t, err)
	s, err := newMachine(t, h).Status(t.Context())
	must(t, err)
	if !changed || h.Version() != "B.2" || s.Booted.Manifest != digest || s.Booted.Image.Follows().String() != name+":moves" {
		t.Errorf("changed %v, version %s, booted %+v", changed, h.Version(), s.Booted)
	}
}
