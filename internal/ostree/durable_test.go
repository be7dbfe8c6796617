package ostree_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// tracedRepo is the environment variable with the repository for the process that TestDurable
// traces.
const tracedRepo = "PIVOT_TRACED_REPO"

// tracedSize is the one with the size of the first file in bytes, if it is to be large.
const tracedSize = "PIVOT_TRACED_SIZE"

// tracedLabel is the one with the label that a staged object gets, if one is to get another.
const tracedLabel = "PIVOT_TRACED_LABEL"

// publish publishes two commits with two refs each, and sets another ref with SetRefs.
func publish(t *testing.T, repo string) {
	r, err := ostree.OpenRepo(repo)
	check(t, err)
	im := begin(t, r)
	meta, err := im.AddDirInfo(t.Context(), ostree.DirInfo{Mode: 0o755})
	check(t, err)
	var roots []ostree.Root
	for _, name := range []string{"first", "last"} {
		size, _ := strconv.ParseInt(os.Getenv(tracedSize), 10, 64) // 0 if it is not set
		content := io.MultiReader(strings.NewReader(name), io.LimitReader(zeroes{}, size))
		file, err := im.AddNewFile(t.Context(), ostree.FileInfo{Mode: 0o100644, Size: uint64(len(name)) + uint64(size)}, content)
		check(t, err)
		tree, err := im.AddDirectory(t.Context(), &ostree.Directory{Files: map[string]ostree.Checksum{"f": file}})
		check(t, err)
		c, err := im.AddCommit(t.Context(), ostree.NewCommit{RootTree: tree, RootMeta: meta, Timestamp: time.Unix(0, 0)})
		check(t, err)
		roots = append(roots, ostree.Root{Commit: c, Refs: []string{name + "/a", name + "/b"}})
	}
	if os.Getenv(tracedLabel) != "" { // one object becomes another one
		file, err := im.AddNewFile(t.Context(), ostree.FileInfo{Mode: 0o100644, Size: 1}, strings.NewReader("x"))
		check(t, err)
		file, err = im.MoveLabel(t.Context(), file, os.Getenv(tracedLabel))
		check(t, err)
		tree, err := im.AddDirectory(t.Context(), &ostree.Directory{Files: map[string]ostree.Checksum{"f": file}})
		check(t, err)
		c, err := im.AddCommit(t.Context(), ostree.NewCommit{RootTree: tree, RootMeta: meta, Timestamp: time.Unix(0, 0)})
		check(t, err)
		roots[0] = ostree.Root{Commit: c, Refs: roots[0].Refs}
	}
	check(t, im.Finish(t.Context(), roots...))
	check(t, r.SetRefs(roots[0].Commit, "other/c"))
	check(t, im.Discard())
}

// TestDurable traces the system calls of an import. A file must be durable before it gets its final name, and each step
// before the next one: contents, directories, commits, all refs but the last root's, and those.
func TestDurable(t *testing.T) {
	if repo := os.Getenv(tracedRepo); repo != "" {
		publish(t, repo)
		return
	}
	need.Root(t)
	need.Program(t, "strace")
	for name, c := range map[string]struct {
		config      []string
		size        string // of the files
		refs, syncs int    // files of refs that are synced by themselves, and how often everything is
		left        bool   // an import that was killed has left the files
		label       string // of an object that gets another one after it was written
	}{
		"together":                         {refs: 1, syncs: 1},
		"each":                             {config: []string{"core.per-object-fsync", "true"}, refs: 5},
		"each, but what was left":          {config: []string{"core.per-object-fsync", "true"}, refs: 1, syncs: 1, left: true},
		"each, but what got another label": {config: []string{"core.per-object-fsync", "true"}, refs: 1, syncs: 1, label: "system_u:object_r:usr_t:s0"},
		"before the end":                   {size: "20000000", refs: 1, syncs: 2},  // in the background, while the rest is done
		"much, in parts":                   {size: "140000000", refs: 1, syncs: 2}, // and in the background
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepo(t)
			written := map[string]bool{}
			if c.left {
				written = leaveFiles(t, r)
			}
			for i := 0; i+1 < len(c.config); i += 2 {
				run(t, "ostree", "config", "--repo="+r.Path(), "set", c.config[i], c.config[i+1])
			}
			trace := filepath.Join(t.TempDir(), "trace")
			cmd := exec.Command("strace", "-f", "-y", "-qq", "-o", trace, "-e", "signal=none", "-e", "trace=openat,fsync,syncfs,renameat,renameat2",
				os.Args[0], "-test.run", "^TestDurable$")
			cmd.Env = append(os.Environ(), tracedRepo+"="+r.Path(), tracedSize+"="+c.size, tracedLabel+"="+c.label)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			text, err := os.ReadFile(trace)
			check(t, err)
			d := disk{t: t, repo: r.Path(), written: written, renamed: map[string]bool{}, fsyncs: map[string]int{}}
			for _, c := range callsIn(string(text)) {
				d.do(c)
			}
			if len(d.renamed) > 0 || d.steps != "1 2 3 4 5 6 " {
				t.Errorf("steps %s, want 1 to 6; %v are not durable in the end", d.steps, d.renamed)
			}
			// One sync covers the files of all refs, except that of SetRefs.
			if refs := d.fsyncs["ref"]; refs != c.refs {
				t.Errorf("%d files of refs were synced by themselves, want %d", refs, c.refs)
			}
			if syncs := d.fsyncs["all"]; syncs < c.syncs || c.syncs == 0 && syncs > 0 {
				t.Errorf("everything was synced %d times, want %d", syncs, c.syncs)
			}
		})
	}
}

// leaveFiles leaves the files of publish as a killed import does: complete, and not synced.
func leaveFiles(t *testing.T, r *ostree.Repo) (paths map[string]bool) {
	t.Helper()
	im := begin(t, r)
	for _, content := range []string{"first", "last"} {
		_, err := im.AddNewFile(t.Context(), ostree.FileInfo{Mode: 0o100644, Size: uint64(len(content))}, strings.NewReader(content))
		check(t, err)
	}
	check(t, im.Close())
	paths = map[string]bool{}
	for _, path := range staged(t, r) {
		paths[path] = true
	}
	if len(paths) != 2 {
		t.Fatalf("%v were left", paths)
	}
	return paths
}

// disk tracks which parts of a repository are durable.
type disk struct {
	t                *testing.T
	repo             string
	written, renamed map[string]bool // not durable yet: files, and directories with new names
	fsyncs           map[string]int  // number of fsyncs of ref files, under the key "ref", and of syncfs, under "all"
	steps            string
}

func (d *disk) do(c call) {
	switch c.name {
	case "openat":
		d.written[c.path] = true
	case "syncfs":
		d.fsyncs["all"]++
		clear(d.written)
		clear(d.renamed)
	case "fsync":
		if strings.Contains(c.path, "/tmp/pivot-ref-") {
			d.fsyncs["ref"]++
		}
		delete(d.written, c.path)
		delete(d.renamed, c.path)
	default:
		d.rename(c)
	}
}

func (d *disk) rename(c call) {
	unsynced := d.written[c.path]
	delete(d.written, c.path)
	if strings.HasPrefix(c.to, filepath.Join(d.repo, "tmp")) {
		d.written[c.to] = unsynced
		return
	}
	if unsynced {
		d.t.Errorf("%s got its name before it was durable", c.to)
	}
	if step := stepOf(c.to) + " "; !strings.HasSuffix(d.steps, step) {
		if len(d.renamed) > 0 {
			d.t.Errorf("%v are not durable before step %s", d.renamed, step)
		}
		d.steps += step
	}
	d.renamed[filepath.Dir(c.to)] = true
}

// stepOf returns the step in which a file gets its name.
func stepOf(path string) string {
	for step, part := range map[string]string{"1": ".file", "3": ".commit", "4": "/refs/heads/first/", "5": "/refs/heads/last/", "6": "/refs/heads/other/"} {
		if strings.Contains(path, part) {
			return step
		}
	}
	return "2"
}

// call is a successful system call with its paths.
type call struct{ name, path, to string }

var (
	openCall   = regexp.MustCompile(`^(openat)\([^<]*<([^>]*)>, "([^"]*)", [^)]*O_CREAT.*\) += \d+`)
	syncCall   = regexp.MustCompile(`^(fsync|syncfs)\(\d+<([^>]*)>\) += 0$`)
	renameCall = regexp.MustCompile(`^(renameat2?)\([^<]*<([^>]*)>, "([^"]*)", [^<]*<([^>]*)>, "([^"]*)".*\) += 0$`)
)

// callsIn parses the output of strace and returns the calls in the order in which they end.
func callsIn(text string) (calls []call) {
	join := func(dir, name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	begun := map[string]string{} // by thread
	for line := range strings.Lines(text) {
		thread, line, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		line = strings.TrimLeft(line, " ")
		if first, unfinished := strings.CutSuffix(line, " <unfinished ...>"); unfinished {
			begun[thread] = first
			continue
		}
		if _, rest, resumed := strings.Cut(line, " resumed>"); resumed {
			line = begun[thread] + rest
		}
		if m := openCall.FindStringSubmatch(line); m != nil {
			calls = append(calls, call{m[1], join(m[2], m[3]), ""})
		} else if m := syncCall.FindStringSubmatch(line); m != nil {
			calls = append(calls, call{m[1], m[2], ""})
		} else if m := renameCall.FindStringSubmatch(line); m != nil {
			calls = append(calls, call{m[1], join(m[2], m[3]), join(m[4], m[5])})
		}
	}
	return calls
}
