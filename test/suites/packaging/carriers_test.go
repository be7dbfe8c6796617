package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/registry"
)

// TestImage: "make image" makes an image that a registry and skopeo accept, with all that "make install" installs. The
// node agent and the controllers have images of their own: "make agent-image fleet-image".
func TestImage(t *testing.T) {
	need.Program(t, "skopeo")
	bin, tree := built(t), t.TempDir()
	run(t, root, "make", "-s", "install", "BIN="+bin, "DESTDIR="+tree)
	for _, other := range []string{"pivot-agent", "pivot-fleet"} {
		for path := range strings.FieldsSeq(run(t, root, "packaging/files.sh", other, tree)) {
			if err := os.Remove(filepath.Join(tree, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	name := strings.TrimSpace(run(t, root, "make", "-s", "image", "BIN="+bin, "VERSION=1.2.3+4.gabc"))
	if want := "oci:" + bin + "/image:1.2.3-4.gabc"; name != want {
		t.Fatalf("the image is %q, want %q", name, want)
	}
	r, err := registry.Start(registry.Options{Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	out := filepath.Join(t.TempDir(), "pulled")
	remote := "docker://" + r.Host() + "/pivot:1.2.3"
	run(t, root, "skopeo", "copy", "-q", "--insecure-policy", "--dest-tls-verify=false", name, remote)
	run(t, root, "skopeo", "copy", "-q", "--insecure-policy", "--src-tls-verify=false", remote, "dir:"+out)
	got := filesOf(t, out)
	slices.Sort(got)
	want := strings.Fields(run(t, tree, "find", ".", "-mindepth", "1", "-type", "d", "-printf", "%P/\n", "-o", "-printf", "%P\n"))
	slices.Sort(want)
	if !slices.Equal(got, want) || !slices.Contains(got, "usr/bin/pivotctl") {
		t.Errorf("the image has\n%s\nwant\n%s", got, want)
	}
}

// filesOf lists the files in the layers of an image; its blobs are in a directory.
func filesOf(t *testing.T, blobs string) (files []string) {
	t.Helper()
	layers, err := filepath.Glob(filepath.Join(blobs, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		if listing, err := command(t, blobs, nil, "tar", "-tzf", layer).Output(); err == nil {
			files = append(files, strings.Fields(string(listing))...)
		}
	}
	return files
}

// TestAgentImage: "make agent-image" and "make fleet-image" make an image with one program alone.
func TestAgentImage(t *testing.T) {
	bin := built(t)
	for _, image := range []string{"agent", "fleet"} {
		name := strings.TrimSpace(run(t, root, "make", "-s", image+"-image", "BIN="+bin, "VERSION=1.2.3"))
		if want := "oci:" + bin + "/" + image + "-image:1.2.3"; name != want {
			t.Errorf("the image is %q, want %q", name, want)
		}
		if got, want := filesOf(t, filepath.Join(bin, image+"-image/blobs/sha256")), []string{"usr/", "usr/bin/", "usr/bin/pivot-" + image}; !slices.Equal(got, want) {
			t.Errorf("the image has %q, want %q", got, want)
		}
	}
}

// TestSysext: what "make install" installs is a system extension with the file that docs/recipes/container.md
// adds, and systemd refuses it for another architecture.
func TestSysext(t *testing.T) {
	need.Root(t)
	need.Program(t, "systemd-sysext")
	recipe := string(read(t, filepath.Join(root, "docs/recipes/container.md")))
	release := regexp.MustCompile(`(?s)printf '([^']*)' \\\n +>/var/lib/extensions/(pivot/usr/lib/extension-release.d/extension-release.pivot)\n`).FindStringSubmatch(recipe)
	if release == nil {
		t.Fatal("the recipe does not write extension-release.pivot")
	}
	merge := func(text string) string {
		host := t.TempDir()
		extensions := filepath.Join(host, "var/lib/extensions")
		run(t, root, "make", "-s", "install", "BIN="+built(t), "DESTDIR="+filepath.Join(extensions, "pivot"))
		if below, err := os.ReadDir(filepath.Join(extensions, "pivot")); err != nil || len(below) != 1 || below[0].Name() != "usr" {
			t.Errorf("an extension may have usr only: %v, %v", below, err)
		}
		write(t, filepath.Join(extensions, release[2]), strings.ReplaceAll(text, `\n`, "\n"), 0o644)
		write(t, filepath.Join(host, "usr/lib/os-release"), "ID=fedora\nVERSION_ID=42\n", 0o644)
		for _, dir := range []string{"etc", "run"} {
			write(t, filepath.Join(host, dir, "x"), "", 0o644)
		}
		// It needs a /run of its own, which it makes private.
		out, err := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", `mount -t tmpfs tmpfs /run && systemd-sysext --root="$1" merge`, "sh", host).CombinedOutput()
		if err != nil {
			t.Logf("systemd-sysext: %v", err)
		}
		return string(out)
	}
	architecture := strings.TrimSpace(run(t, ".", "uname", "-m"))
	right := regexp.MustCompile(`ARCHITECTURE=[a-z0-9-]+`).ReplaceAllString(release[1], "ARCHITECTURE="+map[string]string{"x86_64": "x86-64", "aarch64": "arm64"}[architecture])
	if out := merge(right); !strings.Contains(out, "Using extensions 'pivot'") {
		t.Errorf("systemd does not take the extension: %s", out)
	}
	if out := merge(strings.Replace(right, "ARCHITECTURE=", "ARCHITECTURE=s390x #", 1)); strings.Contains(out, "Using extensions 'pivot'") {
		t.Errorf("systemd takes an extension of another architecture: %s", out)
	}
}
