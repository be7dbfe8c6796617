package pivot_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// TestJudged (P56): what each change of a plan needs, and what the whole plan needs.
func TestJudged(t *testing.T) {
	rules, report := disruption.Read("rules", []byte(`
files:
- path: /etc/a
  actions: [{type: Reload, reload: {serviceName: a.service}}, {type: DaemonReload}]
- path: /etc/none
  actions: [{type: None}]
- path: /etc/boots
  actions: [{type: Reboot}]
units:
- name: u.service
  actions: [{type: DaemonReload}, {type: Restart, restart: {serviceName: u.service}}]
- name: quiet.service
  actions: [{type: None}]
`))
	if report.Failed() {
		t.Fatal(report)
	}
	const units = "/etc/systemd/system/"
	other := pivot.NeedReboot("deployment", "it waits")
	for _, c := range []struct {
		name    string
		paths   []string
		kargs   kargs.Change
		others  []pivot.Need
		actions string
		reasons []string
	}{
		{"a service", []string{"/etc/a/x", "/etc/none"}, kargs.Change{}, nil, "[daemon-reload reload a.service]", nil},
		{"nothing", []string{"/etc/none"}, kargs.Change{}, nil, "[]", nil},
		{"a unit", []string{units + "u.service"}, kargs.Change{}, nil, "[daemon-reload restart u.service]", nil},
		{"a unit that needs nothing itself", []string{units + "x.target.wants/quiet.service"}, kargs.Change{}, nil, "[daemon-reload]", nil},
		{"a unit without a rule", []string{units + "new.service"}, kargs.Change{}, nil, "[]", []string{units + "new.service: no rule says that it needs none"}},
		{"one of two", []string{"/etc/a/x", "/etc/boots"}, kargs.Change{}, nil, "[]", []string{"/etc/boots: rule for /etc/boots"}},
		{"an argument", []string{"/etc/none"}, kargs.Change{New: kargs.Line{"a=1"}}, nil, "[]", []string{"kernelArguments: only a reboot changes it"}},
		{"an argument in another spelling", []string{"/etc/none"}, kargs.Change{New: kargs.Line{"b=\"1\""}}, nil, "[]", nil},
		{"the same, not to the letter", []string{"/etc/none"}, kargs.Change{New: kargs.Line{"b=\"1\""}, Literal: true}, nil, "[]", []string{"kernelArguments: only a reboot changes it"}},
		{"what the rules do not know", []string{"/etc/none"}, kargs.Change{}, []pivot.Need{other}, "[]", []string{"deployment: it waits"}},
	} {
		state := pivot.State{Booted: pivot.Deployment{Options: kargs.Line{"b=1"}}}
		target := pivot.Target{Kargs: c.kargs}
		for _, path := range c.paths {
			target.Entries = append(target.Entries, hostfiles.NewFile(path, 0o644, nil).Entry)
		}
		plan, err := pivot.Diff(state, target)
		if err != nil {
			t.Fatal(err)
		}
		plan = plan.Judged(rules, c.others...)
		reboots := min(len(c.reasons), 1)
		if fmt.Sprint(append([]disruption.Action{}, plan.Actions...)) != c.actions || !slices.Equal(plan.RebootReasons(), c.reasons) || plan.Reboots != reboots {
			t.Errorf("%s: %d reboots for %q, actions %v; want %q, %s", c.name, plan.Reboots, plan.RebootReasons(), plan.Actions, c.reasons, c.actions)
		}
	}
	unchanged, err := pivot.Diff(pivot.State{}, pivot.Target{})
	if plan := unchanged.Judged(rules, other); err != nil || plan.Reboots != 0 || len(plan.Needs) > 0 {
		t.Errorf("nothing changes: %+v, %v", plan, err)
	}
}

// TestCheckLive: what the checks of a commit refuse is refused also for a change of the running system.
func TestCheckLive(t *testing.T) {
	refused := errors.New("refused")
	for _, want := range []error{nil, refused} {
		c := pivot.Converger{
			Progress: &pivot.Progress{Journal: pivot.JournalIn(t.TempDir()), Emit: func(pivot.Event) {}, Now: time.Now},
			Checks:   []pivot.Check{func(pivot.Plan) error { return want }},
		}
		if err := c.CheckLive(pivot.Plan{}); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}
