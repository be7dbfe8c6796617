package hostfiles_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/tools/need"
)

// inChroot makes TestNamespaceInChroot act as the program in the chroot.
const inChroot = "TEST_IN_CHROOT"

// TestNamespaceInChroot: in a chroot with a root that is no mount point, a private mount namespace has the same files.
// Its mounts stay in it, also where the mounts of the host are shared. Without /proc the error says what to do.
func TestNamespaceInChroot(t *testing.T) {
	if os.Getenv(inChroot) != "" {
		err := hostfiles.WithTmpfs("/tmp", func() error {
			if content, err := os.ReadFile("/marker"); err != nil || string(content) != "here" {
				t.Errorf("/marker has %q, %v", content, err)
			}
			if content, err := os.ReadFile("marker"); err != nil || string(content) != "here" {
				t.Errorf("the working directory is another: %q, %v", content, err)
			}
			if err := os.WriteFile("/tmp/mine", nil, 0o600); err != nil {
				return err
			}
			out, err := exec.Command("/test", "-test.list", "Chroot").CombinedOutput()
			if err != nil {
				t.Errorf("a child: %v\n%s", err, out)
			}
			return nil
		})
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
		}
		return
	}
	need.Root(t)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	const proc = "mount -t proc proc $D/proc; mount --rbind /dev $D/dev" // programs of Go open /dev/null for their children
	for name, c := range map[string]struct{ prepare, want string }{
		"with /proc":              {proc, ""},
		"with shared mounts":      {proc + "; mount --make-rshared /", ""},
		"without /proc":           {"true", "the root directory is no mount point, as in a chroot"},
		"root is a mount already": {"mount --bind $D $D; " + proc, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, sub := range []string{"proc", "dev", "tmp"} {
				if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, content := range map[string]string{"marker": "here", "test": string(self)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			// The outer namespace stands for the host's, so that nothing is left on this one.
			script := "set -e; mount --make-rprivate /; " + c.prepare + `
before=$(wc -l </proc/self/mountinfo)
chroot $D /test -test.run '^TestNamespaceInChroot$' -test.v
after=$(wc -l </proc/self/mountinfo); [ "$before" = "$after" ] || { echo "left: $before mounts before, $after after"; exit 1; }
[ ! -e $D/tmp/mine ] || { echo "the tmpfs was not used"; exit 1; }`
			cmd := exec.Command("unshare", "-m", "sh", "-c", script)
			cmd.Env = append(os.Environ(), inChroot+"=1", "D="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) || c.want == "" && strings.Contains(string(out), "cannot") {
				t.Errorf("%v, want %q:\n%s", err, c.want, out)
			}
		})
	}
}
