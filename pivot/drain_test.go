package pivot_test

import (
	"errors"
	"slices"
	"testing"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// TestWithDrain: a plan wants a drain for a reboot, for a rule with the action Drain, and for
// registries.conf by its contents; for nothing else.
func TestWithDrain(t *testing.T) {
	rules, report := disruption.Read("rules.yaml", []byte(`
files:
- {path: /etc/drained, actions: [{type: Drain}, {type: Restart, restart: {serviceName: a.service}}]}
- {path: /etc/plain, actions: [{type: Restart, restart: {serviceName: a.service}}]}
units:
- {name: b.service, actions: [{type: Drain}]}
`))
	if report.Failed() {
		t.Fatal(report)
	}
	const registriesConf = "/etc/containers/registries.conf"
	mirror := []byte("[[registry]]\nlocation = 'r'\n[[registry.mirror]]\nlocation = 'm'\n")
	byDigest := append(slices.Clone(mirror), "pull-from-mirror = 'digest-only'\n"...)
	for name, c := range map[string]struct {
		path  string
		unit  string
		kargs kargs.Line
		after []byte
		err   error
		want  []string
	}{
		"nothing":                {},
		"argument":               {kargs: kargs.Line{"a=1"}, want: []string{"kernelArguments: only a reboot changes it"}},
		"no rule":                {path: "/etc/other", want: []string{"/etc/other: no rule says that it needs none"}},
		"a rule without a drain": {path: "/etc/plain"},
		"a rule with a drain":    {path: "/etc/drained/x", want: []string{"/etc/drained/x: rule for /etc/drained"}},
		"a unit with a drain":    {unit: "b.service", want: []string{"/etc/systemd/system/b.service: rule for unit b.service"}},
		"mirror by digest":       {path: registriesConf, after: byDigest},
		"mirror":                 {path: registriesConf, after: mirror, want: []string{registriesConf + ": registry r: it is added, and not only with mirrors by digest"}},
		"unreadable":             {path: registriesConf, err: errors.New("no"), want: []string{registriesConf + ": it cannot be compared: no"}},
	} {
		var to pivot.Target
		if to.Kargs.New = c.kargs; c.path != "" {
			to.Entries = []hostfiles.Entry{{Path: c.path, Mode: 0o644}}
		}
		if c.unit != "" {
			to.Units.Wishes = []enable.Wish{{Name: c.unit, State: enable.Enabled}}
		}
		plan, err := pivot.Between(pivot.Target{}, to, pivot.SystemPackages{}, rules)
		if err != nil {
			t.Fatal(err)
		}
		drain := plan.WithDrain(rules, func(string) (before, after []byte, err error) { return nil, c.after, c.err }).Drain
		if drain.Wanted != (len(c.want) > 0) || !slices.Equal(drain.Because, c.want) || drain.Because == nil {
			t.Errorf("%s: %+v, want %q", name, drain, c.want)
		}
	}
}
