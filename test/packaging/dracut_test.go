package packaging

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDracutModule: the module is never part of an initramfs by itself, and cannot be
// asked for where a program that it needs is not there. What it installs the booting
// tests use.
func TestDracutModule(t *testing.T) {
	for _, c := range []struct{ there, want string }{
		{"/usr/bin/pivot mount", "255"}, // dracut.modules(7): only on request
		{"mount", "1"},
		{"/usr/bin/pivot", "1"},
	} {
		// dracut's own: fails if one of the programs is not there.
		script := `require_binaries() { for b in "$@"; do case " $THERE " in *" $b "*) ;; *) return 1 ;; esac; done; }
. ./module-setup.sh
check
echo $?
depends`
		cmd := exec.CommandContext(t.Context(), "bash", "-uc", script)
		cmd.Dir = root + "/dracut/90pivot"
		cmd.Env = append(cmd.Environ(), "THERE="+c.there)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != c.want+"\nostree systemd" {
			t.Errorf("with %s: %q, want %s: %v", c.there, out, c.want, err)
		}
	}
}
