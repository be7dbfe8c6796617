package pivot_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

const (
	imageA = "registry.example/os@sha256:aaaa"
	imageB = "registry.example/os@sha256:bbbb"
)

func image(reference string) pivot.Image {
	return pivot.ImageOf(imageref.FromOrigin(reference))
}

func stateA() pivot.State {
	d := pivot.Deployment{Stateroot: "os", Commit: "c0ffee", Image: image(imageA), Options: kargs.Split("root=LABEL=root rw ostree=/ostree/boot.1/os/x/0")}
	return pivot.State{BootID: "boot-1", Booted: d, Default: d, Cmdline: d.Options}
}

var dropIn = hostfiles.NewFile("/etc/crio/crio.conf.d/50-workload-partitioning.conf", 0o644, []byte("x"))

func targetB() pivot.Target {
	return pivot.Target{Image: image(imageB), Kargs: kargs.Change{New: kargs.Split("nosmt loglevel=7")}, Entries: []hostfiles.Entry{dropIn.Entry}}
}

func TestDiff(t *testing.T) {
	plan, err := pivot.Diff(stateA(), targetB())
	if err != nil {
		t.Fatal(err)
	}
	want := pivot.Plan{
		Changed: true, Reboots: 1,
		Image: pivot.ImageChange{Changed: true, From: imageA, To: imageB},
		Kargs: kargs.Result{
			Changed: true, Final: kargs.Split("root=LABEL=root rw ostree=/ostree/boot.1/os/x/0 nosmt loglevel=7"),
			Appended: kargs.Line{"nosmt", "loglevel=7"}, Deleted: kargs.Line{},
		},
		Entries:  []pivot.EntryChange{{Path: dropIn.Path, Action: pivot.ChangeCreate}},
		Units:    []pivot.UnitChange{},
		Packages: []pivot.PackageChange{}, Notes: []string{},
	}
	if got, want := document(t, plan), document(t, want); got != want {
		t.Errorf("plan is\n%s\nwant\n%s", got, want)
	}
}

// document returns a plan as JSON.
func document(t *testing.T, plan pivot.Plan) string {
	t.Helper()
	text, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDiffOfAConvergedHostIsEmpty(t *testing.T) {
	state := stateA()
	state.Booted.Image = image("mirror.example/os@sha256:bbbb")
	state.Booted.Options = kargs.Split("loglevel=7 root=LABEL=root nosmt ostree=/x")
	state.Cmdline = state.Booted.Options
	state.Etc.Entries = map[string]hostfiles.Entry{dropIn.Path: dropIn.Entry}
	plan, err := pivot.Diff(state, targetB())
	if err != nil || plan.Changed || plan.Reboots != 0 {
		t.Errorf("plan %+v, %v; want none: other order, other name of the same digest", plan, err)
	}
	if differences := pivot.Prove(state, targetB()); len(differences) != 0 {
		t.Errorf("Prove = %q", differences)
	}
}

// TestDiffOfSpelling: another spelling alone is a change only if the target is literal. A
// deployment that is made for another reason gets the arguments as spelled in the target.
func TestDiffOfSpelling(t *testing.T) {
	const asked = `log_buf_len=1M cgroup_no_v1="all"`
	state := stateA()
	state.Booted.Options = kargs.Split("log-buf-len=1M rw cgroup_no_v1=all")
	state.Cmdline = state.Booted.Options
	target := pivot.Target{Kargs: kargs.Change{New: kargs.Split(asked)}}

	plan, err := pivot.Diff(state, target)
	if err != nil || plan.Changed || plan.Reboots != 0 || !plan.Kargs.Final.Equal(state.Booted.Options) || len(plan.Kargs.Respelled) > 0 {
		t.Errorf("by meaning: %+v, %v; want no change", plan, err)
	}
	if notes := strings.Join(plan.Notes, "\n"); strings.Count(notes, "another spelling") != 2 || !strings.Contains(notes, "log_buf_len=1M") {
		t.Errorf("by meaning: notes %q", plan.Notes)
	}
	if differences := pivot.Prove(state, target); len(differences) > 0 {
		t.Errorf("by meaning: Prove = %q", differences)
	}

	with := target
	with.Image = image(imageB)
	plan, err = pivot.Diff(state, with)
	if want := `log_buf_len=1M rw cgroup_no_v1="all"`; err != nil || plan.Kargs.Final.String() != want || plan.Kargs.Changed {
		t.Errorf("beside another change: %+v, %v; want %s", plan.Kargs, err, want)
	}

	target.Kargs.Literal = true
	plan, err = pivot.Diff(state, target)
	if err != nil || !plan.Changed || plan.Reboots != 1 || plan.Kargs.Respelled.String() != asked {
		t.Errorf("to the letter: %+v, %v; want a change", plan, err)
	}
	differences := pivot.Prove(state, target)
	if len(differences) != 2 || !strings.Contains(differences[0], "log_buf_len=1M: in the boot entry in another spelling only") {
		t.Errorf("to the letter: Prove = %q", differences)
	}
	state.Booted.Options = plan.Kargs.Final // state.Cmdline keeps the old spelling, as a boot loader may
	if differences := pivot.Prove(state, target); len(differences) > 0 {
		t.Errorf("to the letter, after the change: %q", differences)
	}
}

// A kernel command line that is too long already is accepted if it does not change. One that
// becomes too long by a change of its spelling is refused.
func TestDiffOfALongLine(t *testing.T) {
	long := "x=" + strings.Repeat("y", kargs.MaxLength-len("x= a-b"))
	state := stateA()
	for _, c := range []struct {
		booted, new string
		refused     bool
	}{
		{long + "yy quiet", "quiet", false},
		{long + " a-b", "a-b", false},
		{long + " a-b", `"a_b"`, true},
	} {
		state.Booted.Options = kargs.Split(c.booted)
		_, err := pivot.Diff(state, pivot.Target{Image: image(imageB), Kargs: kargs.Change{New: kargs.Split(c.new)}})
		if (fault.KindOf(err) == fault.BadInput) != c.refused {
			t.Errorf("%s over %d bytes: %v", c.new, len(c.booted), err)
		}
		if _, err := pivot.Diff(state, pivot.Target{Kargs: kargs.Change{New: kargs.Split(c.new)}}); err != nil {
			t.Errorf("%s over %d bytes, with nothing to change: %v", c.new, len(c.booted), err)
		}
	}
}

func TestDiffRefusesALineTheKernelWouldCut(t *testing.T) {
	target := pivot.Target{Kargs: kargs.Change{New: kargs.Line{"x=" + strings.Repeat("y", kargs.MaxLength)}}}
	_, err := pivot.Diff(stateA(), target)
	if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "2047") {
		t.Errorf("Diff = %v", err)
	}
}

func TestProveNamesEachDifference(t *testing.T) {
	target := targetB()
	target.Image.Commit = "beef"
	state := stateA()
	other := dropIn
	other.Mode = 0o600
	state.Etc.Entries = map[string]hostfiles.Entry{dropIn.Path: other.Entry}
	got := strings.Join(pivot.Prove(state, target), "\n")
	for _, want := range []string{imageB, "beef", "nosmt", "loglevel=7", dropIn.Path + ": differs"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

func TestProveLooksAtTheRunningKernel(t *testing.T) {
	target := pivot.Target{Kargs: kargs.Change{New: kargs.Line{"nosmt"}}}
	state := stateA()
	state.Booted.Options = append(state.Booted.Options, "nosmt")
	got := pivot.Prove(state, target)
	if len(got) != 1 || !strings.Contains(got[0], "running kernel") {
		t.Errorf("Prove = %q, want that the running kernel lacks nosmt", got)
	}
}

// TestNotesOfOthers: a deployment that waits is named in the plan, and whether its image stays.
func TestNotesOfOthers(t *testing.T) {
	other := pivot.Deployment{Stateroot: "os", Commit: "cafe", Image: image(imageB), Options: stateA().Booted.Options}
	for name, c := range map[string]struct {
		change func(s *pivot.State)
		want   []string
	}{
		"none":        {func(*pivot.State) {}, nil},
		"the default": {func(s *pivot.State) { s.Default = other }, []string{"deployment " + other.ID() + " is pending and will be replaced"}},
		"staged": {func(s *pivot.State) {
			s.Default = other
			s.Default.Staged = true
		}, []string{"deployment " + other.ID() + " is staged and will be replaced; its image, " + imageB + ", stays in the repository until the next change"}},
		"locked": {func(s *pivot.State) { s.HeldBack = &other }, []string{"deployment " + other.ID() + " is staged and locked, as by bootc upgrade --download-only, and will be dropped; its image, " + imageB + ", stays in the repository until the next change"}},
	} {
		state := stateA()
		c.change(&state)
		plan, err := pivot.Diff(state, pivot.Target{Image: image("registry.example/os@sha256:cccc")})
		if err != nil || !slices.Equal(plan.Notes, c.want) {
			t.Errorf("%s: %q, %v", name, plan.Notes, err)
		}
	}
}

// TestFailures: what users may change at any time is drift and no failure, by each of the reasons alone.
func TestFailures(t *testing.T) {
	file := hostfiles.NewFile("/etc/x", 0o644, []byte("x")).Entry
	with := func(change func(e *hostfiles.Entry)) hostfiles.Entry {
		e := file
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		want  hostfiles.Entry
		users bool // the directory is theirs
		fails bool
	}{
		"root's":                   {file, false, true},
		"in a directory of theirs": {file, true, false},
		"of a user":                {with(func(e *hostfiles.Entry) { e.UID = 1 }), false, false},
		"of a named user":          {with(func(e *hostfiles.Entry) { e.User = "core" }), false, false},
		"of a group":               {with(func(e *hostfiles.Entry) { e.GID = 1 }), false, true},
		"a group may write":        {with(func(e *hostfiles.Entry) { e.GID, e.Mode = 1, 0o664 }), false, false},
		"a named group may write":  {with(func(e *hostfiles.Entry) { e.Group, e.Mode = "wheel", 0o664 }), false, false},
		"root's group may write":   {with(func(e *hostfiles.Entry) { e.Mode = 0o664 }), false, true},
		"all may write":            {with(func(e *hostfiles.Entry) { e.Mode = 0o646 }), false, false},
		"a link":                   {hostfiles.NewLink("/etc/x", "y").Entry, false, true},
		"a link that all may write": {with(func(e *hostfiles.Entry) {
			*e = hostfiles.NewLink("/etc/x", "y").Entry
			e.Mode = 0o777
		}), false, true},
	} {
		state := stateA()
		state.Etc = pivot.Etc{Entries: map[string]hostfiles.Entry{}, Users: map[string]bool{"/etc/x": c.users},
			Accounts: hostfiles.Accounts{Users: map[string]int{"core": 1}, Groups: map[string]int{"wheel": 1}}}
		target := pivot.Target{Entries: []hostfiles.Entry{c.want}}
		if got := pivot.Failures(state, target); len(got) > 0 != c.fails || len(pivot.Prove(state, target)) == 0 {
			t.Errorf("%s: failures %q", name, got)
		}
	}
}
