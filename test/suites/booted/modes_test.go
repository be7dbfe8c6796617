package booted_test

import (
	"strings"
	"testing"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestModes: whatever the umask of the shell that starts pivot, its directories in /etc, its objects in the repository
// and ostree's boot entries have the modes of all hosts.
func TestModes(t *testing.T) {
	for _, umask := range []string{"077", "000"} {
		t.Run(umask, func(t *testing.T) {
			h := hostdir.New(t)
			m := booted.New(t.TempDir(), h.Physical(), script.Programs(t))
			defer func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}()
			run := func(command, want string) {
				t.Helper()
				if out, status, err := m.Run(command); err != nil || status != 0 || !strings.Contains(out, want) {
					t.Fatalf("%s: %v, status %d, want %q:\n%s", command, err, status, want, out)
				}
			}
			run(`mkdir -p /etc/systemd/system && touch /etc/systemd/system/pivot-project.service && cat >mc.yaml <<'END'
spec:
  osImageURL: `+h.Image+`
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /etc/site/deep/app.conf, mode: 0640, contents: {source: "data:,x"}}
      - {path: /var/lib/site/app.conf, mode: 0644, contents: {source: "data:,x"}}
END
umask `+umask+` && pivot apply -r mc.yaml`, "rebooting")
			run("umask "+umask+` && pivot project && pivot verify &&
				stat -c '%n %a' /etc/site /etc/site/deep /etc/site/deep/app.conf /var/lib/site`,
				"/etc/site 755\n/etc/site/deep 755\n/etc/site/deep/app.conf 640\n/var/lib/site 755\n")
			if out, _, _ := m.Run(`find /boot/loader/ /sysroot/ostree/repo/objects /sysroot/ostree/repo/refs -type d ! -perm 755 -ls
				find /boot/loader/ /sysroot/ostree/repo/objects -type f '(' -perm /022 -o ! -perm -444 ')' ! -name '*.file' -ls`); out != "" {
				t.Errorf("modes:\n%s", out)
			}
		})
	}
}
