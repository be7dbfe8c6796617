package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// TestHostilePolicies: an SELinux policy that would take gigabytes or hours makes its image bad input, within 150 MB of
// memory and a few seconds.
func TestHostilePolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("imports images with large policies")
	}
	need.Ostree(t)
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := 0; i < n && b.Len() < 15*MiB; i++ {
			fmt.Fprintf(&b, format+"\n", i)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"patterns":      {"file_contexts", lines(20*MiB, "/%x(/.*)? a"), "more than 8388608 bytes of file contexts"},
		"literals":      {"file_contexts", lines(800_000, "/%x a"), "more than 20000 patterns of file contexts"},
		"substitutions": {"file_contexts.subs", lines(800_000, "/%x a"), "more than 1000 substitutions"},
		"one line":      {"file_contexts", strings.Repeat("a ", 3*MiB), "line 1: it is too long"},
		"work":          {"file_contexts", strings.Repeat("/usr/(.?){150}[xy]{1,2} a\n", 100), "more than 4000000000 steps"},
		"not compiled":  {"file_contexts.bin", strings.Repeat("\x8a\xff\x7c\xf9\x06\x00\x00\x00", MiB), "/usr/etc/selinux/x"},
		"within limits": {"file_contexts", lines(19_000, "/%x/%[1]x/%[1]x/.* a"), ""},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			files := map[string]string{"config": "SELINUX=enforcing\nSELINUXTYPE=x\n", "x/policy/policy.33": "binary", "x/contexts/files/file_contexts": "/a a\n"}
			files["x/contexts/files/"+c.file] = c.text
			dirs, entries := manyNames(files)
			for _, dir := range []string{"etc/selinux/x", "etc/selinux/x/policy", "etc/selinux/x/contexts", "etc/selinux/x/contexts/files"} {
				dirs = append(dirs, oscontainer.Directory(dir))
			}
			entries = entries[:2000]
			dir := t.TempDir()
			img, err := oscontainer.Plain("1", oscontainer.WithDerived(append(dirs, entries...)...), oscontainer.WithWorkDir(dir))
			path, repo := filepath.Join(dir, "image"), filepath.Join(dir, "repo")
			if err == nil {
				err = oscontainer.WriteLayout(path, img)
			}
			if err == nil {
				err = ostreetree.Init(repo, "bare")
			}
			if err != nil {
				t.Fatal(err)
			}
			exit := 65
			if c.want == "" {
				exit = 0
			}
			script.Bounded(t, exit, c.want, "pivot", "image", "import", "oci:"+path, "--repo", repo)
		})
	}
}
