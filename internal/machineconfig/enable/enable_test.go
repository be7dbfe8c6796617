package enable_test

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/enable"
)

// TestAgainstSystemctl: the links are the same as those of the real systemctl.
func TestAgainstSystemctl(t *testing.T) {
	if _, err := exec.LookPath("systemctl"); err != nil {
		t.Fatal("systemctl is needed: apt-get install systemd")
	}
	for _, c := range []struct{ name, install string }{
		{"a.service", "WantedBy=multi-user.target"},
		{"a.service", "WantedBy=multi-user.target graphical.target\nWantedBy=b.target\nRequiredBy=c.service"},
		{"a.service", "WantedBy=multi-user.target \\\n  other.target"},
		{"a.service", "WantedBy=lost.target\nWantedBy=\nWantedBy=kept.target"},
		{"a.service", "# WantedBy=x.target\n; WantedBy=y.target\nWantedBy=z.target"},
		{"a.service", "Alias=b.service c.service\nWantedBy=%n.target %N.target %p.target"},
		{"a.service", "WantedBy=100%%.target"},
		{"a.service", "WantedBy=x.unit"},
		{"a.service", "# a comment \\\nWantedBy=a.target \\\n# in between\n  b.target"},
		{"a-b-c.socket", "WantedBy=sockets.target %j.target"},
		{"a@.service", "WantedBy=multi-user.target\nDefaultInstance=x"},
		{"a@.service", "WantedBy=%i.target %p.target\nDefaultInstance=x-y"},
		{"a@i.service", "WantedBy=%i.target"},
		{"a.timer", "WantedBy=timers.target\nAlso=b.service"},
		{"a.service", ""},
		{"a.mount", "[Unit]\nWantedBy=not.target"},
		{"a.service", "WantedBy=%m.target"},
		{"a.service", "Alias=a.socket"},
		{"a@.service", "WantedBy=multi-user.target"},
		{"a.service", "WantedBy=../x.target"},
	} {
		t.Run(strings.NewReplacer("\n", " ", "/", "_").Replace(c.name+" "+c.install), func(t *testing.T) {
			root := t.TempDir()
			file := path.Join(enable.Dir, c.name)
			text := "[Unit]\nDescription=a\n[Service]\nExecStart=/bin/true\n[Install]\n" + c.install + "\n"
			if err := os.MkdirAll(filepath.Join(root, enable.Dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			in, err := enable.Of(c.name, file, text)
			for _, also := range in.Also { // systemctl needs their files
				if err := os.WriteFile(filepath.Join(root, enable.Dir, also), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			out, failure := exec.Command("systemctl", "--root="+root, "enable", c.name).CombinedOutput()
			want := linksIn(t, root)
			switch {
			case err != nil && failure == nil && len(want) > 0 && !strings.Contains(err.Error(), "not implemented"):
				t.Errorf("it fails (%v), where systemctl makes %v", err, want)
			case err == nil && failure != nil:
				t.Errorf("it makes %v, where systemctl fails: %s", in.Links, out)
			case err == nil && !maps.Equal(in.Links, want):
				t.Errorf("links %v, want %v\n%s", in.Links, want, out)
			}
		})
	}
}

// linksIn returns the links below a root directory.
func linksIn(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.Type() != os.ModeSymlink {
			return err
		}
		found[strings.TrimPrefix(name, root)], err = os.Readlink(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
