package booted_test

import (
	"strings"
	"testing"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestProjects (P57) runs the real programs over several boots of one machine: entries outside of
// /etc follow the MachineConfigs, forward and back.
func TestProjects(t *testing.T) {
	h := hostdir.New(t)
	m := booted.New(t.TempDir(), h.Physical(), script.Programs(t))
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	run := func(command, want string, status int) {
		t.Helper()
		out, got, err := m.Run(command)
		if err != nil || got != status || want != "" && !strings.Contains(out, want) {
			t.Fatalf("%s: %v, status %d, want %d with %q:\n%s", command, err, got, status, want, out)
		}
	}
	// A provisioned machine has a user, and the unit.
	run(`mkdir -p /etc/systemd/system core && touch /etc/systemd/system/pivot-project.service &&
		echo core:x:1000:1001::/home/core:/bin/sh >>/etc/passwd && echo core:x:1001: >>/etc/group &&
		chown 1000:1001 core && chmod 700 core && echo own >/var/lib/settings`, "", 0)
	const v1 = `cat >mc.yaml <<'END'
metadata: {name: v1}
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /var/lib/settings, mode: 0600, contents: {source: "data:,one"}}
      - {path: /opt/tool, mode: 0755, contents: {source: "data:,tool"}}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key one]}]}
END
`
	const show = `cd /var && find lib/settings opt home/core ! -type d -printf '%p %m %U:%G ' -exec cat {} ';' -printf ';' 2>/dev/null || :`
	run(v1+"pivot apply -r mc.yaml", "rebooting", 0)
	run("pivot verify", "file /var/opt/tool: missing", 65)
	run("pivot project", "projected /var/opt/tool", 0)
	const first = "lib/settings 600 0:0 one;opt/tool 755 0:0 tool;home/core/.ssh/authorized_keys.d/ignition 600 1000:1001 key one\n;"
	run(show, first, 0)
	run("pivot verify && pivot project", "", 0)

	run(strings.NewReplacer("data:,one", "data:,two", "key one", "key two", "/opt/tool", "/opt/other").Replace(v1)+
		"sed -i 's|^spec:|spec:\\n  osImageURL: "+h.Image+"|' mc.yaml && pivot apply -r mc.yaml", "rebooting", 0)
	run("pivot project && pivot verify", "projected /var/opt/other", 0)
	run(show, "lib/settings 600 0:0 two;opt/other 755 0:0 tool;home/core/.ssh/authorized_keys.d/ignition 600 1000:1001 key two\n;", 0)

	run(v1+"pivot apply -r mc.yaml", "rebooting", 0)
	run("pivot project && pivot verify", "projected /var/opt/tool", 0)
	run(show, first, 0)

	run("echo 'spec: {kernelArguments: [a=1]}' >mc.yaml && pivot apply -r mc.yaml", "rebooting", 0)
	run("pivot project && pivot verify", "", 0)
	run(show, "lib/settings 644 0:0 own\n;", 0)
	run("test ! -e /var/opt && test ! -e /var/lib/pivot/projection/record.json && test ! -e /etc/pivot/var/manifest.json", "", 0)
}
