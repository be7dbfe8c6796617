package stories_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// repair returns an Apply that repairs drift.
func (c *changer) repair(when day2.When) *day2.Apply {
	c.notes = ""
	return &day2.Apply{Machine: c.newMachine(), When: when, Repair: true}
}

// runRepair runs a repair without an error.
func (c *changer) runRepair(when day2.When, changes bool) {
	c.t.Helper()
	if changed, err := c.repair(when).Run(c.t.Context(), day2.RunOptions{}); err != nil || changed != changes {
		c.t.Fatalf("changed %v, want %v, %v", changed, changes, err)
	}
}

// found returns what the last repair has kept: the manifest's entries by path, the paths that
// had nothing, and a function that returns the content of a file.
func (c *changer) found() (entries map[string]hostfiles.Entry, missing []string, content func(path string) string) {
	c.t.Helper()
	sets, err := filepath.Glob(c.Path(day2.FoundDir) + "/2*")
	must(c.t, err)
	if len(sets) == 0 {
		return nil, nil, nil
	}
	last := sets[len(sets)-1]
	data, err := os.ReadFile(filepath.Join(last, day2.FoundManifestName))
	must(c.t, err)
	var m struct {
		Entries []struct {
			hostfiles.Entry
			Missing bool
		}
	}
	must(c.t, json.Unmarshal(data, &m))
	entries = map[string]hostfiles.Entry{}
	for _, e := range m.Entries {
		if e.Missing {
			missing = append(missing, e.Path)
			continue
		}
		entries[e.Path] = e.Entry
	}
	return entries, missing, func(path string) string {
		text, err := os.ReadFile(filepath.Join(last, strings.TrimPrefix(string(entries[path].Digest), "sha256:")))
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
}

// TestRepair (P68): a repair restores what was changed locally and nothing else. It first keeps
// what it replaces, and services are reloaded by the same rules as for other changes.
func TestRepair(t *testing.T) {
	c := newVarChanger(t)
	c.Write(disruption.RulesPath, []byte(strings.Replace(liveRules, "files:", "files:"+strings.TrimPrefix(liveVarRules, "\nfiles:"), 1)))
	// Two MachineConfigs: a repair also removes what only the first one asked for.
	spec := strings.Replace(liveV2, "    storage:\n", "    passwd: {users: [{name: core, sshAuthorizedKeys: [key one], passwordHash: $y$one}]}\n    storage:\n", 1)
	spec = strings.Replace(spec, "      files:\n", "      files:\n      - {path: /opt/app/conf, contents: {source: \"data:,var\"}}\n", 1)
	c.when = ""
	c.apply(liveV1, true)
	c.apply(spec, true)
	if drift := verify(t, c.Host); drift != "" {
		t.Fatalf("drift %s", drift)
	}
	etc, outside := c.etc(), c.outside()
	all := func() string {
		return shell(t, c.Host, "find etc var boot sysroot/ostree/deploy -not -path '*/proc/*' -printf '%p %i %C@\\n' | sort")
	}
	before := all()
	c.runRepair(day2.RebootNever, false)
	if got := all(); got != before || !strings.Contains(c.notes, "nothing to repair") {
		t.Errorf("notes %s; it wrote something", c.notes)
	}

	shell(t, c.Host, `cd etc; echo mine >app/conf; chmod 700 app; rm systemd/system/app.service; ln -sfn /elsewhere link; echo mine >default
mkdir -p app/old; echo mine >app/old/file
cd ..; echo mine >var/opt/app/conf; rm var/home/core/.ssh/authorized_keys.d/ignition; sed -i 's/^core:[^:]*:/core:!$y$one:/' etc/shadow; echo other >etc/app/other`)
	plan, err := c.repair(day2.RebootNever).Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	if plan.Reboots != 0 || len(plan.Entries) != 9 {
		t.Errorf("reboots %d, entries %v, needs %v", plan.Reboots, plan.Entries, plan.RebootReasons())
	}
	c.calls = nil
	c.runRepair(day2.RebootNever, true)
	if got := strings.ReplaceAll(c.etc(), "app/other f 644 \n", ""); got != strings.ReplaceAll(etc, "\n\n", "\n") || c.outside() != outside || string(c.Read("/etc/app/other")) != "other\n" {
		t.Errorf("there is\n%s%s\nwant\n%s%s", got, c.outside(), etc, outside)
	}
	if drift := verify(t, c.Host); drift != "" {
		t.Errorf("drift %s", drift)
	}
	if want := []string{"daemon-reload", "reload app.service", "restart other.service", "restart crio.service"}; !slices.Equal(c.calls, want) {
		t.Errorf("calls %q, want %q", c.calls, want)
	}
	entries, missing, content := c.found()
	if e := entries["/etc/app"]; e.Kind != hostfiles.KindDirectory || e.Mode != 0o700 || entries["/etc/link"].Target != "/elsewhere" ||
		content("/etc/app/conf") != "mine\n" || content("/var/opt/app/conf") != "mine\n" || content("/etc/default") != "mine\n" || content("/etc/app/old/file") != "mine\n" || content("/etc/shadow/core") != "!$y$one" ||
		strings.Join(missing, " ") != "/etc/systemd/system/app.service /var/home/core/.ssh/authorized_keys.d/ignition" {
		t.Errorf("found %v, missing %v", entries, missing)
	}
	if !strings.Contains(c.notes, "what was found at 9 paths is kept in "+day2.FoundDir+"/2") || !strings.Contains(c.notes, "differs: link /etc/link: differs\n") {
		t.Errorf("notes %s", c.notes)
	}
	r, err := pivot.JournalIn(c.Root).Load()
	if err != nil || r.Phase != pivot.PhaseDone {
		t.Errorf("journal %+v, %v", r, err)
	}
}

// TestRepairByReboot (P68): a repair that needs a reboot is refused, and keeps nothing, if none is
// allowed; otherwise it is committed as a whole. It also repairs kernel arguments, of which
// one was added and one is missing.
func TestRepairByReboot(t *testing.T) {
	c := newChanger(t)
	c.when = ""
	c.apply("  kernelArguments: [a=1]\n", true)
	c.Boot()
	const spec = "  kernelArguments: [b=2]\n  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/motd, contents: {source: \"data:,ours\"}}, {path: /etc/thing, contents: {source: \"data:,ours\"}}]}}\n"
	c.apply(spec, true)
	c.Boot()
	must(t, os.Remove(c.Path("/etc/thing")))
	shell(t, c.Host, "echo mine >etc/motd && mkdir -p etc/thing/below && echo mine >etc/thing/below/file")
	if _, err := c.repair(day2.RebootNever).Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "/etc/motd: no rule says") {
		t.Errorf("never: %v", err)
	}
	if entries, _, _ := c.found(); entries != nil {
		t.Errorf("kept %v", entries)
	}
	_, err := c.repair(day2.RebootLater).Run(t.Context(), day2.RunOptions{})
	entries, _, content := c.found()
	if content == nil || content("/etc/motd") != "mine\n" || content("/etc/thing/below/file") != "mine\n" || entries["/etc/thing"].Kind != hostfiles.KindDirectory {
		t.Errorf("found %v", entries)
	}
	// A directory that is not empty is not replaced; once its contents are removed, it is.
	if err == nil || !strings.Contains(err.Error(), "directory not empty") {
		t.Errorf("error %v", err)
	}
	shell(t, c.Host, "rm -r etc/thing/below")
	shell(t, c.Host, "sed -i 's/ b=2/ a=1/' boot/loader/entries/*.conf")
	if drift := verify(t, c.Host); !strings.Contains(drift, "kernel argument b=2: not in effect") || !strings.Contains(drift, "kernel argument a=1: still in") {
		t.Fatalf("drift %s", drift)
	}
	c.runRepair(day2.RebootLater, true)
	if string(c.Read("/etc/motd")) != "mine\n" {
		t.Error("what runs was changed")
	}
	if _, err := c.repair(day2.RebootLater).Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "what it was last asked for is committed, and not what runs") {
		t.Errorf("while it waits for its reboot: %v", err)
	}
	c.Boot()
	if drift := verify(t, c.Host); drift != "" || string(c.Read("/etc/thing")) != "ours" {
		t.Errorf("drift %s", drift)
	}
	c.runRepair(day2.RebootNever, false)
}

// TestRepairRefuses (P68): a repair restores what the machine was last asked for, and only if that is
// what its record says.
func TestRepairRefuses(t *testing.T) {
	c := newChanger(t)
	refused := func(want string) {
		t.Helper()
		_, err := c.repair(day2.RebootLater).Run(t.Context(), day2.RunOptions{})
		if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	record := c.Read(machineconfig.RecordPath)
	c.Write(machineconfig.RecordPath, []byte(`{"spec":{}}`))
	refused("which says what this machine has, is not as it was written")
	c.Write(machineconfig.RecordPath, record)
	c.runRepair("", false)
	rebase := day2.Rebase{Machine: c.newMachine(), Append: []string{"x=1"}}
	_, err := rebase.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	c.Boot()
	refused("it was last asked for something else than its MachineConfig")
	must(t, os.Remove(c.Path(machineconfig.RecordPath)))
	refused("pivot has applied no MachineConfig to this machine")
}

// TestRepairAfterTheFirstBoot (P68): a machine with no MachineConfig but that of its first boot is
// repaired by that one.
func TestRepairAfterTheFirstBoot(t *testing.T) {
	c := &changer{Host: hostdir.New(t), services: &services{}, t: t}
	c.Write(firstboot.EncapsulatedPath, []byte(`{"spec":{"kernelArguments":["first=1"],"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/crio/policies/a","contents":{"source":"data:,ours"}}]}}}}`))
	must(t, boot(t, c.Host))
	c.Boot()
	must(t, boot(t, c.Host))
	c.runRepair(day2.RebootNever, false)
	c.Write("/etc/crio/policies/a", []byte("mine"))
	c.runRepair(day2.RebootNever, true)
	if got := string(c.Read("/etc/crio/policies/a")); got != "ours" || strings.Join(c.calls, " ") != "reload crio.service" {
		t.Errorf("there is %q, calls %q", got, c.calls)
	}
	if drift := verify(t, c.Host); drift != "" {
		t.Errorf("drift %s", drift)
	}
	c.runRepair(day2.RebootNever, false)
	shell(t, c.Host, "sed -i 's/ first=1//' boot/loader/entries/*.conf")
	c.runRepair(day2.RebootLater, true)
	c.Boot()
	if drift := verify(t, c.Host); drift != "" || !strings.Contains(c.Options(), "first=1") {
		t.Errorf("drift %s, options %s", drift, c.Options())
	}
	c.runRepair(day2.RebootNever, false)
}

// TestRepairInItsWindow (P68): a repair also waits for the machine's window, and keeps an earlier
// download.
func TestRepairInItsWindow(t *testing.T) {
	c := newChanger(t)
	later := day2.Apply{Machine: c.newMachine(), Config: day2.Config{File: "later.yaml", Data: []byte("metadata: {name: a}\nspec: {kernelArguments: [later=1]}\n")}}
	_, err := later.Download(t.Context())
	must(t, err)
	downloaded := func() day2.Download {
		r, err := pivot.JournalIn(c.Root).Load()
		must(t, err)
		if downloadOf(t, r) == nil {
			return day2.Download{}
		}
		return *downloadOf(t, r)
	}
	before := downloaded()
	asked := string(c.Read("/etc/app/conf"))
	c.Write("/etc/app/conf", []byte("mine\n"))
	r := c.repair(day2.RebootNever)
	r.Window = "00:00-24:00 UTC"
	alone := func(f func() error) error { return f() }
	if changed, err := day2.Carry(t.Context(), r.Machine, r, false, alone); err != nil || !changed || string(c.Read("/etc/app/conf")) != asked {
		t.Errorf("changed %v, %v; there is %q", changed, err, c.Read("/etc/app/conf"))
	}
	if after := downloaded(); before.MachineConfig == "" || !reflect.DeepEqual(after, before) {
		t.Errorf("downloaded before the repair %+v, and after it %+v", before, after)
	}
}
