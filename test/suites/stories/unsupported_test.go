package stories_test

import (
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// TestApplyUnsupported (P58): what only an installation can change stops an apply with one
// report, or is left out and named until the machine has it, or requires a new machine.
func TestApplyUnsupported(t *testing.T) {
	const disks = `
  fips: true
  kernelArguments: [a=1]
  config:
    ignition: {version: 3.4.0}
    passwd: {users: [{name: admin}]}
    storage:
      disks: [{device: /dev/vda, wipeTable: true}]
      files: [{path: /etc/ours}, {path: /etc/grown, append: [{source: "data:,x"}]}]
`
	h := hostdir.New(t)
	applyAs := func(unsupported machineconfig.Unsupported, spec string) (changed bool, failing error, err error) {
		m := newMachine(t, h)
		m.Progress.Emit = func(e pivot.Event) {
			if e.Kind == pivot.EventFailing {
				failing = e.Err
			}
		}
		a := day2.Apply{Machine: m, Config: day2.Config{File: "mc.yaml", Data: []byte("spec:\n" + spec)}, Unsupported: unsupported}
		changed, err = a.Run(t.Context(), day2.RunOptions{})
		return changed, failing, err
	}
	leftOut := func() string {
		m := newMachine(t, h)
		s, err := m.Status(t.Context())
		must(t, err)
		return strings.Join(s.LeftOut, ", ")
	}
	for _, choice := range []machineconfig.Unsupported{"", machineconfig.Stop} {
		_, _, err := applyAs(choice, disks)
		for _, want := range []string{"mc.yaml:3: error: $.spec.fips: fips differs from what the machine has", "mc.yaml:7: error: $.spec.config.passwd.users[0]: config.passwd.users admin differs",
			"mc.yaml:9: error: $.spec.config.storage.disks", "mc.yaml:10: error: $.spec.config.storage.files[1]: config.storage.files /etc/grown"} {
			if fault.KindOf(err) != fault.Unreconcilable || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q", choice, err, want)
			}
		}
	}
	_, failing, err := applyAs(machineconfig.Replace, disks)
	if fault.KindOf(err) != fault.Replace || fault.KindOf(failing) != fault.Replace || !strings.Contains(err.Error(), "config.passwd.users admin") || fault.HintOf(err) == "" {
		t.Errorf("error %v, told is %v", err, failing)
	}
	if _, err := os.Stat(h.Path("/var/lib/pivot/journal.json")); err == nil {
		t.Error("the journal knows of it")
	}
	const names = "config.storage.disks, config.passwd.users admin, config.storage.files /etc/grown, fips"
	if changed, _, err := applyAs(machineconfig.Warn, disks); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if h.Boot(); h.Read("/etc/ours") == nil || h.Read("/etc/grown") != nil || !strings.HasSuffix(h.Options(), " a=1") || leftOut() != names {
		t.Errorf("options %s, left out %q", h.Options(), leftOut())
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %q", drift)
	}
	// What was left out still differs; nothing else does.
	if _, _, err := applyAs(machineconfig.Stop, disks); fault.KindOf(err) != fault.Unreconcilable {
		t.Errorf("the second time: %v", err)
	}
	if changed, _, err := applyAs(machineconfig.Warn, disks); err != nil || changed || leftOut() != names {
		t.Errorf("the same changes %v, %v, left out %q", changed, err, leftOut())
	}
	without, _, _ := strings.Cut(strings.Replace(disks, "fips: true", "fips: false", 1), "    passwd")
	if changed, _, err := applyAs(machineconfig.Stop, without+"    storage: {files: [{path: /etc/ours}]}\n"); err != nil || changed || leftOut() != "" {
		t.Errorf("without it: changed %v, %v, left out %q", changed, err, leftOut())
	}
	// What the current MachineConfig has is in place.
	h.Write(machineconfig.RecordPath, []byte(`{"spec":{"config":{"ignition":{"version":"3.4.0"},"storage":{"disks":[{"device":"/dev/vda"}]}}}}`))
	if changed, _, err := applyAs(machineconfig.Stop, "  config: {ignition: {version: 3.4.0}, storage: {disks: [{device: /dev/vda}]}}\n  kernelArguments: [b=1]\n"); err != nil || !changed {
		t.Errorf("with the disks that are there: changed %v, %v", changed, err)
	}
}
