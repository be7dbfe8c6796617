package booted_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

const keysConfig = `
metadata: {name: NAME}
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /etc/app.conf, contents: {source: "data:,NAME"}}
      - {path: /opt/app/conf, contents: {source: "data:,NAME"}}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key NAME], passwordHash: $y$NAME}]}
`

// TestRepair (P56, P68): the real program changes SSH keys, a password and a file in /var of the
// running system, and is killed once in between. Then it finds and repairs local changes, and keeps
// a copy of what it replaced.
func TestRepair(t *testing.T) {
	h := hostdir.New(t)
	programs := script.Programs(t)
	if err := os.WriteFile(filepath.Join(programs, "systemctl"), []byte(strings.Replace(systemctl, "*reload*app", "*daemon-reload*) ;;\n*reload*app", 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Write("/etc/pivot/disruption.yaml", []byte("files:\n- {path: /etc/app.conf, actions: [{type: Reload, reload: {serviceName: app.service}}]}\n- {path: /opt/app, actions: [{type: None}]}\n"))
	h.Write("/etc/systemd/system/pivot-project.service", nil)
	h.Write("/etc/passwd", []byte("core:x:1000:1000::/home/core:/bin/sh\n"))
	h.Write("/etc/group", []byte("core:x:1000:\n"))
	h.Write("/etc/shadow", []byte("core:!!:1:0:99999:7:::\n"))
	m := booted.New(t.TempDir(), h.Physical(), programs)
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	expect := func(status int, command string, wants ...string) {
		t.Helper()
		out, got, err := m.Run(command)
		for _, want := range wants {
			if err != nil || got != status || !strings.Contains(out, want) {
				t.Fatalf("%s: %v, status %d, want %d with %q:\n%s", command, err, got, status, want, out)
			}
		}
	}
	for _, name := range []string{"one", "two"} {
		expect(0, "cat >"+name+".yaml <<'EOF'\n"+strings.ReplaceAll(keysConfig, "NAME", name)+"EOF\n", "")
	}
	const show = "cat /var/home/core/.ssh/authorized_keys.d/ignition /var/opt/app/conf; cut -d: -f1,2 /etc/shadow; cat loaded"
	expect(78, "pivot apply --repair", "pivot has applied no MachineConfig to this machine", "hint: ")
	expect(64, "pivot apply --repair one.yaml", "cannot tell what to apply")
	expect(0, "pivot apply --dry-run one.yaml", "/ignition: nothing (default rule for SSH keys and password of core)", "reboots: 0")
	expect(0, "pivot apply --reboot=never one.yaml", "nothing needs a reboot")
	expect(0, show+"; pivot verify", "key one\nonecore:$y$one\none")
	expect(137, "touch kill; pivot apply two.yaml; exit $?", "")
	expect(0, "pivot apply --finish", "finishing a change of the running system")
	expect(0, show+"; pivot verify", "key two\ntwocore:$y$two\ntwo")

	expect(77, "pivot apply --repair --unchanged-exit-77", "nothing to repair: the machine is what it was last asked for")
	expect(0, "ls /var/lib/pivot", "journal.json")
	expect(0, "! test -e /var/lib/pivot/found; echo mine >/etc/app.conf; chmod 4755 /var/opt/app/conf; rm /var/home/core/.ssh/authorized_keys.d/ignition", "")
	expect(65, "pivot verify", "file /etc/app.conf: differs\n", "file /var/opt/app/conf: differs\n", "ignition: missing\n")
	expect(0, "pivot apply --repair --dry-run", "replace /etc/app.conf", "create /var/home/core/.ssh/authorized_keys.d/ignition", "reload app.service", "reboots: 0")
	expect(0, "pivot apply --repair --reboot=never", "differs: file /etc/app.conf: differs", "what was found at 3 paths is kept in /var/lib/pivot/found/2", "nothing needs a reboot")
	expect(0, show+"; pivot verify; stat -c %a /var/opt/app/conf", "key two\ntwocore:$y$two\ntwo644\n")
	expect(0, "cd /var/lib/pivot/found/2*; stat -c %a . ..; cat *; grep -c '\"missing\": true' manifest.json", "700\n700\n", "mine\n", "\"mode\": 2541", "\n1\n")
}
