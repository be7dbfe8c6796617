package selinux_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/selinux"
)

// fileTypes are those that a tree of ostree can have, as matchpathcon(8) names them.
func fileTypes() map[string]uint32 {
	return map[string]uint32{"file": unix.S_IFREG, "dir": unix.S_IFDIR, "lnk_file": unix.S_IFLNK}
}

// policy reads the contexts in a directory.
func policy(t testing.TB, dir string) *selinux.Contexts {
	t.Helper()
	c, err := selinux.Read(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// compare holds the labels of all paths as files of all types against libselinux's.
func compare(t *testing.T, dir string, paths []string) {
	t.Helper()
	c := policy(t, dir)
	differences, labelled := 0, 0
	for name, mode := range fileTypes() {
		for i := 0; i < len(paths); i += 1000 {
			some := paths[i:min(i+1000, len(paths))]
			for n, want := range libselinux(t, dir, name, some) {
				got, err := c.Label(some[n], mode)
				if err != nil {
					t.Fatal(err)
				}
				if got != "" {
					labelled++
				}
				if got != want {
					if differences++; differences <= 20 {
						t.Errorf("%s %q: %q, libselinux has %q", name, some[n], got, want)
					}
				}
			}
		}
	}
	t.Logf("%d lookups, %d with a label, %d differences", 3*len(paths), labelled, differences)
}

// libselinux asks the real library.
func libselinux(t *testing.T, dir, fileType string, paths []string) []string {
	t.Helper()
	cmd := exec.Command("matchpathcon", append([]string{"-f", filepath.Join(dir, "file_contexts"), "-n", "-m", fileType}, paths...)...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("matchpathcon: %v\n%s", err, complaints.Bytes())
	}
	labels := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(labels) != len(paths) {
		t.Fatalf("matchpathcon gave %d labels for %d paths\n%s", len(labels), len(paths), complaints.Bytes())
	}
	for i, label := range labels {
		if label == "<<none>>" {
			labels[i] = ""
		}
	}
	return labels
}
func TestLab(t *testing.T) {
	dir := os.Getenv("LAB")
	text, _ := os.ReadFile(dir + "/file_contexts")
	var paths []string
	r := rand.New(rand.NewPCG(1, 2))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 1 {
			paths = append(paths, gen(r, f[0]))
			paths = append(paths, gen(r, f[0])+"/x", "/usr/etc"+gen(r, f[0]))
		}
	}
	out, _ := exec.Command("find", "/usr", "/etc", "/var", "/bin", "/boot", "-xdev").Output()
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := 0; i < len(all); i += 1 + len(all)/20000 {
		paths = append(paths, all[i])
	}
	fmt.Println(len(paths))
	compare(t, dir, paths)
}
func gen(r *rand.Rand, p string) string {
	p = strings.NewReplacer("(/.*)?", []string{"", "/a", "/b/c"}[r.IntN(3)], "[^/]*", "foo", "[^/]+", "foo", ".*", "bar", `\.`, ".", `\+`, "+", "[0-9]+", "12", "?", "").Replace(p)
	return p
}
