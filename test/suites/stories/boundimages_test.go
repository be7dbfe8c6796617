package stories_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// withBootc makes a machine's host have a bootc that stores what it pulls. It returns what is stored.
func withBootc(h *hostdir.Host, m *machine.Machine, stored *[]string) {
	h.Write("/usr/bin/bootc", nil)
	h.Write("/etc/ostree/auth.json", h.Registry.PullSecret(h.Registry.Host()))
	others := m.Host.Run
	m.Host.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		if argv[0] != "bootc" {
			return others(ctx, argv...)
		}
		*stored = append(*stored, argv[len(argv)-1])
		store(h, *stored...)
		return nil, nil
	}
}

// store makes bootc's storage on a host have these images, and no others.
func store(h *hostdir.Host, names ...string) {
	h.Write("/sysroot/"+hostimages.BoundStorage+"/overlay-images/images.json", []byte(`[{"names": ["`+strings.Join(names, `"]}, {"names": ["`)+`"]}]`))
}

// importOnly imports the next system's image, as "pivot image import".
func importOnly(t *testing.T, h *hostdir.Host, m *machine.Machine) {
	t.Helper()
	ref, err := imageref.Parse(h.Image)
	must(t, err)
	image, err := m.Puller.Open(t.Context(), ref)
	must(t, err)
	defer image.Close()
	repo, err := ostree.OpenRepo(h.Sysroot().RepoPath())
	must(t, err)
	_, err = image.Import(t.Context(), repo, nil)
	must(t, err)
}

// serveBinding makes the next system's image bind an application image, and returns its name.
func serveBinding(t *testing.T, h *hostdir.Host) (app string) {
	t.Helper()
	digest, err := h.Registry.Push(t.Context(), "apps/app", "1", h.NativeImage(oscontainer.WithDerived(oscontainer.File("app", "app"))))
	must(t, err)
	app = h.Registry.Host() + "/apps/app@" + digest
	h.Serve(h.NativeImage(oscontainer.WithDerived(
		oscontainer.File("usr/share/containers/systemd/app.container", "[Container]\nImage="+app+"\n"),
		oscontainer.Symlink(osimage.BoundDir+"/app.container", "../../../share/containers/systemd/app.container"))))
	return app
}

// TestBoundImages: a pivot by hand to an OS image that binds an application image. Without a bootc it is refused and
// leaves the machine as it was, unless told otherwise; with one the application image is there before the commit. From
// then on verify reports when it is missing.
func TestBoundImages(t *testing.T) {
	h := hostdir.New(t)
	app := serveBinding(t, h)
	r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), app) || !strings.Contains(fault.HintOf(err), "--bound-images=ignore") {
		t.Errorf("without bootc: %v (%s)", err, fault.HintOf(err))
	}
	if staged, err := h.Sysroot().Staged(); staged != nil || err != nil || len(h.Ostree.Calls) > 0 {
		t.Errorf("staged %v, %v, calls %v", staged, err, h.Ostree.Calls)
	}

	r = day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	importOnly(t, h, r.Machine)
	var stored []string
	withBootc(h, r.Machine, &stored)
	plan, err := r.Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	if !slices.ContainsFunc(plan.Notes, func(note string) bool {
		return strings.Contains(note, "binds application images") && strings.Contains(note, "lacks "+app)
	}) {
		t.Errorf("the plan's notes %q do not name %s", plan.Notes, app)
	}
	_, err = r.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	if !slices.Equal(stored, []string{app}) {
		t.Errorf("bootc has stored %q", stored)
	}
	h.Boot()
	expectMissing := func(want ...string) {
		t.Helper()
		differences, err := newMachine(t, h).Verify(t.Context())
		must(t, err)
		var missing []string
		for _, d := range differences {
			if d.Class == pivot.ClassBoundImage && d.Wrong == pivot.WrongMissing {
				missing = append(missing, d.Name)
			}
		}
		if !slices.Equal(missing, want) {
			t.Errorf("verify reports %q, want %q", missing, want)
		}
	}
	expectMissing()
	store(h, "quay.example/other:1")
	expectMissing(app)
	h.Write(settings.Path, []byte("bound-images=ignore\n"))
	expectMissing()
}

// TestBoundImagesIgnoredUntilProven: the flag to go on without application images counts until the new system is
// proven, although what proves it there has no flags. A trial by hand and by the setting fallback, and what gives the
// fleet's slot back. verify still reports what is missing.
func TestBoundImagesIgnoredUntilProven(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		try      *trial.Terms
		slot     bool
	}{
		"a trial that confirms itself": {try: &trial.Terms{For: 10 * time.Minute, Confirm: trial.ConfirmAuto}},
		"a trial by hand":              {try: &trial.Terms{For: 10 * time.Minute, Confirm: trial.ConfirmByHand}},
		"the setting fallback":         {settings: "fallback=auto\n"},
		"the fleet's lock":             {slot: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t)
			m.oneShot()
			app := serveBinding(t, m.Host)
			if !c.slot {
				m.Write(settings.Path, []byte(c.settings))
			}
			machine := m.newMachine()
			machine.BoundImages = settings.BoundImagesIgnore
			if c.try != nil {
				trying(machine, *c.try)
			}
			r := day2.Rebase{Machine: machine, Image: m.Image, Reboot: true}
			_, err := r.Run(stoppedByReboot(t, machine, m.Host), day2.RunOptions{})
			must(t, err)
			m.enter()
			switch {
			case c.slot:
				m.expectSlot(true, "pre-reboot")
				must(t, m.release())
				m.expectSlot(false, "steady-state")
			case c.try != nil && c.try.Confirm == trial.ConfirmByHand:
				must(t, m.confirm())
			default:
				must(t, m.conduct())
			}
			m.expect("B A", pivot.PhaseDone, false)
			differences, err := newMachine(t, m.Host).Verify(t.Context())
			if must(t, err); len(differences) != 1 || differences[0].Name != app {
				t.Errorf("verify reports %+v", differences)
			}
		})
	}
}
