package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	systemdunits "machine-pivot/systemd-units"
	"machine-pivot/test/tools/need"
)

// TestFirstBootConditions: on which machines the real systemd starts pivot-firstboot.service. On a host with bootc's
// composefs backend, which has no /run/ostree-booted, it starts and fails, instead of being skipped while kubelet starts.
func TestFirstBootConditions(t *testing.T) {
	need.Program(t, "systemd-analyze")
	unit, err := systemdunits.Files.ReadFile("pivot-firstboot.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, cmdline string
		files         []string
		starts        bool
	}{
		{"ostree", "root=LABEL=root ostree=/ostree/boot.1/x", []string{"ostree-booted", "asked"}, true},
		{"ostree, committed", "root=LABEL=root", []string{"ostree-booted", "asked.committed"}, true},
		{"ostree, closed", "root=LABEL=root", []string{"ostree-booted", "asked.bak"}, false},
		{"ostree, nothing asked", "root=LABEL=root", []string{"ostree-booted"}, false},
		{"composefs backend", "root=LABEL=root composefs=5e8a0bbb", []string{"asked"}, true},
		{"composefs backend, fs-verity optional", "composefs=?5e8a0bbb quiet", []string{"asked"}, true},
		{"composefs backend, nothing asked", "composefs=5e8a0bbb", nil, false},
		{"no image-based host", "root=LABEL=root quiet", []string{"asked"}, false},
		{"ostree's composefs", "ostree.prepare-root.composefs=1", []string{"asked"}, false},
		{"off", "composefs=5e8a0bbb pivot.mode=off", []string{"ostree-booted", "asked"}, false},
	} {
		dir := t.TempDir()
		for _, name := range c.files {
			write(t, filepath.Join(dir, name), "", 0o644)
		}
		argv := []string{"condition"}
		for line := range strings.Lines(strings.NewReplacer("/run/ostree-booted", dir+"/ostree-booted",
			"/etc/ignition-machine-config-encapsulated.json", dir+"/asked").Replace(string(unit))) {
			if strings.HasPrefix(line, "Condition") {
				argv = append(argv, strings.TrimSpace(line))
			}
		}
		cmd := exec.Command("systemd-analyze", argv...)
		cmd.Env = append(os.Environ(), "SYSTEMD_PROC_CMDLINE="+c.cmdline)
		out, err := cmd.CombinedOutput()
		if len(argv) != 5 || (err == nil) != c.starts {
			t.Errorf("%s: %v, want a start: %v\n%s", c.name, err, c.starts, out)
		}
	}
}
