package pivot_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// script is a fake Engine and Images that fails as a test requires, and records the calls.
type script struct {
	calls    []string
	fail     map[string][]error // by call; one error for each call, in order
	progress *pivot.Progress
	request  pivot.Spec
}

func (s *script) call(name string) error {
	phase := s.progress.Content.Phase
	s.calls = append(s.calls, name+"/"+string(phase))
	if errs := s.fail[name]; len(errs) > 0 {
		s.fail[name] = errs[1:]
		return errs[0]
	}
	return nil
}

func (s *script) Import(_ context.Context, i pivot.Image, progress func(pivot.Amount)) (pivot.Image, error) {
	progress(pivot.Amount{Done: 1, Total: 2})
	i.Commit, i.Version = "beef", "B.2"
	return i, s.call("import")
}

func (s *script) Resolve(_ context.Context, i pivot.Image) (pivot.Image, error) {
	return i, s.call("resolve")
}
func (s *script) Check(context.Context, pivot.Image) error              { return s.call("check") }
func (s *script) Secure(context.Context, pivot.Image) error             { return s.call("secure") }
func (s *script) Release(context.Context, pivot.Image, ...string) error { return s.call("release") }
func (s *script) Remove(_ context.Context, images []pivot.Image) error {
	if len(images) == 0 {
		return nil
	}
	return s.call("remove " + images[0].Name.String())
}
func (s *script) Preflight(context.Context, pivot.Plan) error { return s.call("preflight") }
func (s *script) CheckPrepareRoot(context.Context, ostree.PrepareRoot) error {
	return s.call("accept")
}

func (s *script) CheckSpace(context.Context, string) error { return nil }

func (s *script) Prepare(_ context.Context, r pivot.Spec) error {
	s.request = r
	return s.call("prepare")
}
func (s *script) Commit(context.Context, pivot.Spec) error { return s.call("commit") }
func (s *script) Discard(context.Context) error            { return s.call("discard") }

// run carries out targetB on stateA with the given failures.
func run(t *testing.T, fail map[string][]error) (*script, *pivot.Progress, error) {
	t.Helper()
	return runTo(t, targetB(), fail)
}

// runTo is run for a target.
func runTo(t *testing.T, target pivot.Target, fail map[string][]error) (*script, *pivot.Progress, error) {
	t.Helper()
	s := &script{fail: fail}
	err := s.runWith(t, target, func(*pivot.Transaction) {})
	return s, s.progress, err
}

// runWith runs a transaction that is changed before.
func (s *script) runWith(t *testing.T, target pivot.Target, change func(tr *pivot.Transaction)) error {
	t.Helper()
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := func() time.Time { clock = clock.Add(time.Second); return clock }
	s.progress = &pivot.Progress{
		Journal: pivot.JournalIn(t.TempDir()), Emit: func(pivot.Event) {}, Now: now,
	}
	tr := pivot.Transaction{Images: s, Engine: s, Progress: s.progress, Retry: retry.Policy{
		First: time.Second, Cap: 4 * time.Second, Bound: time.Minute, Now: now,
		Sleep: func(_ context.Context, d time.Duration) error { clock = clock.Add(d); return nil },
	}}
	change(&tr)
	if err := s.progress.Open(); err != nil {
		t.Fatal(err)
	}
	plan, err := pivot.Diff(stateA(), target)
	if err != nil {
		t.Fatal(err)
	}
	return tr.Run(t.Context(), plan, 1)
}

// TestTransactionOrder (P4): the intent is journaled before the commit.
func TestTransactionOrder(t *testing.T) {
	s, progress, err := run(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Each call is recorded with the journal's phase at that time.
	if want := []string{"import/applying", "prepare/applying", "secure/applying", "commit/committed"}; !slices.Equal(s.calls, want) {
		t.Errorf("calls %v, want %v", s.calls, want)
	}
	if s.request.Commit != "beef" || s.request.Kargs.String() != "root=LABEL=root rw ostree=/ostree/boot.1/os/x/0 nosmt loglevel=7" {
		t.Errorf("request %+v", s.request)
	}
	kept, err := progress.Journal.Load()
	if err != nil || kept.Phase != pivot.PhaseCommitted || kept.Target.Image.Commit != "beef" || kept.BootID != "boot-1" {
		t.Errorf("journal %+v, %v", kept, err)
	}
}

// TestForgetsBeforeTheCommit: what a killed reboot has prepared is undone right before the commit, and if that fails,
// nothing is committed.
func TestForgetsBeforeTheCommit(t *testing.T) {
	for _, fails := range []error{nil, errors.New("cannot unmount")} {
		s := &script{}
		calls := 0
		err := s.runWith(t, targetB(), func(tr *pivot.Transaction) {
			tr.Forget = func(context.Context) error { calls++; s.calls = append(s.calls, "forget"); return fails }
		})
		want := []string{"import/applying", "prepare/applying", "secure/applying", "forget"}
		if fails == nil {
			want = append(want, "commit/committed")
		} else {
			want = append(want, "discard/applying")
		}
		if !errors.Is(err, fails) || calls != 1 || !slices.Equal(s.calls, want) {
			t.Errorf("calls %v, %v", s.calls, err)
		}
	}
}

func TestTransactionFailures(t *testing.T) {
	down := fault.New(fault.Unavailable, "connection refused")
	for _, c := range []struct {
		name, call string
		errs       []error
		calls      []string
		fails      bool
	}{
		{"registry comes up", "import", []error{down, down}, []string{"import/applying", "import/applying", "import/applying", "prepare/applying", "secure/applying", "commit/committed"}, false},
		{"image is bad", "import", []error{fault.New(fault.BadInput, "no commit")}, []string{"import/applying"}, true},
		{"cannot stage", "prepare", []error{errors.New("no space")}, []string{"import/applying", "prepare/applying", "discard/applying"}, true},
		{"layers are gone", "secure", []error{errors.New("pruned")}, []string{"import/applying", "prepare/applying", "secure/applying", "discard/applying"}, true},
		{"cannot finalize", "commit", []error{errors.New("etc clash")}, []string{"import/applying", "prepare/applying", "secure/applying", "commit/committed"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, err := run(t, map[string][]error{c.call: c.errs})
			if !slices.Equal(s.calls, c.calls) || (err != nil) != c.fails {
				t.Errorf("calls %v (%v), want %v", s.calls, err, c.calls)
			}
		})
	}
}

// TestRetryIsBounded (P7): a transient failure is not retried forever, and the error names it.
func TestRetryIsBounded(t *testing.T) {
	down := make([]error, 1000)
	for i := range down {
		down[i] = fault.New(fault.Unavailable, "connection refused").WithHint("start the registry")
	}
	s, _, err := run(t, map[string][]error{"import": down})
	if fault.KindOf(err) != fault.Unavailable || !regexp.MustCompile(`gave up after 1[4-9] tries in (5\ds|1m[01]s): `).MatchString(err.Error()) {
		t.Errorf("error %v", err)
	}
	if fault.HintOf(err) != "start the registry" {
		t.Errorf("hint %q", fault.HintOf(err))
	}
	if len(s.calls) > 30 {
		t.Errorf("%d tries in a minute", len(s.calls))
	}
}
