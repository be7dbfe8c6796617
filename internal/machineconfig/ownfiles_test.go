package machineconfig_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pods"
	"machine-pivot/internal/projection"
)

// TestParserOf: each file that a MachineConfig may bring for pivot is parsed as pivot does.
func TestParserOf(t *testing.T) {
	for name, c := range map[string]struct{ good, bad, want string }{
		"/etc/pivot/firstboot.conf":           {"# a\nmode=system\n", "mode=off\nreboot-method=kexecc\n", `line 2: "kexecc" is not allowed`},
		"/etc/pivot/firstboot.conf.d/10.conf": {"", "key=1", "there is no setting"},
		"/etc/pivot/disruption.yaml":          {"files: [{path: /etc/a, actions: [{type: None}]}]", "files: x", "disruption.yaml:1: error: $.files"},
		"/etc/pivot/kernel-args.policy":       {"refuse debug it is slow\n", "refuse debug", "say why"},
		"/etc/pivot/kernel-args":              {"ADD a=1\nDELETE b\n", "a=1", "line 1"},
		"/etc/pivot/image-pullspec":           {"quay.io/a/b:c\n", "b:c", "cannot parse image reference"},
	} {
		parse := machineconfig.ParserOf(name)
		if parse == nil {
			t.Errorf("%s is not parsed", name)
			continue
		}
		if err := parse([]byte(c.good)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := parse(nil); err != nil {
			t.Errorf("%s, empty: %v", name, err)
		}
		if err := parse([]byte(c.bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err := parse([]byte("#" + strings.Repeat("x", hostfiles.MaxState))); err == nil || !strings.Contains(err.Error(), "it has more than") {
			t.Errorf("%s, large: %v", name, err)
		}
	}
	for _, name := range projection.Settings() {
		at := strings.Replace(name, ".conf.d", ".conf.d/a.conf", 1)
		if parsed := machineconfig.ParserOf(at) != nil; parsed != (name != pods.SourceDir) { // its reader leaves out what it cannot use
			t.Errorf("%s is parsed: %v", at, parsed)
		}
	}
	for _, name := range []string{"/etc/pivot/firstboot.conf.d/README", "/etc/pivot/firstboot.conf.d/.a.conf", "/etc/hosts"} {
		if machineconfig.ParserOf(name) != nil {
			t.Errorf("%s is parsed", name)
		}
	}
}
