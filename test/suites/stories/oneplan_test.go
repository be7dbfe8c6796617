package stories_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// seen is a Contributor that sees the plans that are checked, and counts how often a target is
// completed, which is once per observation of a decision.
type seen struct {
	plans     []pivot.Plan
	completed int
}

func (s *seen) Entries() ([]hostfiles.File, error) { s.completed++; return nil, nil }

func (s *seen) Check(plan pivot.Plan, _ []hostfiles.File) ([]string, error) {
	s.plans = append(s.plans, plan)
	return nil, nil
}

func (s *seen) Drift(pivot.State, pivot.Target) ([]pivot.Difference, error) { return nil, nil }

// changes returns what a plan changes, without what is judged or noted about it.
func changes(t *testing.T, p pivot.Plan) map[string]any {
	t.Helper()
	data, err := json.Marshal(p)
	must(t, err)
	var all map[string]any
	must(t, json.Unmarshal(data, &all))
	for _, name := range []string{"notes", "imageKargs", "needs", "drain", "actions"} {
		delete(all, name)
	}
	return all
}

// TestPlanShownIsCarriedOut (P82): what a plan shows is what is carried out, and what follows from
// one observation of the machine, whichever command makes it.
func TestPlanShownIsCarriedOut(t *testing.T) {
	const spec = "metadata: {name: a}\nspec:\n  kernelArguments: [a=1]\n  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/a, contents: {source: \"data:,a\"}}]}}\n"
	for name, c := range map[string]struct {
		host func(*testing.T) *hostdir.Host
		// plan shows the plan of a command, run carries it out up to the reboot.
		plan func(context.Context, *machine.Machine) (pivot.Plan, error)
		run  func(context.Context, *machine.Machine) error
	}{
		"firstboot": {
			host: newHost,
			plan: func(ctx context.Context, m *machine.Machine) (pivot.Plan, error) {
				return (&firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}).Plan(ctx)
			},
			run: func(ctx context.Context, m *machine.Machine) error {
				return (&firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath, NoReboot: true}).Run(ctx)
			},
		},
		"rebase": {
			host: func(t *testing.T) *hostdir.Host { return hostdir.New(t) },
			plan: func(ctx context.Context, m *machine.Machine) (pivot.Plan, error) {
				return (&day2.Rebase{Machine: m, Append: []string{"a=1"}}).Plan(ctx, day2.RunOptions{})
			},
			run: func(ctx context.Context, m *machine.Machine) error {
				_, err := (&day2.Rebase{Machine: m, Append: []string{"a=1"}}).Run(ctx, day2.RunOptions{})
				return err
			},
		},
		"apply": {
			host: func(t *testing.T) *hostdir.Host { return hostdir.New(t) },
			plan: func(ctx context.Context, m *machine.Machine) (pivot.Plan, error) {
				return (&day2.Apply{Machine: m, Config: day2.Config{File: "a.yaml", Data: []byte(spec)}}).Plan(ctx, day2.RunOptions{})
			},
			run: func(ctx context.Context, m *machine.Machine) error {
				_, err := (&day2.Apply{Machine: m, Config: day2.Config{File: "a.yaml", Data: []byte(spec)}}).Run(ctx, day2.RunOptions{})
				return err
			},
		},
		"repair": {
			host: func(t *testing.T) *hostdir.Host {
				h := hostdir.New(t)
				_, _, err := apply(t, h, spec[len("metadata: {name: a}\nspec:\n"):])
				must(t, err)
				h.Write("/etc/a", []byte("drifted"))
				return h
			},
			plan: func(ctx context.Context, m *machine.Machine) (pivot.Plan, error) {
				return (&day2.Apply{Machine: m, Repair: true}).Plan(ctx, day2.RunOptions{})
			},
			run: func(ctx context.Context, m *machine.Machine) error {
				_, err := (&day2.Apply{Machine: m, Repair: true}).Run(ctx, day2.RunOptions{})
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.host(t)
			shown, err := c.plan(t.Context(), newMachine(t, h))
			must(t, err)
			m, s := newMachine(t, h), &seen{}
			m.Contributors = []pivot.Contributor{s}
			must(t, c.run(t.Context(), m))
			if len(s.plans) == 0 || !shown.Changed {
				t.Fatalf("%d plans, shown %+v", len(s.plans), shown)
			}
			for _, carried := range s.plans {
				if got, want := changes(t, carried), changes(t, shown); !reflect.DeepEqual(got, want) {
					t.Errorf("carried out %v\nshown %v", got, want)
				}
				if !reflect.DeepEqual(carried.To(), s.plans[0].To()) || carried.From().BootID != shown.From().BootID {
					t.Error("the plans that are checked have different targets")
				}
			}
			if s.completed != 1 {
				t.Errorf("a target is completed %d times for one decision", s.completed)
			}
		})
	}
}
