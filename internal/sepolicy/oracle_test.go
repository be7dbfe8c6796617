package sepolicy_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/sepolicy"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/debianpolicy"
)

// TestAgainstLibselinux compares the labels of 140,000 paths (with -short, of every 9th) with
// those of the real library, for several file types, with Debian's policy and with a
// generated one.
func TestAgainstLibselinux(t *testing.T) {
	if _, err := exec.LookPath("matchpathcon"); err != nil {
		need.Lacking(t, "needs libselinux's matchpathcon: "+err.Error())
	}
	for _, name := range []string{"debian", "made"} {
		t.Run(name, func(t *testing.T) {
			contexts := madeContexts()
			if name == "debian" {
				if testing.Short() {
					t.Skip("unpacks all modules of Debian's policy")
				}
				contexts = debianContexts(t)
			}
			dir := t.TempDir()
			write(t, dir, "file_contexts", contexts)
			write(t, dir, "file_contexts.local", "/usr/share/local(/.*)?  system_u:object_r:local_t:s0\n/usr/bin/tool  --  system_u:object_r:tool_t:s0\n")
			write(t, dir, "file_contexts.subs", "/data /var/lib\n")
			write(t, dir, "file_contexts.subs_dist", "# equivalences\n/usr/etc /etc\n/lib64 /usr/lib\n/var/home /home\n/sysroot/x /\n/data/deep /srv\n")
			paths := append(pathsOf(contexts, 50000), filesHere(t, 20000)...)
			if testing.Short() {
				paths = everyNinth(paths) // 9, because the forms of paths have period 8
			}
			compare(t, dir, paths)
		})
	}
}

func everyNinth(all []string) (some []string) {
	for i := 0; i < len(all); i += 9 {
		some = append(some, all[i])
	}
	return some
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// types returns the file types that occur in an ostree tree, by their name for matchpathcon(8).
func types() map[string]fs.FileMode {
	return map[string]fs.FileMode{"file": 0, "dir": fs.ModeDir, "lnk_file": fs.ModeSymlink}
}

// contextsIn reads the contexts in a directory.
func contextsIn(t testing.TB, dir string) *sepolicy.Contexts {
	t.Helper()
	c, err := sepolicy.Files(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, filepath.Base(name))) }).Contexts("any")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// compare compares the labels of all paths with libselinux's. Each path is looked up with one
// file type.
func compare(t *testing.T, dir string, paths []string) {
	t.Helper()
	c := contextsIn(t, dir)
	const atOnce = 10000
	differences, labels := 0, map[string]bool{}
	names := slices.Sorted(maps.Keys(types()))
	for i := 0; i < len(paths); i += atOnce {
		name := names[i/atOnce%len(names)]
		some := paths[i:min(i+atOnce, len(paths))]
		for n, want := range libselinux(t, dir, name, some) {
			got, _, err := c.Label(some[n], types()[name])
			if err != nil {
				t.Fatal(err)
			}
			labels[got] = true
			if got == want {
				continue
			}
			if differences++; differences <= 20 {
				t.Errorf("%s %q: %q, libselinux has %q", name, some[n], got, want)
			}
		}
	}
	t.Logf("%d lookups, %d different labels, %d differences", len(paths), len(labels), differences)
	if len(labels) < 300 {
		t.Errorf("the paths met only %d labels", len(labels))
	}
}

// libselinux returns the labels that the real library has for paths.
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

// debianContexts returns the contexts of all modules of Debian's policy.
func debianContexts(t testing.TB) string {
	t.Helper()
	contexts, err := debianpolicy.Contexts()
	if err != nil {
		need.Lacking(t, err.Error())
	}
	return contexts
}

// madeContexts generates about 3,000 patterns of the forms in Fedora's policy. Many of
// them match the same path.
func madeContexts() string {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	var b strings.Builder
	b.WriteString("/.*\tsystem_u:object_r:default_t:s0\n/\t-d\tsystem_u:object_r:root_t:s0\n")
	for i := range 3000 {
		top := pick("/usr", "/etc", "/var", "/usr/lib", "/var/lib", "/usr/share", "/opt", "/run", "/usr/(.*/)?s?bin", "/(usr/)?lib(64)?", "/home/[^/]+", "/u?sr")
		name := pick("app", "tool", "conf", "log", "x", "y") + fmt.Sprint(r.IntN(40))
		tail := pick("", "(/.*)?", "/.*", "/[^/]*", `\.conf`, `[-+]?`, `\.so(\.[0-9]+)*`, ".*", "(/sub)?(/.*)?", `/(one|two|three)\.d/[^/]+\.(cf|db)`, `\+\+`, `/.+`, `{1,3}`, "?", `-[a-z]{2,4}`, `/([^/]*/)?leaf`, `\.?`, `_[A-Z]+\.\w+`)
		label := fmt.Sprintf("system_u:object_r:t%d_t:s0", i%500)
		if r.IntN(40) == 0 {
			label = "<<none>>"
		}
		fmt.Fprintf(&b, "%s/%s%s\t%s\t%s\n", top, name, tail, pick("", "", "--", "-d", "-l", "-c"), label)
	}
	return b.String()
}

// pathsOf generates n paths from patterns: paths that match, paths that nearly match, and
// forms of them that are normalized or substituted before the lookup.
func pathsOf(contexts string, n int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	var patterns []*syntax.Regexp
	for line := range strings.Lines(contexts) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if re, err := syntax.Parse(fields[0], syntax.Perl|syntax.DotNL); err == nil {
			patterns = append(patterns, re)
		}
	}
	paths := make([]string, 0, n)
	for len(paths) < n {
		path := oneOf(patterns[len(paths)/8%len(patterns)], r)
		switch len(paths) % 8 {
		case 1:
			path += "/below"
		case 2:
			path = "/usr" + path
		case 3:
			path = strings.Replace(path, "/", "//", 2) + "/"
		case 4:
			path += "é"
		case 5:
			path = "/usr/etc" + strings.TrimPrefix(path, "/etc")
		case 6:
			path = "/data" + strings.TrimPrefix(path, "/var/lib")
		case 7:
			path = path[:len(path)-r.IntN(min(3, len(path)))]
		}
		if strings.HasPrefix(path, "/") && !strings.Contains(path, "\n") {
			paths = append(paths, path)
		} else {
			paths = append(paths, "/usr/bin/tool")
		}
	}
	return paths
}

// oneOf returns a string that an expression matches.
func oneOf(re *syntax.Regexp, r *rand.Rand) string {
	some := func(least, most int) string {
		var b strings.Builder
		for range least + r.IntN(most-least+1) {
			b.WriteString(oneOf(re.Sub[0], r))
		}
		return b.String()
	}
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return string("abz09-_./ü"[r.IntN(10)])
	case syntax.OpCharClass:
		for range 20 {
			if c := rune("akzAZ059._-+ü"[r.IntN(13)]); inClass(re.Rune, c) {
				return string(c)
			}
		}
		return string(max(re.Rune[0], ' '))
	case syntax.OpCapture:
		return oneOf(re.Sub[0], r)
	case syntax.OpStar:
		return some(0, 3)
	case syntax.OpPlus:
		return some(1, 3)
	case syntax.OpQuest:
		return some(0, 1)
	case syntax.OpRepeat:
		return some(re.Min, max(re.Max, re.Min))
	case syntax.OpAlternate:
		return oneOf(re.Sub[r.IntN(len(re.Sub))], r)
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(oneOf(sub, r))
		}
		return b.String()
	}
	return ""
}

// inClass reports whether a character is in one of the ranges, given as pairs of first and last.
func inClass(pairs []rune, c rune) bool {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] <= c && c <= pairs[i+1] {
			return true
		}
	}
	return false
}

// filesHere returns the paths of up to n files of this machine.
func filesHere(t testing.TB, n int) (paths []string) {
	t.Helper()
	err := filepath.WalkDir("/usr", func(path string, _ fs.DirEntry, err error) error {
		if len(paths) == n {
			return fs.SkipAll
		}
		if err == nil && !strings.Contains(path, "\n") {
			paths = append(paths, path)
		}
		return nil // skip unreadable directories
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// BenchmarkLabel measures reading Debian's policy and looking up 50,000 paths: wall-clock time
// and CPU time, which does not depend on other programs.
func BenchmarkLabel(b *testing.B) {
	dir := b.TempDir()
	contexts := debianContexts(b)
	write(b, dir, "file_contexts", contexts)
	for name, paths := range map[string][]string{"made": pathsOf(contexts, 50000), "files": filesHere(b, 50000)} {
		b.Run(name, func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				c := contextsIn(b, dir)
				for _, path := range paths {
					if _, _, err := c.Label(path, 0); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(paths)), "paths")
			b.ReportMetric(float64((processorTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// processorTime returns the CPU time used by this process.
func processorTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
