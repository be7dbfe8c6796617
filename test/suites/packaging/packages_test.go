package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
)

// TestPackages (P71) builds two versions of the packages in each format, checks them with the
// distributions' own linters, and installs, upgrades and removes them in a copy of this system.
func TestPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds packages")
	}
	need.Root(t)
	for _, tool := range []string{"dpkg-buildpackage", "dh", "lintian", "rpmbuild", "rpmlint"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Lacking(t, "needs the tools of packagers: "+err.Error())
		}
	}
	checkout, dist := clone(t, root), t.TempDir()
	release(t, checkout, "v1.2.3")
	run(t, checkout, "make", "-s", "deb", "rpm", "DIST="+dist)
	owned(t, checkout)
	release(t, checkout, "v1.2.4")
	run(t, checkout, "make", "-s", "release", "DIST="+dist)
	all := filepath.Join(dist, "release")
	run(t, all, "sha256sum", "--strict", "-c", "SHA256SUMS")
	for _, name := range []string{"pivot-1.2.4.tar.gz", "pivot-1.2.4-image.tar.gz", "pivot-1.2.4-agent-image.tar.gz", "pivot-1.2.4-fleet-image.tar.gz", "pivot-1.2.4.cdx.json", "pivot-1.2.4-chart.tar.gz", "webhooks.yaml", "server.yaml"} {
		if _, err := os.Stat(filepath.Join(all, name)); err != nil {
			t.Error(err)
		}
	}
	if text := string(read(t, filepath.Join(all, "install.yaml"))); !strings.Contains(text, "registry.example/pivot-agent@sha256:") || !strings.Contains(text, "registry.example/pivot-fleet@sha256:") {
		t.Errorf("install.yaml does not name the images by their digests:\n%s", text)
	}
	run(t, all, "sh", "-c", "mv *.deb *.rpm ..")
	t.Run("deb", func(t *testing.T) {
		checked(t, dist, "lintian", "--tag-display-limit", "0", "pivot_1.2.3_*.deb", "pivotctl_1.2.3_*.deb", "pivot-agent_1.2.3_*.deb", "pivot-fleet_1.2.3_*.deb", "pivot-dracut_1.2.3_*.deb")
		installed(t, "deb", dist)
	})
	t.Run("rpm", func(t *testing.T) {
		checked(t, dist, "rpmlint", "pivot*-1.2.3-1.*.rpm")
		installed(t, "rpm", dist)
	})
}

// TestReleaseRefused: the owner's values and a tag are needed for a release. One run names all that are missing.
func TestReleaseRefused(t *testing.T) {
	checkout := clone(t, root)
	refused := func(want ...string) {
		t.Helper()
		out, err := command(t, checkout, nil, "packaging/release.sh", filepath.Join(checkout, "bin/release"), strings.TrimSpace(run(t, checkout, "packaging/version.sh"))).CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") != len(want) {
			t.Errorf("%v, %d problems are wanted:\n%s", err, len(want), out)
		}
		for _, part := range want {
			if !strings.Contains(string(out), part) {
				t.Errorf("nothing says %q:\n%s", part, out)
			}
		}
	}
	refused("set LICENSE", "set HOMEPAGE", "set MAINTAINER", "set REGISTRY", "tag the commit")
	owned(t, checkout)
	refused("tag the commit")
	release(t, checkout, "v1.2.3")
	write(t, filepath.Join(checkout, "bin/release/other"), "", 0o644)
	refused("exists")
}

// owned commits values of an owner.
func owned(t *testing.T, checkout string) {
	t.Helper()
	write(t, filepath.Join(checkout, "packaging/project"), "LICENSE=Apache-2.0\nHOMEPAGE=https://pivot.example\nMAINTAINER=A <a@example.org>\nREGISTRY=registry.example\n", 0o644)
	run(t, checkout, "git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qam", "owned")
}

// installed runs a script of testdata in the sandbox, with both versions.
func installed(t *testing.T, format, dist string) {
	t.Helper()
	only := t.TempDir()
	packages, err := filepath.Glob(filepath.Join(dist, "*."+format))
	if err != nil || len(packages) < 6 {
		t.Fatalf("the packages are %q: %v", packages, err)
	}
	for _, p := range packages {
		if err := os.Link(p, filepath.Join(only, filepath.Base(p))); err != nil {
			t.Fatal(err)
		}
	}
	_, before := exec.LookPath("pivotctl")
	out, err := command(t, "testdata", nil, "./sandbox.sh", t.TempDir(), format+".sh", only, "1.2.3", "1.2.4").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "@@ done\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, after := exec.LookPath("pivotctl"); (before == nil) != (after == nil) {
		t.Errorf("pivotctl of the system itself, before: %v, after: %v", before, after)
	}
}

// accepted returns the linter tags for which packaging/README.md gives a reason.
func accepted(t *testing.T) map[string]bool {
	t.Helper()
	tags := map[string]bool{}
	for line := range strings.Lines(string(read(t, filepath.Join(root, "packaging/README.md")))) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, tag := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cells[1], -1) {
			tags[tag[1]] = true
		}
	}
	if !tags["statically-linked-binary"] {
		t.Fatalf("packaging/README.md accepts only %v", tags)
	}
	return tags
}

// checked runs a linter, which must report only accepted tags.
func checked(t *testing.T, dir, checker string, args ...string) {
	t.Helper()
	// Both linters exit with a failure for each error found. The shell expands the file names.
	out, _ := command(t, dir, nil, "sh", "-c", checker+" "+strings.Join(args, " ")).CombinedOutput()
	// "E: package: tag text" and "package.arch: E: tag text"
	found := regexp.MustCompile(`(?m)^(?:[EW]: \S+|\S+: [EW]): ?([a-z%-]+)`).FindAllStringSubmatch(string(out), -1)
	reasons := accepted(t)
	for _, tag := range found {
		if !reasons[tag[1]] {
			t.Errorf("%s: %s", checker, tag[0])
		}
	}
	if len(found) == 0 {
		t.Errorf("%s finds nothing at all, not even the static binary:\n%s", checker, out)
	}
}
