package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSamePolicy (P46): a soft reboot does not load a policy of SELinux, so it must be the same one.
func TestSamePolicy(t *testing.T) {
	const on, config, policy = "SELINUX=enforcing\nSELINUXTYPE=a\n", "etc/selinux/config", "etc/selinux/a/policy/policy.33"
	for name, c := range map[string]struct {
		running, next map[string]string
		same          bool
	}{
		"none":              {same: true},
		"the same":          {running: map[string]string{config: on, policy: "x"}, next: map[string]string{config: on, policy: "x"}, same: true},
		"another content":   {running: map[string]string{config: on, policy: "x"}, next: map[string]string{config: on, policy: "y"}},
		"another mode":      {running: map[string]string{config: on, policy: "x"}, next: map[string]string{config: "SELINUX=permissive\nSELINUXTYPE=a\n", policy: "x"}},
		"only in the next":  {next: map[string]string{config: on, policy: "x"}},
		"only here":         {running: map[string]string{config: on, policy: "x"}},
		"switched off here": {running: map[string]string{config: "SELINUX=disabled\n", policy: "x"}, next: map[string]string{policy: "y"}, same: true},
	} {
		t.Run(name, func(t *testing.T) {
			var roots [2]string
			for i, files := range []map[string]string{c.running, c.next} {
				roots[i] = t.TempDir()
				for path, text := range files {
					file := filepath.Join(roots[i], path)
					if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := samePolicy(roots[0], roots[1]); (err == nil) != c.same {
				t.Errorf("%v, want the same: %v", err, c.same)
			}
		})
	}
}
