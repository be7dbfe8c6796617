package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"machine-pivot/test/crash"
	"machine-pivot/test/need"
)

// long asks for every pair of crashes instead of a sample.
var long = os.Getenv("PIVOT_SWEEP") == "long"

// samplePairs is how many pairs of crashes are tried where not all are.
const samplePairs = 250

// everySingle is the step of the sample of single crashes in a short run.
const everySingle = 101

// TestSweep (P1, P3, P25, P28, P56, D9, D26) crashes a whole first boot, and a whole change of
// the running system, at each effect, before it, in
// the middle of it and after it, in each way there is, once and twice.
func TestSweep(t *testing.T) {
	for _, machine := range []struct {
		name     string
		variants []crash.Variant
		reboots  int
	}{
		{"in the started system", nil, 1},
		{"from the initramfs", []crash.Variant{crash.FromInitramfs}, 1},
		{"taken back and forward again", []crash.Variant{crash.TakenBack}, 2},
		{"with entries of each kind", []crash.Variant{crash.Configured}, 1},
		{"to a container build's image, with files that Ignition wrote", []crash.Variant{crash.Built, crash.Served}, 1},
		{"a change of the running system", []crash.Variant{crash.Changed}, 0},
		{"a change of the running system, which a service refuses", []crash.Variant{crash.Refused}, 0},
		{"a trial that is confirmed", []crash.Variant{crash.Tried(crash.Confirmed)}, 1},
		{"a trial that fails, with a boot loader that only knows a default", []crash.Variant{crash.Tried(crash.TimedOut), crash.WithoutOneShot}, 2},
		{"a trial whose kernel panics", []crash.Variant{crash.Tried(crash.Panics)}, 1},
	} {
		t.Run(machine.name, func(t *testing.T) {
			s := newSweep(t, machine.variants)
			s.reboots = machine.reboots
			s.report(machine.name)
		})
	}
}

// TestSweepOfVar (P57) crashes a machine that boots deployments forward and back, each of which
// projects entries of its own into the /var that they share.
func TestSweepOfVar(t *testing.T) {
	need.Root(t)
	s := sweepOf(t, func(dir string, points []crash.Point) (machine, error) { return crash.NewSwitching(dir, points) })
	s.reboots = 3
	s.report("that switches /var")
}

// TestSweepOfVarNotices (P57): the sweep finds a program that projects what the next system
// asks for before the rename that commits it, and one that syncs nothing.
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

// report sweeps, and tells of it.
func (s *sweep) report(name string) {
	s.t.Helper()
	s.tell(name, s.all)
	if least := s.points + samplePairs; s.cases < least && !testing.Short() {
		s.t.Errorf("only %d cases, want %d", s.cases, least)
	}
}

// sampled sweeps each so-manyth single crash, and tells of it: all of them, and pairs, only
// where a long sweep is asked for.
func (s *sweep) sampled(name string, single int) {
	s.t.Helper()
	if long || testing.Short() {
		s.report(name)
		return
	}
	s.tell(name, func() { s.singles(single) })
}

// tell sweeps by a function, and tells of it.
func (s *sweep) tell(name string, sweep func()) {
	s.t.Helper()
	start := time.Now()
	sweep()
	for _, f := range s.failures[:min(5, len(s.failures))] {
		s.t.Error(f)
	}
	s.t.Logf("swept crashes of a simulated machine, %s: %d effects, %d points, %d states after them, %d pairs, %d cases, %d boots, %d failures, %.0f s",
		name, s.effects, s.points, s.states, s.pairs, s.cases, s.boots, len(s.failures), time.Since(start).Seconds())
}

// notices sweeps until a failure says what is wanted.
func (s *sweep) notices(want string) {
	s.until = want
	s.singles(1)
	if s.noticed == nil {
		s.t.Fatalf("not noticed in %d cases: %v", s.cases, s.failures)
	}
	s.t.Logf("noticed within %d cases: %v", s.cases, s.noticed)
}

// TestSweepNotices (P7, P24, P56) shows that the sweep is worth something: it finds
// what is wrong with programs that lack one guarantee.
func TestSweepNotices(t *testing.T) {
	for _, broken := range []struct {
		name     string
		variants []crash.Variant
		want     string
	}{
		{"left to the shutdown", []crash.Variant{crash.LeftToShutdown}, "stranded"},
		{"files not synced", []crash.Variant{crash.Unsynced}, "cannot use journal"},
		{"modes ignored", []crash.Variant{crash.Served, crash.Careless}, "everybody may read the secret"},
		{"live change without journal", []crash.Variant{crash.Changed, crash.Unjournaled}, "a mixture"},
		{"live change not synced", []crash.Variant{crash.Changed, crash.Unsynced}, "cannot use its journal"},
		{"live change, modes ignored", []crash.Variant{crash.Changed, crash.Careless}, "everybody may read the secret"},
		{"Ignition's files not synced", []crash.Variant{crash.FromInitramfs, crash.IgnitionUnsynced}, "what Ignition wrote is lost"},
		{"a trial whose system is the default too early", []crash.Variant{crash.Tried(crash.Panics), crash.DefaultTooEarly}, "the trial never ends"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			newSweep(t, broken.variants).notices(broken.want)
		})
	}
}

// machine is one life of a simulated machine.
type machine interface {
	Live() error
	Lived() crash.Life
}

// sweep goes through cases and counts.
type sweep struct {
	t       *testing.T
	dir     string
	make    func(dir string, points []crash.Point) (machine, error)
	reboots int    // of a life without crashes
	until   string // no more lives once a failure says this; "": all

	mu                            sync.Mutex
	effects, points, cases, boots int
	states, pairs                 int // states after one crash, and pairs that are not two of the same
	failures                      []error
	noticed                       error // the failure that says until
}

func newSweep(t *testing.T, variants []crash.Variant) *sweep {
	t.Helper()
	return sweepOf(t, func(dir string, points []crash.Point) (machine, error) { return crash.New(dir, points, variants...) })
}

func sweepOf(t *testing.T, make func(dir string, points []crash.Point) (machine, error)) *sweep {
	t.Helper()
	s := &sweep{t: t, dir: t.TempDir(), make: make, reboots: 1}
	// In memory where there is a place for that: a case is some hundred small files.
	if dir, err := os.MkdirTemp("/dev/shm", "pivot-sweep-*"); err == nil {
		s.dir = dir
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	return s
}

// life is the crashes that one machine sees, and what it does till it arrives.
type life struct {
	points  []crash.Point
	effects []crash.Effect
	state   crash.State
}

// live lives each of the lives, as many at a time as there are processors.
func (s *sweep) live(lives []life) {
	next := make(chan *life)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for l := range next {
				s.one(l)
			}
		})
	}
	for i := range lives {
		if s.enough() {
			break
		}
		next <- &lives[i]
	}
	close(next)
	workers.Wait()
}

func (s *sweep) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noticed != nil
}

func (s *sweep) one(l *life) {
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
	err = m.Live()
	lived := m.Lived()
	if err == nil && len(l.points) == 0 && lived.Reboots != s.reboots {
		err = fmt.Errorf("%d reboots, want %d", lived.Reboots, s.reboots)
	}
	l.effects, l.state = lived.Effects, lived.State
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cases++
	s.boots += lived.Boots
	if err == nil {
		return
	}
	err = fmt.Errorf("%v: %w", l.points, err)
	s.failures = append(s.failures, err)
	if s.until != "" && strings.Contains(err.Error(), s.until) {
		s.noticed = err
	}
}

// after are all points at the effects of a life that come after number done.
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

// singles tries one crash at each point whose number divides by step, and returns the lives.
func (s *sweep) singles(step int) []life {
	undisturbed := []life{{}}
	s.live(undisturbed)
	s.effects = len(undisturbed[0].effects)
	var lives []life
	for n, p := range after(0, undisturbed[0].effects) {
		if n%step == 0 {
			lives = append(lives, life{points: []crash.Point{p}})
		}
	}
	s.points = len(lives)
	if s.until != "" {
		lives = spread(lives)
	}
	s.live(lives)
	return lives
}

// spread orders lives so that any first few of them crash all over a life: what one of
// them shall notice is then noticed after fewer.
func spread(lives []life) []life {
	spread := make([]life, 0, len(lives))
	for first := range everySingle {
		for n := first; n < len(lives); n += everySingle {
			spread = append(spread, lives[n])
		}
	}
	return spread
}

// all tries each crash alone, and a sample of the pairs; in a short run a sample of the
// former, and no pairs.
func (s *sweep) all() {
	if testing.Short() {
		s.singles(everySingle)
		return
	}
	var pairs []life
	states := map[string]life{}
	for _, l := range s.singles(1) {
		like, again := states[l.state.Digest]
		if again = again && l.state.Digest != ""; again {
			s.alike(like, l)
		} else {
			states[l.state.Digest] = l
		}
		for _, second := range after(l.points[0].Effect, l.effects) {
			if again && second.Effect > l.state.Effects {
				continue // one life with this state goes on to crash there
			}
			pairs = append(pairs, life{points: []crash.Point{l.points[0], second}})
		}
	}
	s.states, s.pairs = len(states), len(pairs)
	if !long {
		// Random, the same each time: each so-manyth would meet the same losses again and again.
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		pairs = pairs[:min(samplePairs, len(pairs))]
	}
	s.live(pairs)
}

// alike is an error if two lives with the same state do not go on with the same effects.
func (s *sweep) alike(a, b life) {
	if !slices.Equal(a.effects[a.state.Effects:], b.effects[b.state.Effects:]) {
		s.t.Errorf("the state after %v is that after %v, and the lives go on with\n%v\n%v", b.points, a.points, b.effects[b.state.Effects:], a.effects[a.state.Effects:])
	}
}
