package stories_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

const projectUnit = "/etc/systemd/system/pivot-project.service"

// projecting returns a host with the projecting unit and a user core in its systems.
func projecting(t *testing.T) *hostdir.Host {
	t.Helper()
	h := hostdir.New(t)
	h.Write(projectUnit, nil)
	h.Write("/etc/passwd", []byte("core:x:1000:1001::/home/core:/bin/sh\n"))
	h.Write("/etc/group", []byte("core:x:1001:\n"))
	shell(t, h, "mkdir -p var/home/core && chown 1000:1001 var/home/core && chmod 700 var/home/core")
	h.Write("/var/lib/kubelet/settings", []byte("own"))
	h.Serve(h.NativeImage())
	return h
}

// project does what the unit does early in a boot. It returns the notes.
func project(t *testing.T, h *hostdir.Host) (notes string) {
	t.Helper()
	m := newMachine(t, h)
	_, err := m.Project(func(text string) { notes += text + "\n" })
	must(t, err)
	return notes
}

// TestDamagedProjection (P57): a file of the projection that is damaged is an error with that file's
// own remedy, and anything else in the way is one to correct.
func TestDamagedProjection(t *testing.T) {
	for path, remedy := range map[string]string{
		projection.ManifestPath: "go back to the system before",
		projection.RecordPath:   "move the file away",
		projection.Dir + "/x":   "correct the path that is named, then: systemctl restart pivot-project.service",
	} {
		h := projecting(t)
		h.Write(path, []byte("damaged"))
		if strings.HasPrefix(remedy, "correct") {
			h.Write(projection.ManifestPath, []byte(`{"format":1,"entries":[{"path":"/var/lib/kubelet/settings","mode":384,"uid":0,"gid":0,"digest":"sha256:x"}]}`))
		}
		_, err := newMachine(t, h).Project(func(string) {})
		if hint := fault.HintOf(err); !strings.HasPrefix(hint, remedy) {
			t.Errorf("%s is damaged: %v, with the hint %q, want %q", path, err, hint, remedy)
		}
	}
}

const inVar = `
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /var/lib/kubelet/settings, mode: 384, contents: {source: "data:,one"}}
      - {path: /usr/local/bin/tool, mode: 493, contents: {source: "data:,tool"}}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key one]}]}
`

// listVar lists what TestVarSwitches puts below /var.
func listVar(t *testing.T, h *hostdir.Host) string {
	return shell(t, h, "cd var/ && find lib/kubelet/settings usrlocal home/core/.ssh ! -type d -printf '%p %m %U:%G ' -exec cat {} ';' -printf ';' 2>/dev/null || :")
}

// TestVarSwitches (P57): what a MachineConfig asks for outside of /etc is in place once its
// system is booted, and not before. The next system has that of the next MachineConfig, and
// booting the previous system restores its own.
func TestVarSwitches(t *testing.T) {
	h := projecting(t)
	plan, err := (&day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc.yaml", Data: []byte("metadata: {name: a}\nspec:\n" + inVar)}}).Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	var planned []string
	for _, change := range plan.Entries {
		planned = append(planned, change.What())
	}
	const want = "replace /var/lib/kubelet/settings, create /var/usrlocal/bin/tool, create directory /var/home/core/.ssh, create directory /var/home/core/.ssh/authorized_keys.d, " +
		"create /var/home/core/.ssh/authorized_keys.d/ignition, create link /etc/systemd/system/sysinit.target.wants/pivot-project.service"
	if got := strings.Join(planned, ", "); got != want {
		t.Errorf("planned: %s, want %s", got, want)
	}
	before := listVar(t, h)
	if changed, _, err := apply(t, h, inVar); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if got := listVar(t, h); got != before {
		t.Errorf("before the projection there is %s", got)
	}
	if drift := verify(t, h); !strings.Contains(drift, "file /var/usrlocal/bin/tool: missing") {
		t.Errorf("drift %s", drift)
	}
	project(t, h)
	const v1 = "lib/kubelet/settings 600 0:0 one;usrlocal/bin/tool 755 0:0 tool;home/core/.ssh/authorized_keys.d/ignition 600 1000:1001 key one\n;"
	if got := listVar(t, h); got != v1 {
		t.Errorf("there is %s, want %s", got, v1)
	}
	if got := shell(t, h, "stat -c '%a %U:%G' var/home/core/.ssh var/home/core/.ssh/authorized_keys.d etc/pivot/var; readlink "+"etc/systemd/system/sysinit.target.wants/pivot-project.service"); !strings.HasSuffix(got, "700 root:root\n"+projectUnit+"\n") || strings.Count(got, "700") != 3 {
		t.Errorf("there is %s", got)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	if changed, notes, err := apply(t, h, inVar); err != nil || changed {
		t.Errorf("the same again: %v, %v, %s", changed, err, notes)
	}
	shell(t, h, "chmod 640 var/lib/kubelet/settings && rm var/usrlocal/bin/tool")
	if drift := verify(t, h); drift != "file /var/lib/kubelet/settings: differs\nfile /var/usrlocal/bin/tool: missing" {
		t.Errorf("drift %s", drift)
	}
	// With drift, the same MachineConfig is a change, and restores everything.
	if changed, _, err := apply(t, h, inVar); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	project(t, h)
	if got, drift := listVar(t, h), verify(t, h); got != v1 || drift != "" {
		t.Errorf("there is %s, want %s; drift %s", got, v1, drift)
	}

	// The next MachineConfig, with another image.
	changed, _, err := apply(t, h, fmt.Sprintf("  osImageURL: %s\n", h.Image)+strings.NewReplacer("data:,one", "data:,two", "key one", "key two", "/usr/local/bin/tool", "/opt/new").Replace(inVar))
	if err != nil || !changed || h.Version() != "B.2" {
		t.Fatalf("changed %v, version %s, %v", changed, h.Version(), err)
	}
	project(t, h)
	const v2 = "lib/kubelet/settings 600 0:0 two;home/core/.ssh/authorized_keys.d/ignition 600 1000:1001 key two\n;"
	if got := listVar(t, h); got != v2 || string(h.Read("/var/opt/new")) != "tool" {
		t.Errorf("there is %s, want %s", got, v2)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	h.BootEntry(1)
	project(t, h)
	if got := listVar(t, h); got != v1 || h.Read("/var/opt/new") != nil {
		t.Errorf("back there is %s, want %s", got, v1)
	}
	h.BootEntry(0)
	project(t, h)

	// Nothing is asked for any more; one file was changed locally.
	shell(t, h, "echo mine >var/opt/new")
	changed, notes, err := apply(t, h, fmt.Sprintf("  osImageURL: %s\n", h.Image))
	const stays = "file /var/opt/new stays, though no MachineConfig asks for it any more: somebody has changed it\n"
	if err != nil || !changed || !strings.Contains(notes, stays) {
		t.Fatalf("changed %v, %v, %s", changed, err, notes)
	}
	if notes := project(t, h); notes != stays {
		t.Errorf("notes %s", notes)
	}
	if got := listVar(t, h); got != "lib/kubelet/settings 644 0:0 own;" || string(h.Read("/var/opt/new")) != "mine\n" {
		t.Errorf("there is %s", got)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
}

// TestVarOfIgnition (P57): what Ignition wrote on the first boot matches the MachineConfig and
// belongs to it: the next MachineConfig removes it.
func TestVarOfIgnition(t *testing.T) {
	h := projecting(t)
	h.Write("/var/opt/first", []byte("first"))
	h.Write(firstboot.EncapsulatedPath, []byte(`{"spec":{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/opt/first","contents":{"source":"data:,first"}}]},
		"systemd":{"units":[{"name":"a.service","mask":true}]}}}}`))
	must(t, boot(t, h))
	h.Boot()
	if notes := project(t, h); notes != "" {
		t.Errorf("notes %s", notes)
	}
	must(t, boot(t, h))
	if phase(t, h) != pivot.PhaseDone {
		t.Errorf("phase %s", phase(t, h))
	}
	changed, _, err := apply(t, h, "  kernelArguments: [a=1]\n")
	if err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	project(t, h)
	if h.Read("/var/opt/first") != nil || h.Read(projection.ManifestPath) != nil {
		t.Error("it is still there")
	}
}

// TestVarThatIsThere (P57): a MachineConfig that asks for what exists already needs no reboot. What
// it asked for is still removed if the next one does not ask for it.
func TestVarThatIsThere(t *testing.T) {
	h := projecting(t)
	h.Write("/etc/systemd/system/sysinit.target.wants/x", nil)
	shell(t, h, "ln -s "+projectUnit+" etc/systemd/system/sysinit.target.wants/pivot-project.service")
	h.Write("/var/opt/x", []byte("x"))
	const spec = "  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /opt/x, contents: {source: \"data:,x\"}}]}}\n"
	if changed, notes, err := apply(t, h, spec); err != nil || changed {
		t.Fatalf("changed %v, %v, %s", changed, err, notes)
	}
	if changed, _, err := apply(t, h, "  kernelArguments: [a=1]\n"); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	project(t, h)
	if h.Read("/var/opt/x") != nil {
		t.Error("it is still there")
	}
}

// TestVarRefused (P57): a system that cannot project, or that has a directory where a link into /var is needed, is
// refused before anything is changed.
func TestVarRefused(t *testing.T) {
	const inOpt = "  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /opt/x}]}}\n"
	const named = "  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /var/x, user: {name: nobody-knows}}]}}\n"
	for _, c := range []struct {
		spec, want string
		image      bool
		prepare    func(*hostdir.Host)
	}{
		{inOpt, "the new system has no pivot-project.service", false, func(h *hostdir.Host) { must(t, os.Remove(h.Path(projectUnit))) }},
		{inOpt, "pivot-project.service, which writes them at each boot, is masked", false, func(h *hostdir.Host) {
			must(t, os.Remove(h.Path(projectUnit)))
			must(t, os.Symlink("/dev/null", h.Path(projectUnit)))
		}},
		{inOpt, "the new system has no pivot-project.service", true, func(h *hostdir.Host) {
			must(t, os.Remove(h.Path(projectUnit)))
			h.Write("/usr/lib/systemd/system/pivot-project.service", nil) // only in the old system
		}},
		{inOpt, "the new system has /opt as a directory of its image", false, func(h *hostdir.Host) { h.Write("/opt/image", nil) }},
		{inOpt, "the new system has /opt as a directory of its image", true, func(h *hostdir.Host) { h.ExtendNext("opt/image"); h.Serve(h.NativeImage()) }},
		{named, `cannot give /var/x its owner: there is no user "nobody-knows" in the new system`, false, func(*hostdir.Host) {}},
	} {
		h := projecting(t)
		shell(t, h, "mkdir -p etc/systemd/system")
		c.prepare(h)
		if c.image {
			c.spec = fmt.Sprintf("  osImageURL: %s\n", h.Image) + c.spec
		}
		_, _, err := apply(t, h, c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, want %q", c.spec, err, c.want)
		}
		if all, err := h.Sysroot().Deployments(); err != nil || len(all) != 1 {
			t.Errorf("%s: %d deployments, %v", c.spec, len(all), err)
		}
	}
}

// TestDirectoryThatIsThere (P55): an existing directory keeps its mode and owner unless the
// MachineConfig sets them, as with Ignition. Setting others is a change. A directory that is
// not asked for any more is no local change.
func TestDirectoryThatIsThere(t *testing.T) {
	h := projecting(t)
	shell(t, h, "install -d -m 700 -o 7 -g 8 etc/service var/lib/service; mkdir -p etc/systemd/system/sysinit.target.wants; ln -s "+projectUnit+" etc/systemd/system/sysinit.target.wants/")
	directories := func(more string) string {
		return "  config: {ignition: {version: 3.4.0}, storage: {directories: [{path: /etc/service" + more + "}, {path: /var/lib/service" + more + "}]}}\n"
	}
	const show = "stat -c '%a %u:%g' etc/service var/lib/service"
	if changed, notes, err := apply(t, h, directories("")); err != nil || changed {
		t.Errorf("what is there is changed: %v, %v, %s", changed, err, notes)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	shell(t, h, "chmod 711 var/lib/service")
	if drift := verify(t, h); drift != "directory /var/lib/service: differs" {
		t.Errorf("drift %s", drift)
	}
	shell(t, h, "chmod 700 var/lib/service")
	for more, want := range map[string]string{", mode: 488": "750 7:8\n750 7:8\n", ", user: {id: 9}": "700 9:8\n700 9:8\n"} {
		if changed, notes, err := apply(t, h, directories(more)); err != nil || !changed {
			t.Fatalf("%s: %v, %v, %s", more, changed, err, notes)
		}
		project(t, h)
		if got := shell(t, h, show); got != want {
			t.Errorf("%s: there is %s, want %s", more, got, want)
		}
		shell(t, h, "chmod 700 etc/service var/lib/service; chown 7 etc/service var/lib/service")
	}
	if changed, _, err := apply(t, h, directories("")); err != nil || changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	if changed, notes, err := apply(t, h, "  kernelArguments: [a=1]\n"); err != nil || !changed || strings.Contains(notes, "somebody has changed") {
		t.Errorf("changed %v, %v, %s", changed, err, notes)
	}
}
