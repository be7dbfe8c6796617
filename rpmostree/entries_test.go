package rpmostree_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	standin "machine-pivot/test/worlds/rpmostree"
)

// merging returns the engines that use libostree's merge directly, by name.
func merging(h *hostdir.Host) map[string]pivot.Engine {
	return map[string]pivot.Engine{
		"ostree": &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run},
		"direct": &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}},
	}
}

// TestEntries: files, directories, links and removals are part of the one commit, with their modes
// and owners. The old system's /etc does not change (P53).
func TestEntries(t *testing.T) {
	for _, name := range []string{"ostree", "direct"} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			shell(t, h, `cd etc && echo mine >default && echo mine >added && ln -s added link && mkdir -m 0700 ours && echo mine >ours/file && mkdir admin && echo x >admin/file && echo x >mine`)
			h.ExtendNext("usr/etc/brought/file", "usr/etc/brought/less", "usr/etc/deep/er/less", "usr/etc/deep/er/file")
			r := request(t, h)
			owned := hostfiles.NewFile("/etc/sub/dir/file", 0o4750, []byte("content"))
			owned.UID, owned.GID = 7, 8
			dir := hostfiles.NewDirectory("/etc/sub", 0o711)
			dir.GID = 9
			link := hostfiles.NewLink("/etc/sub/link", "../nowhere")
			link.UID = 10
			r.Entries = []hostfiles.File{
				owned, link, dir, hostfiles.NewFile("/etc/brought/ours", 0o600, []byte("beside the image's")),
				hostfiles.NewDirectory("/etc/admin", 0o750), // exists on this machine, with a file
				hostfiles.NewLink("/etc/systemd/system/masked.service", "/dev/null"),
				hostfiles.Default("/etc/default"), hostfiles.Default("/etc/added"), hostfiles.Default("/etc/link"),
				hostfiles.Default("/etc/ours"), hostfiles.Default("/etc/ours/file"), hostfiles.Default("/etc/none"),
				hostfiles.Absent("/etc/brought/less"), hostfiles.Absent("/etc/deep/er/less"), hostfiles.Absent("/etc/mine"), hostfiles.Absent("/etc/no/where"),
			}
			before := list(t, h)
			e := merging(h)[name]
			must(t, errors.Join(e.Preflight(t.Context(), pivot.Plan{}), e.Prepare(t.Context(), r)))
			must(t, e.Commit(t.Context(), r))
			if after := list(t, h); after != before {
				t.Errorf("the old /etc is\n%s\nwas\n%s", after, before)
			}
			h.Boot()
			want := `admin d 750 0:0
admin/file f 644 0:0
brought d 755 0:0
brought/file f 644 0:0
brought/ours f 600 0:0
deep d 755 0:0
deep/er d 755 0:0
deep/er/file f 644 0:0
default f 644 0:0
sub d 711 0:9
sub/dir d 755 0:0
sub/dir/file f 4750 7:8
sub/link l 777 10:0 ../nowhere
systemd d 755 0:0
systemd/system d 755 0:0
systemd/system/masked.service l 777 0:0 /dev/null
default of B.2
`
			got := shell(t, h, `cd etc && find . ! -name . ! -path './containers*' -printf '%P %y %m %U:%G %l\n' | sed 's/ $//' | sort && cat default`)
			if got != want {
				t.Errorf("the new /etc is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestEntriesThatAreRefused: entries that libostree's merge would leave out, or because of which
// it would fail, are refused before the commit (P53).
func TestEntriesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry hostfiles.File
		says  string
	}{
		{"a file where the image has a directory", hostfiles.NewFile("/etc/brought", 0o600, nil), "the new image has a directory there"},
		{"a link where the image has a directory", hostfiles.NewLink("/etc/brought", "x"), "the new image has a directory there"},
		{"a file where a full directory stands", hostfiles.NewFile("/etc/full", 0o600, nil), "directory not empty"},
		{"a directory of the image's to be absent", hostfiles.Absent("/etc/brought"), "the new image has a directory there"},
		{"a full directory removed", hostfiles.Default("/etc/full"), "directory not empty"},
	} {
		for _, name := range []string{"ostree", "direct"} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				sample.Short(t, 8)
				h := hostdir.New(t)
				shell(t, h, "mkdir etc/full && echo x >etc/full/file")
				h.ExtendNext("usr/etc/brought/file")
				r := request(t, h)
				r.Entries = []hostfiles.File{c.entry}
				e := merging(h)[name]
				err := e.Prepare(t.Context(), r)
				if err == nil || !strings.Contains(err.Error(), c.says) || fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
					t.Errorf("error %v", err)
				}
				must(t, e.Discard(t.Context()))
				if h.Boot(); h.Version() != "A.1" {
					t.Errorf("it boots %s", h.Version())
				}
			})
		}
	}
}

// TestEntriesWithRpmOstree: entries are part of a deployment made by rpm-ostree, too.
func TestEntriesWithRpmOstree(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	h.Layer("strace;")
	shell(t, h, "echo mine >etc/default; ln -s x etc/link")
	var notes string
	e, r := engine(h, false, &notes), request(t, h)
	r.Entries = append(r.Entries, hostfiles.Default("/etc/default"), hostfiles.Default("/etc/link"), hostfiles.NewDirectory("/etc/d", 0o700))
	must(t, e.Prepare(t.Context(), r))
	must(t, e.Commit(t.Context(), r))
	h.Boot()
	if got := shell(t, h, "cat etc/default; ls etc; stat -c %a etc/d"); !strings.HasPrefix(got, "default of B.2\n") || strings.Contains(got, "link") || !strings.HasSuffix(got, "700\n") {
		t.Errorf("/etc is %s", got)
	}
}

// list describes everything in /etc.
func list(t *testing.T, h *hostdir.Host) string {
	return shell(t, h, `find etc -printf '%P %y %m %U:%G %l\n' | sort; cat etc/default`)
}

// shell runs a script in the host's root directory.
func shell(t *testing.T, h *hostdir.Host, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = h.Path("/")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return string(out)
}

// TestEachEntryIsReadBack: each of a commit's entries is looked for in the new deployment, also behind one that returns to
// the image's default.
func TestEachEntryIsReadBack(t *testing.T) {
	for _, spoiled := range []string{"/etc/default", "/etc/new", ""} {
		h := hostdir.New(t)
		r := request(t, h)
		r.Entries = append([]hostfiles.File{hostfiles.Default("/etc/default")}, r.Entries...)
		h.Ostree.Fail = func(call int, after bool) error {
			if !after || spoiled == "" || h.Ostree.Calls[call-1] != "finalize-staged" {
				return nil
			}
			files, err := filepath.Glob(filepath.Join(h.Physical(), "ostree/deploy/os/deploy", r.Commit+".0", spoiled))
			for _, file := range files {
				err = errors.Join(err, os.WriteFile(file, []byte("spoiled"), 0o644))
			}
			return err
		}
		e := &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
		must(t, e.Prepare(t.Context(), r))
		err := e.Commit(t.Context(), r)
		if want := "cannot trust the new deployment: its " + spoiled + " is missing or differs"; spoiled == "" && err != nil || spoiled != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("spoiled %q: error %v", spoiled, err)
		}
	}
}
