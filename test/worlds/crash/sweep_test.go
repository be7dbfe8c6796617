package crash_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/crash"
)

// long enables pairs of crashes for every machine: all of them, or PIVOT_SWEEP_PAIRS of each.
var long = os.Getenv("PIVOT_SWEEP") == "long"

// samplePairs is the size of the sample of pairs, unless a sweep is long.
const samplePairs = 120

// maxPairs returns how many pairs of one machine are tried.
func maxPairs() int {
	if !long {
		return samplePairs
	}
	if n, err := strconv.Atoi(os.Getenv("PIVOT_SWEEP_PAIRS")); err == nil {
		return n
	}
	return math.MaxInt
}

// shownFailures is how many failures of one machine are shown.
const shownFailures = 5

// singleStep is the step of the sample of single crashes in a short run.
const singleStep = 211

// TestSweep (P1, P3, P25, P28, P56) crashes a whole first boot, and a whole live change: before, during and after each
// effect, with each kind of loss, once and twice.
func TestSweep(t *testing.T) {
	for _, machine := range []struct {
		name     string
		variants []crash.Variant
		reboots  int
		step     int // of a sample of the single crashes; 0: all of them, and pairs, as a long sweep tries of each
	}{
		{"in the started system", nil, 1, 0},
		{"from the initramfs", []crash.Variant{crash.FromInitramfs}, 1, 0},
		{"taken back and forward again", []crash.Variant{crash.TakenBack}, 2, 17},
		{"with a fallback", []crash.Variant{crash.Guarded(0)}, 1, 17},
		{"from the initramfs, with a fallback and a kernel that is dead once", []crash.Variant{crash.FromInitramfs, crash.Guarded(1)}, 2, 17},
		{"with entries of each kind", []crash.Variant{crash.Configured}, 1, 17},
		{"to a container build's image, with files that Ignition wrote", []crash.Variant{crash.Built, crash.Served}, 1, 17},
		{"a change of the running system", []crash.Variant{crash.Changed}, 0, 17},
		{"a change of the running system, which a service refuses", []crash.Variant{crash.Refused}, 0, 17},
		{"a trial that is confirmed", []crash.Variant{crash.Tried(crash.Confirmed)}, 1, 17},
		{"a trial that fails, with a boot loader that only knows a default", []crash.Variant{crash.Tried(crash.TimedOut), crash.WithoutOneShot}, 2, 17},
		{"a trial whose kernel panics", []crash.Variant{crash.Tried(crash.Panics)}, 1, 17},
		{"a trial that is confirmed, with GRUB's static configuration", []crash.Variant{crash.Tried(crash.Confirmed), crash.StaticGRUB}, 1, 17},
		{"a trial whose kernel panics, with GRUB's static configuration", []crash.Variant{crash.Tried(crash.Panics), crash.StaticGRUB}, 1, 17},
	} {
		t.Run(machine.name, func(t *testing.T) {
			s := newSweep(t, machine.variants)
			s.reboots = machine.reboots
			if machine.step > 0 {
				s.sampled(machine.name, machine.step)
				return
			}
			s.report(machine.name)
		})
	}
}

// TestSweepOfVar (P57) crashes a machine that boots deployments forward and back, each of which
// projects entries of its own into the shared /var.
func TestSweepOfVar(t *testing.T) {
	need.Root(t)
	s := sweepOf(t, func(dir string, points []crash.Point) (machine, error) { return crash.NewSwitching(dir, points) })
	s.reboots = 3
	s.sampled("that switches /var", 17)
}

// TestSweepOfVarNotices (P57): the sweep finds a program that projects the entries of the next
// system before the rename that commits it, and one that syncs nothing.
func TestSweepOfVarNotices(t *testing.T) {
	need.Root(t)
	for name, broken := range map[string]struct {
		variant func(*crash.Switching)
		want    string
	}{
		"projected before the rename": {crash.Hasty, "while deployment 0 runs, /var/"},
		"files not synced":            {crash.UnsyncedVar, "cannot use /var/lib/pivot/projection/record.json"},
	} {
		t.Run(name, func(t *testing.T) {
			sweepOf(t, func(dir string, points []crash.Point) (machine, error) {
				return crash.NewSwitching(dir, points, broken.variant)
			}).notices(broken.want)
		})
	}
}

// report runs the sweep, logs the result, and checks the number of cases.
func (s *sweep) report(name string) {
	s.t.Helper()
	s.logged(name, s.all)
	if least := s.points + samplePairs; s.cases < least && !testing.Short() {
		s.t.Errorf("only %d cases, want %d", s.cases, least)
	}
}

// sampled tries every step-th single crash and logs the result. A long sweep tries all of them, and
// all pairs.
func (s *sweep) sampled(name string, step int) {
	s.t.Helper()
	if long || testing.Short() {
		s.keyStep = 0
		s.report(name)
		return
	}
	s.logged(name, func() { s.singles(step) })
}

// logged runs the sweep function and logs the result.
func (s *sweep) logged(name string, sweep func()) {
	s.t.Helper()
	start := time.Now()
	sweep()
	for _, f := range s.failures[:min(shownFailures, len(s.failures))] {
		s.t.Error(f)
	}
	s.t.Logf("swept crashes of a simulated machine, %s: %d effects, %d points, %d states after them, %d pairs, %d cases, %d boots, %d failures, %.0f s",
		name, s.effects, s.points, s.states, s.pairs, s.cases, s.boots, len(s.failures), time.Since(start).Seconds())
}

// notices sweeps until a failure contains want, and fails the test if none does.
func (s *sweep) notices(want string) {
	s.until = want
	s.singles(1)
	if s.noticed == nil {
		s.t.Fatalf("not noticed in %d cases: %v", s.cases, s.failures)
	}
	s.t.Logf("noticed within %d cases: %v", s.cases, s.noticed)
}

// TestSweepNotices (P7, P24, P56) tests the sweep itself: it finds programs that lack one
// guarantee.
func TestSweepNotices(t *testing.T) {
	for _, broken := range []struct {
		name     string
		variants []crash.Variant
		want     string
	}{
		{"commit left to the shutdown", []crash.Variant{crash.LeftToShutdown}, "stranded"},
		{"finalized before the commit", []crash.Variant{crash.Premature}, "step prepare may write deployment"},
		{"files not synced", []crash.Variant{crash.Unsynced}, "cannot use journal"},
		{"file modes ignored", []crash.Variant{crash.Served, crash.Careless}, "everybody may read the secret"},
		{"live change without journal", []crash.Variant{crash.Changed, crash.Unjournaled}, "a mixture"},
		{"live change not synced", []crash.Variant{crash.Changed, crash.Unsynced}, "cannot use its journal"},
		{"live change, file modes ignored", []crash.Variant{crash.Changed, crash.Careless}, "everybody may read the secret"},
		{"Ignition's files not synced", []crash.Variant{crash.FromInitramfs, crash.IgnitionUnsynced}, "what Ignition wrote is lost"},
		{"trial, new system is the default too early", []crash.Variant{crash.Tried(crash.Panics), crash.DefaultTooEarly}, "the trial never ends"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			sample.Short(t, 3)
			newSweep(t, broken.variants).notices(broken.want)
		})
	}
}

// machine is one life of a simulated machine.
type machine interface {
	Live() error
	Lived() crash.Life
	StopIfKnown(known func(state string) bool)
}

// sweep runs the cases and counts them.
type sweep struct {
	t       *testing.T
	dir     string
	make    func(dir string, points []crash.Point) (machine, error)
	reboots int    // wanted for a life without crashes
	keyStep int    // of a sample of the crashes at key effects; 0: each is in it
	until   string // stop at the first failure that contains this; "": run all cases

	mu                            sync.Mutex
	effects, points, cases, boots int
	states, pairs                 int // distinct states after the crashes, and pairs that are not duplicates
	failures                      []error
	noticed                       error           // the failure that contains until
	followed                      map[string]bool // the states that a life was followed from; nil: do not stop at them
}

func newSweep(t *testing.T, variants []crash.Variant) *sweep {
	t.Helper()
	return sweepOf(t, func(dir string, points []crash.Point) (machine, error) { return crash.New(dir, points, variants...) })
}

func sweepOf(t *testing.T, make func(dir string, points []crash.Point) (machine, error)) *sweep {
	t.Helper()
	s := &sweep{t: t, dir: t.TempDir(), make: make, reboots: 1}
	// Use memory if possible: each case writes some hundred small files.
	if dir, err := os.MkdirTemp("/dev/shm", "pivot-sweep-*"); err == nil {
		s.dir = dir
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	return s
}

// life is the crashes of one machine, with the resulting effects and state.
type life struct {
	points  []crash.Point
	effects []crash.Effect
	state   crash.State
}

// runAll runs the lives, with one worker per processor.
func (s *sweep) runAll(lives []life) {
	next := make(chan *life)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for l := range next {
				s.runOne(l)
			}
		})
	}
	lastReport := time.Now()
	for i := range lives {
		if s.done() {
			break
		}
		next <- &lives[i]
		if time.Since(lastReport) > time.Minute {
			s.t.Logf("%d of %d", i, len(lives))
			lastReport = time.Now()
		}
	}
	close(next)
	workers.Wait()
}

func (s *sweep) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noticed != nil
}

func (s *sweep) runOne(l *life) {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		s.t.Error(err)
		return
	}
	defer os.RemoveAll(dir)
	m, err := s.make(dir, slices.Clone(l.points))
	if err != nil {
		s.t.Error(err)
		return
	}
	if s.followed != nil {
		m.StopIfKnown(s.known)
	}
	if err = m.Live(); errors.Is(err, crash.ErrKnown) {
		err = nil
	}
	result := m.Lived()
	if err == nil && len(l.points) == 0 && result.Reboots != s.reboots {
		err = fmt.Errorf("%d reboots, want %d", result.Reboots, s.reboots)
	}
	if len(l.points) < 2 {
		l.effects, l.state = result.Effects, result.State // for the pairs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cases++
	s.boots += result.Boots
	if err == nil {
		return
	}
	err = fmt.Errorf("%v: %w", l.points, err)
	if s.failures = append(s.failures, err); long && len(s.failures) <= shownFailures {
		s.t.Log(err) // the end may be hours away
	}
	if s.until != "" && strings.Contains(err.Error(), s.until) {
		s.noticed = err
	}
}

// known reports whether a life was followed from this state. If not, the caller follows it.
func (s *sweep) known(state string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.followed[state]
	s.followed[state] = true
	return was
}

// after returns all points at effects[done:].
func after(done int, effects []crash.Effect) []crash.Point {
	var points []crash.Point
	for i := done; i < len(effects); i++ {
		for _, loss := range crash.Losses() {
			for _, when := range []crash.When{crash.Before, crash.Within, crash.After} {
				if when == crash.Within && !effects[i].Parts || when == crash.Within && loss == crash.Terminate {
					continue
				}
				points = append(points, crash.Point{Effect: i + 1, When: when, Loss: loss})
			}
		}
	}
	return points
}

// singles tries every step-th single crash, and each at a key effect, or every keyStep-th, and returns the lives. A short
// run treats all effects alike.
func (s *sweep) singles(step int) []life {
	undisturbed := []life{{}}
	s.runAll(undisturbed)
	s.effects = len(undisturbed[0].effects)
	var keys, others []life
	for n, p := range after(0, undisturbed[0].effects) {
		l := life{points: []crash.Point{p}}
		switch key := undisturbed[0].effects[p.Effect-1].Key; {
		case key && n%max(1, s.keyStep) == 0 && (n%step == 0 || !testing.Short()):
			keys = append(keys, l)
		case !key && n%step == 0:
			others = append(others, l)
		}
	}
	if s.until != "" {
		keys, others = spread(keys), spread(others)
	}
	lives := slices.Concat(keys, others)
	s.points = len(lives)
	s.runAll(lives)
	return lives
}

// spread reorders lives so that the first few crash all over a life. A defect is then found after
// fewer cases.
func spread(lives []life) []life {
	spread := make([]life, 0, len(lives))
	for first := range singleStep {
		for n := first; n < len(lives); n += singleStep {
			spread = append(spread, lives[n])
		}
	}
	return spread
}

// all tries each single crash and a sample of the pairs. A short run tries a sample of the single
// crashes, and no pairs.
func (s *sweep) all() {
	if testing.Short() {
		s.singles(singleStep)
		return
	}
	var pairs []life
	states := map[string]life{}
	for _, l := range s.singles(1) {
		like, again := states[l.state.Digest]
		if again = again && l.state.Digest != ""; again {
			s.expectAlike(like, l)
		} else {
			states[l.state.Digest] = l
		}
		for _, second := range after(l.points[0].Effect, l.effects) {
			if again && second.Effect > l.state.Effects {
				continue // an earlier life with the same state crashes there
			}
			pairs = append(pairs, life{points: []crash.Point{l.points[0], second}})
		}
	}
	s.states, s.pairs = len(states), len(pairs)
	// Random but reproducible: every nth pair would always have the same losses.
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	pairs = pairs[:min(maxPairs(), len(pairs))]
	if long {
		s.followed = map[string]bool{}
		for state := range states {
			s.followed[state] = true
		}
	}
	s.runAll(pairs)
	s.states += max(0, len(s.followed)-len(states))
}

// expectAlike fails the test if two lives with the same state continue with different effects.
func (s *sweep) expectAlike(a, b life) {
	if !slices.Equal(a.effects[a.state.Effects:], b.effects[b.state.Effects:]) {
		s.t.Errorf("the state after %v is that after %v, and the lives go on with\n%v\n%v", b.points, a.points, b.effects[b.state.Effects:], a.effects[a.state.Effects:])
	}
}
