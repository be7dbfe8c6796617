package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
)

// run runs a program and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// made makes an image of a tree and returns the directory with it.
func made(t *testing.T, tree string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	if err := write([]string{"-arch", "amd64", "-version", "1.2.3+4.gabc", "-revision", "abc", "-title", "x", "-program", "/usr/bin/x", "-epoch", "1700000000", tree, dir}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func files(t *testing.T, mode os.FileMode) string {
	t.Helper()
	tree := t.TempDir()
	for name, text := range map[string]string{"usr/bin/x": "#!", "usr/share/y": "y"} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700|mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600|mode&0o044); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(tree, "usr/bin/x"), 0o700|mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("y", filepath.Join(tree, "usr/share/z")); err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestWrite: the same files give the same image, whatever the umask was, and skopeo accepts it.
func TestWrite(t *testing.T) {
	one, two := made(t, files(t, 0o055)), made(t, files(t, 0))
	for _, dir := range []string{one, two} {
		for _, name := range []string{"index.json", "oci-layout"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.CommandContext(t.Context(), "diff", "-r", one, two).CombinedOutput(); err != nil {
		t.Errorf("they differ: %s", out)
	}
	need.Program(t, "skopeo")
	copied := filepath.Join(t.TempDir(), "copied")
	run(t, "skopeo", "copy", "-q", "--insecure-policy", "oci:"+one+":1.2.3-4.gabc", "oci:"+copied+":x")
	var image struct {
		Created, Architecture string
		Labels                map[string]string
		Layers, Env           []string
	}
	if err := json.Unmarshal([]byte(run(t, "skopeo", "inspect", "oci:"+copied+":x")), &image); err != nil {
		t.Fatal(err)
	}
	if image.Architecture != "amd64" || image.Created != "2023-11-14T22:13:20Z" || len(image.Layers) != 1 || image.Labels["org.opencontainers.image.version"] != "1.2.3+4.gabc" {
		t.Errorf("%+v", image)
	}
}

// TestWrongUses: what cannot become an image is refused.
func TestWrongUses(t *testing.T) {
	tree := files(t, 0)
	run(t, "mkfifo", filepath.Join(tree, "fifo"))
	for _, args := range [][]string{nil, {"a", "b"}, {"-arch", "amd64", "-version", "1", tree, t.TempDir()},
		{"-arch", "amd64", "-version", "1", "-title", "x", "-program", "/x", tree, t.TempDir()}, {"-arch", "amd64", "-version", "1", "-title", "x", "-program", "/x", filepath.Join(tree, "absent"), t.TempDir()}, {"-x"}} {
		if err := write(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// TestPrograms: the programs run in what the image has, and nothing else.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	need.Root(t)
	need.Program(t, "umoci")
	tree := t.TempDir()
	if err := os.CopyFS(filepath.Join(tree, "usr/bin"), os.DirFS(script.Programs(t))); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	run(t, "umoci", "unpack", "--image", made(t, tree)+":1.2.3-4.gabc", bundle)
	root := filepath.Join(bundle, "rootfs")
	for _, program := range []string{"pivot", "pivotctl", "pivot-agent"} {
		if out := run(t, "chroot", root, "/usr/bin/"+program, "--version"); !strings.HasPrefix(out, program+" version ") {
			t.Errorf("%s says %q", program, out)
		}
	}
	if out := run(t, "chroot", root, "/usr/bin/pivotctl", "kargs", "check", "quiet"); strings.Contains(out, "error") {
		t.Errorf("pivotctl says %q", out)
	}
}
