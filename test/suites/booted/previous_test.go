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

// wrongOstree is ostree that finalizes as the file "how" says: then it fails, or somebody else changes an argument.
const wrongOstree = `#!/bin/sh
/usr/bin/ostree "$@" || exit
[ "$*" = "admin finalize-staged" ] || exit 0
case $(cat /var/home/how 2>/dev/null) in
fails) exit 1 ;;
spoiled) sed -i 's/ two=2/ three=3/' /boot/loader/entries/*.conf ;;
esac
`

// TestPrevious: a change that fails after its commit leaves all boot entries as they were, also the rollback's.
// Whatever somebody has locked in the deployment that a change replaces, the change succeeds.
func TestPrevious(t *testing.T) {
	h := hostdir.New(t)
	programs := script.Programs(t)
	if err := os.WriteFile(filepath.Join(programs, "ostree"), []byte(wrongOstree), 0o755); err != nil {
		t.Fatal(err)
	}
	m := booted.New(t.TempDir(), h.Physical(), programs)
	defer func() {
		_, _, err := m.Run("chattr -R -i -a /sysroot/ostree/deploy /boot 2>/dev/null || :")
		if closed := m.Close(); err != nil || closed != nil {
			t.Error(err, closed)
		}
	}()
	run := func(command string, status int, wants ...string) (out string) {
		t.Helper()
		out, got, err := m.Run(command)
		for _, want := range append(wants, "") {
			if err != nil || got != status || !strings.Contains(out, want) {
				t.Fatalf("%s: %v, status %d, want %d with %q:\n%s", command, err, got, status, want, out)
			}
		}
		return out
	}
	const (
		previous = `for d in /sysroot/ostree/deploy/os/deploy/*.[0-9]; do [ "$(stat -c %i $d)" = "$(stat -c %i /)" ] || old=$d; done; `
		entries  = `sed -n 's/boot\.[01]//g; /^title\|^options/p' /boot/loader/entries/*.conf`
		count    = `ls /boot/loader/entries/*.conf | wc -l; ls -d /sysroot/ostree/deploy/os/deploy/*.[0-9] | wc -l`
	)
	run("pivot rebase -r "+h.Image+"; echo not reached", 0, "rebooting into")
	before := run(entries, 0, "title ")
	for _, how := range []string{"fails", "spoiled"} {
		run("echo "+how+">how; pivot rebase --append-karg two=2", 1, "the new deployment is removed again, the next boot is the one from before")
		if after := run("rm how; "+entries, 0); after != before {
			t.Errorf("%s: boot entries\n%s\nbefore\n%s", how, after, before)
		}
	}
	run("pivot verify", 0)

	run("chattr +i /boot/loader/entries/ostree-1-os.conf; pivot rebase --append-karg two=2", 78, "/boot/loader", "hint: unlock it: chattr -i -a /boot/loader")
	run("chattr -i /boot/loader/entries/ostree-1-os.conf", 0)
	if after := run(entries, 0); after != before {
		t.Errorf("boot entries\n%s\nbefore\n%s", after, before)
	}

	run(previous+`mkdir $old/etc/locked && touch $old/etc/locked/x $old/etc/log && chattr +i $old/etc/locked/x $old/etc/locked && chattr +a $old/etc/log &&
		mount -t tmpfs tmpfs $old/etc/locked && pivot rebase --append-karg two=2`, 0, "stays for now: something is mounted at ")
	run(count, 0, "3\n3\n")
	run("pivot rebase --append-karg four=4 && "+count, 0, "2\n2\n")

	// An object of the repository, which other deployments may have too.
	run(previous+`chattr +i $old/usr/lib/os-release && pivot rebase --append-karg six=6 && `+count, 0, "2\n2\n")
	run("pivot rebase --append-karg seven=7 && "+count, 0, "2\n2\n")

	// What an earlier attempt of another program has left half removed.
	run(previous+`cp -a $old ${old%.*}.7 && touch ${old%.*}.7/etc/x && chattr +i ${old%.*}.7/etc/x && pivot rebase --append-karg five=5 && `+count, 0, "2\n2\n")
}
