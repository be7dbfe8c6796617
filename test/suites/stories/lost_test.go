package stories_test

import (
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/pinning"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// planned returns the notes of the plan, and of the change, of a rebase by hand.
func planned(t *testing.T, h *hostdir.Host, r day2.Rebase) (plan, change string) {
	t.Helper()
	r.Machine = newMachine(t, h)
	p, err := r.Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	r.Machine = newMachine(t, h)
	r.Progress.Emit = func(e pivot.Event) { change += e.Message + "\n" }
	_, err = r.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	return strings.Join(p.Notes, "\n"), change
}

// TestLostWithThePending: a second change by hand before the reboot starts from the running system. Its plan and its notes say
// what is lost with the first one: image, arguments in both directions, files; and nothing that it brings itself.
func TestLostWithThePending(t *testing.T) {
	h := hostdir.New(t)
	for _, c := range []struct {
		change     day2.Rebase
		lost, kept []string
	}{
		{day2.Rebase{Append: []string{"first=1"}, Delete: []string{"rw"}, Pinning: management(t, "0-1")}, nil, nil},
		{day2.Rebase{Append: []string{"second=2"}}, []string{"kernel argument first=1", "the deletion of kernel argument rw", pinning.DropInPath}, []string{"image", "second=2"}},
		{day2.Rebase{Image: h.Image}, []string{"kernel argument second=2"}, []string{"image", "first=1", pinning.DropInPath}},
		{day2.Rebase{Image: h.Image, Append: []string{"third=3"}}, nil, []string{"image"}},
		{day2.Rebase{Append: []string{"third=3"}}, []string{"image " + h.Image}, []string{"third=3"}},
	} {
		plan, change := planned(t, h, c.change)
		for place, notes := range map[string]string{"plan": plan, "change": change} {
			var lost string
			for line := range strings.Lines(notes) {
				if strings.HasPrefix(line, "lost with deployment ") {
					lost += line
				}
			}
			if len(c.lost) == 0 && lost != "" {
				t.Errorf("%s of %+v says %q", place, c.change, lost)
			}
			for _, what := range c.lost {
				if !strings.Contains(lost, what) {
					t.Errorf("%s of %+v does not say that %s is lost: %s", place, c.change, what, notes)
				}
			}
			_, what, _ := strings.Cut(lost, "running system: ")
			for _, k := range c.kept {
				if strings.Contains(what, k) {
					t.Errorf("%s of %+v says that %s is lost: %q", place, c.change, k, lost)
				}
			}
		}
	}
}

// TestFirstBootPutIntoEffectByOthers: during a first boot another program has made its image the next boot, without
// arguments and files. The next boot finds that and mends it.
func TestFirstBootPutIntoEffectByOthers(t *testing.T) {
	h := newHost(t)
	commit := h.PullCommit()
	must(t, os.WriteFile(h.Path("/run/origin"), []byte("[origin]\nrefspec="+commit+"\ncustom-url=pivot://"+h.Image+"\ncustom-description=Managed by pivot\n"), 0o644))
	_, err := h.Run(t.Context(), "ostree", "admin", "deploy", "--os=os", "--karg-none", "--karg-append=root=LABEL=root", "--karg-append=rw",
		"--origin-file="+h.Path("/run/origin"), commit)
	must(t, err)
	_, err = h.Run(t.Context(), "ostree", "refs", "--repo="+h.Sysroot().RepoPath(), "--delete", "pivot/"+commit)
	must(t, err)
	h.Boot()
	if h.Version() != "B.2" {
		t.Fatalf("booted %s", h.Version())
	}
	must(t, boot(t, h))
	h.Boot()
	must(t, boot(t, h))
	expectClosed(t, h)
	if drift, err := newMachine(t, h).Verify(t.Context()); err != nil || len(drift) > 0 || !strings.Contains(h.Options(), "nosmt") {
		t.Errorf("drift %q, %v; options %s", drift, err, h.Options())
	}
}
