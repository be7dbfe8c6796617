package e2e_test

import (
	"fmt"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// switchesVar (P57) applies two MachineConfigs in turn, both with a file in /var and core's SSH keys,
// and then chooses the previous system in the boot menu. In each boot /var must have what that
// system's MachineConfig describes.
func switchesVar(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	config := func(name, image string) vm.TreeFile {
		return vm.TreeFile{Path: "/etc/" + name + ".yaml", Mode: 0o600, Content: fmt.Appendf(nil, `metadata: {name: %s}
spec:
%s  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /var/lib/probe, mode: 0640, group: {name: core}, contents: {source: "data:,%s"}}
      - {path: /usr/local/bin/of-%s, mode: 0755, contents: {source: "data:,x"}}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key-of-%s]}]}
`, name, image, name, name, name)}
	}
	// Each boot prints what it finds and applies the next MachineConfig, each only once.
	const script = `cd /var
has() { grep -q "\"name\":\"$1\"" /etc/pivot/machineconfig.json 2>/dev/null; }
for f in lib/probe home/core/.ssh/authorized_keys.d/ignition usrlocal/bin/of-*; do
	[ ! -f $f ] || echo "found $f $(stat -c "%a %U:%G" $f) $(cat $f)"
done
echo "unit $(systemctl show -P ConditionResult pivot-project.service) $(systemctl show -P Result pivot-project.service)"
if has v1 || has v2; then pivot verify && echo "verified"; fi
[ ! -e lib/twice ] || exit 0
if has v1; then touch lib/twice; pivot apply -r /etc/v2.yaml; exit; fi
echo "core:x:1000:1000::/home/core:/bin/sh" >>/etc/passwd
echo "core:x:1000:" >>/etc/group
install -d -m 700 -o core -g core home/core
echo before >lib/probe
pivot apply --dry-run /etc/v1.yaml
pivot apply -r /etc/v1.yaml
`
	m, err := l.MachineByHand(t.Context(), "switches-var", "sh /etc/switch.sh", []vm.TreeFile{
		config("v1", ""), config("v2", "  osImageURL: "+want.Image+"\n"), {Path: "/etc/switch.sh", Mode: 0o755, Content: []byte(script)},
	}, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	says := func(b *vm.BootResult, exit vm.Reason, lines ...string) {
		t.Helper()
		if b.Exit != exit {
			t.Fatalf("the machine %s, want that it %s", b.Exit, exit)
		}
		expectSaid(t, b, lines...)
	}
	found := func(name string) []string {
		return []string{"found lib/probe 640 root:core " + name, "found home/core/.ssh/authorized_keys.d/ignition 600 core:core key-of-" + name,
			"found usrlocal/bin/of-" + name + " 755 root:root x", "unit yes success", "verified"}
	}
	only := func(b *vm.BootResult, other string) {
		t.Helper()
		if b.Said("found usrlocal/bin/of-" + other) {
			t.Errorf("what only %s asks for is there", other)
		}
	}
	first := boot(t, m, vm.BootOptions{})
	says(first, vm.Rebooted, "create /var/usrlocal/bin/of-v1", "unit no success")
	second := boot(t, m, vm.BootOptions{})
	says(second, vm.Rebooted, found("v1")...)
	third := boot(t, m, vm.BootOptions{})
	says(third, vm.PoweredOff, found("v2")...)
	only(third, "v1")
	if r := report(t, third); r.Version != "B.2" || r.FailedUnits != "" {
		t.Errorf("version %s, failed units %q", r.Version, r.FailedUnits)
	}
	back := boot(t, m, vm.BootOptions{Entry: 1})
	says(back, vm.PoweredOff, found("v1")[:4]...)
	only(back, "v2")
	if r := report(t, back); r.Version != "A.1" || r.FailedUnits != "" {
		t.Errorf("version %s, failed units %q", r.Version, r.FailedUnits)
	}
}
