package osimage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// commitBound makes a commit of files and links by their paths, in a repository of its own. What begins with "-> " is the
// target of a link.
func commitBound(t *testing.T, files map[string]string) (*ostree.Repo, ostree.Checksum) {
	t.Helper()
	need.Ostree(t)
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, "tree", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			must(t, os.Symlink(target, path))
		} else {
			must(t, os.WriteFile(path, []byte(content), 0o644))
		}
	}
	repo := filepath.Join(dir, "repo")
	must(t, exec.Command("ostree", "init", "--repo="+repo, "--mode=bare").Run())
	out, err := exec.Command("ostree", "commit", "--repo="+repo, "-b", "os", "--tree=dir="+filepath.Join(dir, "tree")).Output()
	must(t, err)
	c, err := ostree.ParseChecksum(strings.TrimSpace(string(out)))
	must(t, err)
	opened, err := ostree.OpenRepo(repo)
	must(t, err)
	return opened, c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const quadlets = "usr/share/containers/systemd/"

// TestReadBound: which images a commit binds, and what is rejected, as by bootc (crates/lib/src/boundimage.rs).
func TestReadBound(t *testing.T) {
	link := func(name string) string { return "-> /" + quadlets + name }
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		links       map[string]string // below osimage.BoundDir
		files       map[string]string
		want, wrong string
	}{
		"nothing": {},
		"both types, each image once": {
			links: map[string]string{"a.image": link("a.image"), "b.container": link("b.container"), "c.image": link("a.image")},
			files: map[string]string{
				quadlets + "a.image":     "[Image]\nImage=quay.example/a:1\n",
				quadlets + "b.container": "[Unit]\nImage=none\n[Container]\n# the image\nImage = docker://quay.example/b" + digest + "\n;Image=x\n[Install]\nImage=none\n",
			},
			want: "quay.example/a:1 quay.example/b" + digest,
		},
		"the last value, no tag": {
			links: map[string]string{"a.image": link("a.image")},
			files: map[string]string{quadlets + "a.image": "[Image]\nImage=quay.example/old\nImage=quay.example/a\n"},
			want:  "quay.example/a:latest",
		},
		"relative, through links, from /etc": {
			links: map[string]string{"a.image": "-> ../../../share/q/a.image", "b.image": "-> /etc/q/b.image"},
			files: map[string]string{
				"usr/share/q": "-> containers", "usr/share/containers/a.image": "[Image]\nImage=quay.example/a:1\n",
				"usr/etc/q/b.image": "[Image]\nImage=quay.example/b:1\n",
			},
			want: "quay.example/a:1 quay.example/b:1",
		},
		"the directory, through links": {
			files: map[string]string{
				"usr/lib/bootc": "-> /usr/share/bootc", "usr/share/bootc/bound-images.d": "-> ../b.d", "usr/share/b.d/a.image": "-> ../q/a.image",
				"usr/share/q/a.image": "[Image]\nImage=quay.example/a:1\n",
			},
			want: "quay.example/a:1",
		},
		"the directory, a link to nothing": {files: map[string]string{osimage.BoundDir: "-> /usr/share/none"}},
		"the directory, a circle":          {files: map[string]string{"usr/lib/bootc": "-> bootc"}, wrong: "through too many links"},
		"the directory, a file":            {files: map[string]string{osimage.BoundDir: "x"}, wrong: "it is not a directory"},
		"the directory, through a file":    {files: map[string]string{"usr/lib/bootc": "x"}, wrong: "through /usr/lib/bootc, which is a file"},
		"continued lines": {
			links: map[string]string{"a.container": link("a"), "b.image": link("b"), "c.image": link("c")},
			files: map[string]string{
				quadlets + "a": "[Container]\nImage=quay.example/a:1\nExec=sh -c \\\n  Image=quay.example/evil:1 \\\n  [Container]\nUser=x\n",
				quadlets + "b": "[Image]\nImage=\\\n# where it is\n  quay.example/b:1\n",
				quadlets + "c": "[Image]\n# Image=none \\\nImage=quay.example/c:1 \\",
			},
			want: "quay.example/a:1 quay.example/b:1 quay.example/c:1",
		},
		"a name in two lines":    {links: map[string]string{"a.image": link("a")}, files: map[string]string{quadlets + "a": "[Image]\nImage=quay.example/\\\na:1\n"}, wrong: "white space"},
		"two backslashes":        {links: map[string]string{"a.container": link("a")}, files: map[string]string{quadlets + "a": "[Container]\nImage=quay.example/a:1\nExec=x \\\\\nImage=quay.example/evil:1\n"}, wrong: "ends with two backslashes"},
		"a carriage return":      {links: map[string]string{"a.container": link("a")}, files: map[string]string{quadlets + "a": "[Container]\nImage=quay.example/a:1\nExec=x \\\r\nImage=quay.example/evil:1\r\n"}, wrong: "a carriage return"},
		"a signed OS image":      {links: map[string]string{"a.container": link("a")}, files: map[string]string{quadlets + "a": "[Container]\nImage=ostree-image-signed:docker://quay.example/a:1\n"}, wrong: "podman wants"},
		"an OS image":            {links: map[string]string{"a.container": link("a")}, files: map[string]string{quadlets + "a": "[Container]\nImage=ostree-unverified-registry:quay.example/a:1\n"}, wrong: "podman wants"},
		"above the root":         {links: map[string]string{"a.image": "-> ../../../../../../../" + quadlets + "a.image"}, files: map[string]string{quadlets + "a.image": "[Image]\nImage=quay.example/a:1\n"}, want: "quay.example/a:1"},
		"a file":                 {links: map[string]string{"a.image": "[Image]\nImage=quay.example/a:1\n"}, wrong: "a.image: it is not a symbolic link"},
		"a directory":            {links: map[string]string{"a.image/b": "x"}, wrong: "a.image: it leads to a directory"},
		"a link to a directory":  {links: map[string]string{"a.image": "-> /usr/share"}, files: map[string]string{"usr/share/x": ""}, wrong: "it leads to a directory"},
		"a dangling link":        {links: map[string]string{"a.image": "-> /usr/share/x"}, wrong: "it leads to /usr/share/x, which is not in the image"},
		"through a file":         {links: map[string]string{"a.image": "-> /usr/x/y"}, files: map[string]string{"usr/x": ""}, wrong: "through /usr/x, which is a file"},
		"a circle":               {links: map[string]string{"a.image": "-> b.image", "b.image": "-> a.image"}, wrong: "through too many links"},
		"another type":           {links: map[string]string{"a.volume": link("a.volume")}, files: map[string]string{quadlets + "a.volume": "[Volume]\n"}, wrong: "ends with neither .image nor .container"},
		"no image":               {links: map[string]string{"a.image": link("a.image")}, files: map[string]string{quadlets + "a.image": "[Container]\nImage=quay.example/a\n"}, wrong: "no key Image in [Image]"},
		"an authfile":            {links: map[string]string{"a.image": link("a.image")}, files: map[string]string{quadlets + "a.image": "[Image]\nImage=quay.example/a\nAuthFile=/x\n"}, wrong: "AuthFile"},
		"a specifier":            {links: map[string]string{"a.image": link("a.image")}, files: map[string]string{quadlets + "a.image": "[Image]\nImage=quay.example/%m\n"}, wrong: "has a specifier"},
		"no registry":            {links: map[string]string{"a.image": link("a.image")}, files: map[string]string{quadlets + "a.image": "[Image]\nImage=a:1\n"}, wrong: "no registry host"},
		"another unit":           {links: map[string]string{"a.container": link("a")}, files: map[string]string{quadlets + "a": "[Container]\nImage=a.image\n"}, wrong: "name of another unit"},
		"not in a registry":      {links: map[string]string{"a.container": link("a")}, files: map[string]string{quadlets + "a": "[Container]\nImage=oci:/x\n"}, wrong: "is not in a registry"},
		"a large file":           {links: map[string]string{"a.image": link("a")}, files: map[string]string{quadlets + "a": strings.Repeat("#\n", osimage.MaxBoundSize)}, wrong: "more than 65536"},
		"one wrong, one right":   {links: map[string]string{"a.image": link("a"), "b.image": link("none")}, files: map[string]string{quadlets + "a": "[Image]\nImage=quay.example/a:1\n"}, wrong: "b.image: it leads to"},
		"a percent sign, quoted": {links: map[string]string{"a.image": link("a")}, files: map[string]string{quadlets + "a": "[Image]\nImage=quay.example/a%%b\n"}, wrong: "invalid reference format"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"usr/bin/x": ""}
			for name, text := range c.links {
				files[osimage.BoundDir+"/"+name] = text
			}
			for name, text := range c.files {
				files[name] = text
			}
			repo, commit := commitBound(t, files)
			found, err := osimage.ReadBound(repo.Objects, commit)
			must(t, err)
			if err := found.Err(); c.wrong != "" {
				if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), c.wrong) || fault.HintOf(err) == "" {
					t.Errorf("error %v, want %q", err, c.wrong)
				}
				return
			} else if err != nil {
				t.Error(err)
			}
			var names []string
			for _, ref := range found.References {
				names = append(names, ref.String())
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
