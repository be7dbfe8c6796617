package stories_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestUnsupportedStays: what pivot does not support blocks no MachineConfig that has it as the machine has it: on
// another program's machine, from pivot's own record, and in a repair.
func TestUnsupportedStays(t *testing.T) {
	h := projecting(t)
	const config = `{"ignition": {"version": "3.4.0"}, "passwd": {"users": [{"name": "core", "groups": ["wheel"], "shell": "/bin/sh"}]},
    "storage": {"files": [{"path": "/etc/site", "contents": {"source": "data:,%s"}}, {"path": "/run/force"}, {"path": "/boot/site", "mode": 256}]}}`
	h.Write("/etc/machine-config-daemon/currentconfig", fmt.Appendf(nil, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
		"metadata":{"name":"rendered-worker-1"},"spec":{"config":%s}}`, fmt.Sprintf(config, "a")))
	for i, key := range []string{"b", "c"} {
		changed, notes, err := apply(t, h, "  config: "+fmt.Sprintf(config, key)+"\n")
		if err != nil || !changed {
			t.Fatalf("%s: changed %v, %v: %s", key, changed, err, notes)
		}
		if strings.Contains(notes, "taking over") != (i == 0) || strings.Contains(notes, "left out") {
			t.Errorf("%s: %s", key, notes)
		}
		if got := shell(t, h, "cat etc/site; ls run/force boot/site 2>/dev/null || :"); got != key {
			t.Errorf("%s: there is %q", key, got)
		}
		if drift := verify(t, h); drift != "" {
			t.Errorf("%s: drift %s", key, drift)
		}
	}
	if _, _, err := apply(t, h, "  config: "+strings.Replace(fmt.Sprintf(config, "d"), `"wheel"`, `"wheel", "docker"`, 1)+"\n"); err == nil || !strings.Contains(err.Error(), "config.passwd.users core groups differs from what the machine has") {
		t.Errorf("a change of core's groups: %v", err)
	}
}
