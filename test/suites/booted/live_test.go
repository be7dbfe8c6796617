package booted_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/api"
	"machine-pivot/test/suites/booted"
	"machine-pivot/test/tools/schema"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// systemctl is a stand-in. On reload the service reads /etc/app.conf. With a file "kill" it kills
// its caller, and with a file "broken" it fails.
const systemctl = `#!/bin/sh
cd /var/home || exit
case "$*" in
show*SystemState) echo SystemState=running ;;
show*) printf 'LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nType=notify\nConditionResult=yes\n' ;;
*reload*app.service)
	echo reload >>calls
	if [ -e kill ]; then rm kill; kill -KILL $PPID; exit; fi
	if [ -e broken ]; then echo 'Job for app.service failed.' >&2; exit 1; fi
	cp /etc/app.conf loaded ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
`

const liveConfig = `
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /etc/app.conf, contents: {source: "data:,CONTENT"}}
`

// TestLive (P56) runs the real program: its plan, a change of the running system, one that a
// service refuses, and one during which the program is killed.
func TestLive(t *testing.T) {
	h := hostdir.New(t)
	programs := script.Programs(t)
	if err := os.WriteFile(filepath.Join(programs, "systemctl"), []byte(systemctl), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Write("/etc/pivot/disruption.yaml", []byte("files: [{path: /etc/app.conf, actions: [{type: Reload, reload: {serviceName: app.service}}]}]\n"))
	m := booted.New(t.TempDir(), h.Physical(), programs)
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	expect := func(status int, command string, wants ...string) (out string) {
		t.Helper()
		out, got, err := m.Run(command)
		for _, want := range wants {
			if err != nil || got != status || !strings.Contains(out, want) {
				t.Fatalf("%s: %v, status %d, want %d with %q:\n%s", command, err, got, status, want, out)
			}
		}
		return out
	}
	for _, name := range []string{"one", "two", "three"} {
		expect(0, "cat >"+name+".yaml <<'EOF'\n"+strings.ReplaceAll(liveConfig, "CONTENT", name)+"EOF\n", "")
	}
	expect(0, "pivot apply --dry-run one.yaml", "without a reboot\n  /etc/app.conf: reload app.service (rule for /etc/app.conf)\nin this order\n  reload app.service\nreboots: 0\n")
	document := expect(0, "pivot apply --dry-run -o json one.yaml", `"reboots": 0`, `"type": "Reload"`)
	if err := schema.Validate(api.Plan, []byte(document)); err != nil {
		t.Error(err)
	}
	expect(0, "pivot apply --reboot=never one.yaml", "nothing needs a reboot")
	expect(0, "cat loaded; pivot verify && pivot status", "onephase    done")
	expect(77, "pivot apply --reboot=if-needed --unchanged-exit-77 one.yaml", "nothing to do")

	expect(78, "touch broken; pivot apply two.yaml", "cannot reload app.service: systemctl --no-ask-password reload: Job for app.service failed.", "all of the change is taken back", "hint: ")
	expect(0, "rm broken; cat /etc/app.conf loaded; wc -l <calls; pivot verify", "oneone3\n")

	expect(137, "touch kill; pivot apply two.yaml; exit $?", "")
	expect(0, "stat -c %a /etc/pivot/live.json; cat /etc/app.conf loaded", "600\ntwoone")
	expect(0, "pivot status", "pivot apply --finish finishes it")
	expect(0, "pivot apply --finish", "finishing a change of the running system")
	expect(0, "cat loaded; ls -A /etc/pivot; pivot verify", "twodisruption.yaml\nmachineconfig.json\n")
	expect(77, "pivot apply --finish --unchanged-exit-77", "nothing to finish")

	expect(0, "sed 's/^spec:/spec: {kernelArguments: [a=1]}/;/^  /d' one.yaml >four.yaml; pivot apply --reboot=if-needed four.yaml; echo not reached",
		"a reboot is needed: kernelArguments: only a reboot changes it", "rebooting into")
	expect(0, "cat /proc/sys/kernel/random/boot_id; ! test -e /etc/app.conf && pivot verify", "00000002-")

	// With -r it reboots, and does not change the running system before.
	expect(0, "pivot apply -r three.yaml; echo not reached", "rebooting into")
	expect(0, "cat /proc/sys/kernel/random/boot_id /etc/app.conf loaded; pivot verify", "00000003-", "threetwo")
}
