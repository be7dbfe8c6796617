package stories_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/configdaemon"
	"machine-pivot/test/worlds/hostdir"
)

// handBack gives a host back.
func handBack(t *testing.T, h *hostdir.Host, disk hostfiles.Disk) (machine.Result, error) {
	t.Helper()
	m := newMachine(t, h)
	if disk != nil {
		other := *h.Host
		other.Disk = disk
		m.Host = &other
	}
	m.Systemd = &services{}
	_, err := (&day2.HandBack{Machine: m}).Run(t.Context())
	return m.Conclude(t.Context(), err), err
}

// annotations are those that the node agent leaves for a MachineConfig.
func annotations(config string) map[string]string {
	const prefix = "machineconfiguration.openshift.io/"
	return map[string]string{prefix + "currentConfig": config, prefix + "desiredConfig": config, prefix + "state": "Done", prefix + "reason": "",
		prefix + "desiredDrain": "uncordon-" + config, prefix + "lastAppliedDrain": "uncordon-" + config}
}

// start boots a host until /var is projected, and returns the notes of that.
func start(t *testing.T, h *hostdir.Host) (notes string) {
	t.Helper()
	h.Boot()
	linkVar(t, h)
	return project(t, h)
}

// roundTrip returns a host of the daemon that was taken over with rendered-1 and has rendered-2 by pivot,
// with another image, and the latter.
func roundTrip(t *testing.T) (h *hostdir.Host, two []byte) {
	t.Helper()
	one := clusterConfig("rendered-1", daemonsImage, `"daemon=1"`, daemonsConfig)
	h = ofDaemon(t, one)
	if _, _, err := applyHere(t, h, one); err != nil {
		t.Fatal(err)
	}
	h.Write("/etc/hosts", []byte("an administrator's"))
	h.PutIntoNext(map[string]string{"usr/etc/new": "the image's"})
	h.Serve(h.NativeImage())
	two = clusterConfig("rendered-2", h.Image, `"two=2", "three=3"`, strings.NewReplacer(
		"data:,one", "data:,changed", `{"path":"/etc/deep/er/file"`, `{"path":"/etc/new"`, `"path":"/opt/data"`, `"path":"/etc/added"`, "Nice=1", "Nice=2").Replace(daemonsConfig))
	m := newMachine(t, h)
	m.Systemd = &services{}
	a := day2.Apply{Machine: m, Config: day2.Config{File: "mc.json", Data: two}, When: day2.RebootLater}
	if changed, err := a.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	start(t, h)
	if drift := verify(t, h); drift != "" {
		t.Fatalf("drift %s", drift)
	}
	return h, two
}

// TestHandBack: a machine of the daemon that pivot has taken over and changed is the daemon's again, by the daemon's
// own checks. It stays as it is in the next boot. What the daemon removes from it later is as if the daemon had written
// it.
func TestHandBack(t *testing.T) {
	h, two := roundTrip(t)
	h.Write(configdaemon.NodeAnnotations, []byte(`{"machineconfiguration.openshift.io/currentConfig":"rendered-0"}`))
	result, err := handBack(t, h, nil)
	if err != nil || result.Outcome != machine.OutcomeHandedBack || !result.Changed || result.MachineConfig.Name != "rendered-2" {
		t.Fatalf("%+v, %v", result, err)
	}
	d := daemonOf(t, h)
	cluster := map[string][]byte{"rendered-2": two}
	after, err := d.Start(annotations("rendered-2"), cluster)
	if err != nil || fmt.Sprint(after) != fmt.Sprint(annotations("rendered-2")) {
		t.Errorf("the daemon: %v, %v", after, err)
	}
	// Its Node object was created anew: not what the config server had written for the first boot.
	after, err = d.Start(map[string]string{"machineconfiguration.openshift.io/desiredConfig": "rendered-2", "machineconfiguration.openshift.io/lastAppliedDrain": "uncordon-rendered-2"}, cluster)
	if err != nil || after["machineconfiguration.openshift.io/currentConfig"] != "rendered-2" {
		t.Errorf("the daemon of a new Node: %v, %v", after, err)
	}
	if by := recordedBy(t, h); by != machineconfig.RecordedByDaemon {
		t.Errorf("it is recorded by %q", by)
	}
	if notes := start(t, h); notes != "" {
		t.Errorf("the projection: %s", notes)
	}
	mc, err := configdaemon.Parse(two)
	must(t, err)
	must(t, d.Validate(mc))
	for _, path := range []string{"/etc/default", "/etc/new", "/etc/added", "/usr/local/bin/tool"} {
		must(t, d.Remove(path))
	}
	if got := shell(t, h, "cat etc/default etc/new; ls etc/added var/usrlocal/bin/tool 2>/dev/null || :"); got != "default of A.1\nthe image's" {
		t.Errorf("there is %q", got)
	}
	for _, path := range []string{machineconfig.RecordPath, machineconfig.LeftOutPath, "/etc/pivot/var/manifest.json", "/var/lib/pivot/projection/record.json", configdaemon.NodeAnnotations} {
		if _, err := os.Lstat(h.Path(path)); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if result, err := handBack(t, h, nil); err != nil || result.Outcome != machine.OutcomeUnchanged {
		t.Errorf("once more: %+v, %v", result, err)
	}
}

// TestHandBackLabels: the daemon restores an original with the label that it has, so it has that of the file
// that it is a copy of. All else has the policy's label for its own path.
func TestHandBackLabels(t *testing.T) {
	const etc, own = "system_u:object_r:etc_t:s0", "system_u:object_r:default_t:s0"
	h := hostdir.New(t)
	h.SetOrigin("[origin]\ncontainer-image-reference=ostree-unverified-registry:" + daemonsImage + "\n")
	h.Policy("/etc(/.*)? "+etc, "/etc/default "+own)
	h.LoadedPolicy(true, "f")
	h.Write("/etc/default", []byte("one"))
	config := clusterConfig("rendered-1", daemonsImage, "", `"storage":{"files":[{"path":"/etc/default","contents":{"source":"data:,one"}}]}`)
	if _, notes, err := applyHere(t, h, config); err != nil {
		t.Fatalf("%v: %s", err, notes)
	}
	if _, err := handBack(t, h, nil); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{configdaemon.Original("/etc/default"): own, configdaemon.CurrentConfig: etc, configdaemon.CurrentImage: etc} {
		if label, err := hostfiles.LabelOf(h.Path(path)); err != nil || label != want {
			t.Errorf("%s has the label %q, %v, want %q", path, label, err, want)
		}
	}
}

// TestHandBackAndTakeOver: and pivot can take it over again.
func TestHandBackAndTakeOver(t *testing.T) {
	h, two := roundTrip(t)
	if _, err := handBack(t, h, nil); err != nil {
		t.Fatal(err)
	}
	if _, notes, err := applyHere(t, h, two); err != nil || !strings.Contains(notes, "taking over from the machine-config-daemon") {
		t.Fatalf("%v: %s", err, notes)
	}
	if drift := verify(t, h); drift != "" || recordedBy(t, h) != machineconfig.RecordedByPivot {
		t.Errorf("drift %s", drift)
	}
}

// failing is a disk with calls that fail from one on.
type failing struct {
	hostfiles.OS
	left *int
}

var errFull = errors.New("no space left")

func (f failing) fails() bool {
	*f.left--
	return *f.left < 0
}

func (f failing) Rename(from, to string) error {
	if f.fails() {
		return errFull
	}
	return f.OS.Rename(from, to)
}

func (f failing) Remove(path string) error {
	if f.fails() {
		return errFull
	}
	return f.OS.Remove(path)
}

// TestHandBackKilled: after a failure at any point, and a boot, the system is as it was, it is either
// pivot's or the daemon's, and the same command completes it.
func TestHandBackKilled(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 4
	}
	for calls, done := 0, false; !done; calls += step {
		h, two := roundTrip(t)
		mc, err := configdaemon.Parse(two)
		must(t, err)
		left := calls
		_, err = handBack(t, h, failing{left: &left})
		done = err == nil
		start(t, h)
		if err := daemonOf(t, h).Validate(mc); err != nil {
			t.Fatalf("after %d calls: %v", calls, err)
		}
		switch drift := verify(t, h); {
		case recordedBy(t, h) == machineconfig.RecordedByDaemon:
		case recordedBy(t, h) != machineconfig.RecordedByPivot, drift != "":
			t.Fatalf("after %d calls it is recorded by %q, drift %s", calls, recordedBy(t, h), drift)
		}
		if _, err := handBack(t, h, nil); err != nil {
			t.Fatalf("again after %d calls: %v", calls, err)
		}
		after, err := daemonOf(t, h).Start(annotations("rendered-2"), map[string][]byte{"rendered-2": two})
		if err != nil {
			t.Fatalf("after %d calls, the daemon: %v, %v", calls, after, err)
		}
		journal, err := pivot.JournalIn(h.Root).Load()
		if err != nil || len(journal.Target.Entries) > 0 {
			t.Fatalf("after %d calls the journal has %+v, %v", calls, journal.Target, err)
		}
	}
}

// TestHandBackRefuses: nothing is written if the daemon would not find exactly its MachineConfig.
func TestHandBackRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, h *hostdir.Host)
		want    string
	}{
		"drift":                      {func(t *testing.T, h *hostdir.Host) { shell(t, h, "rm etc/added") }, "it differs from its MachineConfig: file /etc/added: missing"},
		"another deployment is next": {committedNext, "the next boot starts another deployment"},
		"a change by hand":           {rebasedByHand, "the last change was not to the MachineConfig that it has"},
		"an interrupted change":      {func(_ *testing.T, h *hostdir.Host) { h.Write("/etc/pivot/live.json", []byte("{}")) }, "was interrupted"},
		"a trial":                    {onTrial, "on trial"},
		"a record that was written to": {func(t *testing.T, h *hostdir.Host) {
			shell(t, h, "sed -i s/rendered-2/rendered-3/ etc/pivot/machineconfig.json")
		}, "the last change was not to"},
		"no MachineConfig": {func(t *testing.T, h *hostdir.Host) {
			shell(t, h, "rm -r etc/pivot/machineconfig.json etc/machine-config-daemon")
		}, "pivot has applied no MachineConfig"},
		"an open first boot": {func(_ *testing.T, h *hostdir.Host) { h.Write(machineconfig.EncapsulatedPath, []byte("{}")) }, "the first boot is not over"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := roundTrip(t)
			c.prepare(t, h)
			const list = "find etc/ var/lib/pivot ! -name '*.lock' -type f -exec sha256sum {} + | sort"
			before := shell(t, h, list)
			if _, err := handBack(t, h, nil); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
				t.Errorf("error %v (%v)", err, fault.HintOf(err))
			}
			if after := shell(t, h, list); after != before {
				t.Errorf("it writes:\n%s\n%s", before, after)
			}
		})
	}
}

func committedNext(t *testing.T, h *hostdir.Host) {
	t.Helper()
	a := day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc.json", Data: clusterConfig("rendered-3", h.Image, `"four=4"`, daemonsConfig)}}
	if changed, err := a.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatal(changed, err)
	}
}

func rebasedByHand(t *testing.T, h *hostdir.Host) {
	t.Helper()
	r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"debug"}}
	if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	h.Boot()
}

func onTrial(t *testing.T, h *hostdir.Host) {
	t.Helper()
	journal := pivot.JournalIn(h.Root)
	content, err := journal.Load()
	must(t, err)
	tried := trial.Trial{Old: "o", New: "n", Seconds: 600, Confirm: trial.ConfirmAuto}
	must(t, errors.Join(tried.KeepIn(&content), journal.Save(content)))
}
