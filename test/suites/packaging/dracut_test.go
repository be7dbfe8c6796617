package packaging

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDracutModule: the module is never included by default, and cannot be requested if a required
// program is missing. The boot tests cover what it installs.
func TestDracutModule(t *testing.T) {
	for _, c := range []struct{ there, want string }{
		{"/usr/bin/pivot mount", "255"}, // dracut.modules(7): only on request
		{"mount", "1"},
		{"/usr/bin/pivot", "1"},
	} {
		// Like dracut's own function: fails if one of the programs is missing.
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
