package hostfiles_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
)

// label returns a label of a type.
func label(kind string) string { return "system_u:object_r:" + kind + "_t:s0" }

// TestInherit: a file without a label gets its directory's label; a file with a label keeps it.
func TestInherit(t *testing.T) {
	dir := t.TempDir()
	plain, labelled := filepath.Join(dir, "plain"), filepath.Join(dir, "labelled")
	check(t, os.WriteFile(plain, nil, 0o644))
	check(t, hostfiles.InheritLabel(plain))
	if got, err := hostfiles.LabelOf(plain); got != "" || err != nil {
		t.Errorf("from a directory without a label: %q, %v", got, err)
	}
	check(t, os.WriteFile(labelled, nil, 0o644))
	check(t, hostfiles.SetLabel(labelled, label("own")))
	check(t, hostfiles.SetLabel(dir, label("directory")))
	for name, want := range map[string]string{plain: "directory", labelled: "own"} {
		check(t, hostfiles.InheritLabel(name))
		if got, err := hostfiles.LabelOf(name); got != label(want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, label(want))
		}
	}
}

// kernel returns a Kernel with regular files as its selinuxfs.
func kernel(t *testing.T, files map[string]string) hostfiles.RunningPolicy {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		name = filepath.Join(root, name)
		check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		check(t, os.WriteFile(name, []byte(content), 0o644))
	}
	return hostfiles.RunningPolicyIn(root)
}

// TestRunningPolicy: a label cannot be stored only if the policy does not know it, is enforced, and
// does not grant the process mac_admin.
func TestRunningPolicy(t *testing.T) {
	const self, fs = "u:r:t:s0", "sys/fs/selinux/"
	question := fmt.Sprintf("%s %s 69", self, self)
	answer := func(allowed, flags string) string {
		return strings.Repeat(" ", len(question)) + allowed + " ffffffff 0 ffffffff 1 " + flags
	}
	for _, c := range []struct {
		name, enforce, access string
		knows, want           bool
	}{
		{"known", "1", answer("0", "0"), true, true},
		{"unknown", "1", answer("2", "0"), false, false},
		{"mac_admin", "1", answer("3", "0"), false, true},
		{"permissive", "0", answer("2", "0"), false, true},
		{"permissive domain", "1", answer("2", "1"), false, true},
		{"no answer", "1", "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := kernel(t, map[string]string{
				fs + "enforce": c.enforce, fs + "access": c.access, "proc/self/attr/current": self + "\x00\n",
				fs + "class/capability2/index": "69", fs + "class/capability2/perms/mac_admin": "1",
			})
			context := filepath.Join(k.Dir, "context")
			if c.knows {
				check(t, os.WriteFile(context, nil, 0o644))
			} else {
				// A kernel file that accepts only numbers and returns EINVAL for anything else.
				check(t, os.Symlink("/proc/self/oom_score_adj", context))
			}
			if err := k.Check("u:object_r:x_t:s0"); (err == nil) != c.want || err != nil && !errors.Is(err, hostfiles.ErrUnknownLabel) {
				t.Errorf("error %v, want none: %v", err, c.want)
			}
		})
	}
	k := kernel(t, nil)
	if err := k.Check("anything"); k.Loaded() || err != nil {
		t.Errorf("without a policy: %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
