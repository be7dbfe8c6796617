package osimage_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// TestReleaseAsLibostree: an image is refused because of its os-release if and only if the real
// libostree cannot deploy its tree.
func TestReleaseAsLibostree(t *testing.T) {
	h := newHost(t, registry.Options{})
	usual := newOSTree(t)
	image := usual.encapsulated()
	const usr, etc = "usr/lib/os-release", "etc/os-release"
	for n, c := range []struct {
		name  string
		layer []entry
		boots bool
	}{
		{"an ID", []entry{regular(usr, "NAME=x\nID=x\n")}, true},
		{"a PRETTY_NAME", []entry{regular(usr, "PRETTY_NAME=\"x y\"")}, true},
		{"neither", []entry{regular(usr, "NAME=x\n")}, false},
		{"neither there, but in etc", []entry{regular(usr, "NAME=x\n"), regular(etc, "ID=x\n")}, false},
		{"an empty file there", []entry{regular(usr, ""), regular(etc, "ID=x\n")}, false},
		{"only in etc", []entry{gone(usr), regular(etc, "ID=x\n")}, true},
		{"nowhere", []entry{gone(usr)}, false},
		{"a link", []entry{symlink(usr, "release.d/x"), regular("usr/lib/release.d/x", "ID=x\n")}, true},
		{"a link upwards", []entry{symlink(usr, "../share/x"), regular("usr/share/x", "ID=x\n")}, true},
		{"links to links", []entry{symlink(usr, "a"), symlink("usr/lib/a", "b"), regular("usr/lib/b", "ID=x\n")}, true},
		{"a link to nothing", []entry{symlink(usr, "nothing"), regular(etc, "ID=x\n")}, true},
		{"a link to what is not in the image", []entry{symlink(usr, "/nowhere/os-release")}, false},
		{"an indented key", []entry{regular(usr, " ID=x\n")}, false},
		{"a comment", []entry{regular(usr, "#ID=x\n")}, false},
		{"an empty value", []entry{regular(usr, "ID=\n")}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 8)
			h.t, usual.t = t, t
			img, err := oscontainer.Derive(image, oscontainer.WithDerived(c.layer...), oscontainer.WithWorkDir(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			ref, _ := h.push(fmt.Sprintf("release-%d", n), img)
			_, err = h.importRef(ref, bare(t))
			if c.boots && err != nil || !c.boots && (fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "os-release")) {
				t.Errorf("import: %v", err)
			}
			tree := usual.copy()
			for _, e := range c.layer {
				name := strings.Replace(e.Name, "etc/", "usr/etc/", 1)
				switch {
				case strings.Contains(name, ".wh."):
					tree.remove(strings.Replace(name, ".wh.", "", 1))
				case e.Linkname != "":
					tree.link(name, e.Linkname)
				default:
					tree.write(name, string(e.Body))
				}
			}
			if err := deploy(t, tree); (err == nil) != c.boots {
				t.Errorf("libostree: %v", err)
			}
		})
	}
}

// deploy deploys a tree with the real libostree.
func deploy(t *testing.T, o *osTree) error {
	t.Helper()
	sysroot := t.TempDir()
	repo := filepath.Join(sysroot, "ostree/repo")
	commit := o.commit()
	ostreeTool(t, "admin", "init-fs", sysroot)
	ostreeTool(t, "admin", "os-init", "--sysroot="+sysroot, "os")
	ostreeTool(t, "config", "--repo="+repo, "set", "sysroot.bootloader", "none")
	ostreeTool(t, "pull-local", "--disable-fsync", "--repo="+repo, o.repo, commit)
	t.Cleanup(func() { _ = exec.Command("sh", "-c", "chattr -f -i "+sysroot+"/ostree/deploy/os/deploy/*.[0-9]").Run() })
	if out, err := exec.Command("ostree", "admin", "deploy", "--sysroot="+sysroot, "--os=os", commit).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
