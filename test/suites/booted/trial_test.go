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

// setDefault is an ostree with "admin set-default", which libostree has since 2023.6 and the
// testing machine may lack. It gives the boot entry the highest version.
const setDefault = `#!/bin/sh
set -e
case "$1 $2" in
"--version ") printf "libostree:\n Version: '2023.6'\n" ;;
"admin set-default")
	cd /boot/loader/entries
	file=$(grep -H ^version *.conf | sort -t' ' -k2 -nr | sed -n "$(($3 + 1))s/:.*//p")
	last=$(sed -n 's/^version //p' *.conf | sort -nr | head -1)
	sed -i "s/^version .*/version $((last + 1))/" "$file"
	;;
*) exec /usr/bin/ostree "$@" ;;
esac
`

// TestTrial (P59): the real program tries a new system. If confirmed it stays; if it fails, the old
// system runs again and reports the reason.
func TestTrial(t *testing.T) {
	h := hostdir.New(t)
	programs := script.Programs(t)
	if err := os.WriteFile(filepath.Join(programs, "ostree"), []byte(setDefault), 0o755); err != nil {
		t.Fatal(err)
	}
	m := booted.New(t.TempDir(), h.Physical(), programs)
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	expect := func(command string, status int, wants ...string) {
		t.Helper()
		out, got, err := m.Run(command)
		if err != nil || got != status {
			t.Fatalf("%s: %v, status %d, want %d:\n%s", command, err, got, status, out)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", command, want, out)
			}
		}
	}
	expect("pivot confirm", 78, "no system is on trial here")
	expect("pivot rebase --try "+h.Image, 78, "pivot-trial.service is not enabled", "hint: systemctl enable pivot-trial.service")
	expect("mkdir -p /etc/systemd/system/sysinit.target.wants && touch /etc/systemd/system/pivot-trial.service && "+
		"ln -s /etc/systemd/system/pivot-trial.service /etc/systemd/system/sysinit.target.wants/", 0)
	// The testing machine's kernel started long ago.
	expect("pivot rebase --try=1000000h --check 'test -e /run/ready' "+h.Image, 0, "somebody must choose the old system in the boot menu", "rebooting into the system on trial")
	expect("cat /proc/sys/kernel/random/boot_id; pivot rollback", 78, "00000002-", "the system that runs is on trial")
	expect("pivot confirm", 69, `check "test -e /run/ready" fails`, "the trial continues")
	expect("pivot trial & sleep 1; pivot status; touch /run/ready; pivot confirm && wait $! && pivot verify && pivot status", 0,
		"phase    trial", "trial    1000000h0m0s from the start of the kernel, confirmed by pivot confirm", "pivot confirm keeps this system", "phase    done")
	expect("pivot rebase --try=1s --check false --append-karg bad=1", 0, "rebooting into the system on trial")
	expect("cat /proc/cmdline; pivot trial", 0, "bad=1", `the new system has failed its trial of 1s: check "false" fails`, "rebooting into the old system")
	expect("cat /proc/sys/kernel/random/boot_id /proc/cmdline; pivot status --exit-code", 3, "00000004-", "phase    failed", `check "false" fails`)
	expect("pivot trial && pivot status && ostree admin status; grep -c bad=1 /boot/loader/entries/*", 1, "phase    failed", "the same command tries it again")
}
