// Package packaging tests the ways to install pivot: versions, "make install", the source archive
// and the packages.
package packaging

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
)

const root = "../../.." // of the checkout

// run runs a program in a directory and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	return runWith(t, dir, nil, name, args...)
}

// runWith is run with additional environment variables.
func runWith(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := command(t, dir, env, name, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr(err))
	}
	return string(out)
}

// command returns a command for which git accepts checkouts of any owner, and make ignores a make
// that runs this test.
func command(t *testing.T, dir string, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	cmd.Env = append(cmd.Env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func stderr(err error) []byte {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.Stderr
	}
	return nil
}

// clone clones the last commit of another checkout into a temporary directory.
func clone(t *testing.T, source string) string {
	t.Helper()
	source, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "checkout")
	run(t, ".", "git", "clone", "-q", "--shared", source, dir)
	return dir
}

// release tags the checkout's commit with a version.
func release(t *testing.T, dir, tag string) {
	t.Helper()
	run(t, dir, "git", "-c", "user.name=a", "-c", "user.email=a@example.org", "tag", "-a", "-m", tag, tag)
}

func commit(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, "git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "more")
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestVersion(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join(root, "packaging/version.sh"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "packaging/version.sh"), string(script), 0o755)
	version := func() string {
		return strings.TrimSpace(run(t, dir, "packaging/version.sh"))
	}
	expect := func(when, want string) {
		t.Helper()
		short := ""
		if strings.Contains(want, "HEAD") {
			short = strings.TrimSpace(run(t, dir, "git", "rev-parse", "--short=7", "HEAD"))
		}
		if got, want := version(), strings.ReplaceAll(want, "HEAD", short); got != want {
			t.Errorf("%s: version %q, want %q", when, got, want)
		}
	}
	expect("no checkout", "0+unknown")
	run(t, dir, "git", "init", "-q")
	expect("no commit", "0+unknown")
	run(t, dir, "git", "add", ".")
	commit(t, dir)
	expect("no tag", "0+1.gHEAD")
	release(t, dir, "latest") // no version
	release(t, dir, "v1.4.0-rc.1")
	expect("a candidate", "1.4.0~rc.1")
	commit(t, dir)
	expect("after it", "1.4.0~rc.1+1.gHEAD")
	release(t, dir, "v1.4.0")
	expect("a release", "1.4.0")
	write(t, filepath.Join(dir, "packaging/version.sh"), string(script)+"# more\n", 0o755)
	expect("changed", "1.4.0.dirty")
	write(t, filepath.Join(dir, ".tarball-version"), "1.3.0\n", 0o644)
	expect("an archive within a checkout", "1.3.0")
	inner := filepath.Join(dir, "inner")
	write(t, filepath.Join(inner, "packaging/version.sh"), string(script), 0o755)
	if got := strings.TrimSpace(run(t, inner, "packaging/version.sh")); got != "0+unknown" {
		t.Errorf("within somebody else's checkout: version %q", got)
	}
}

// TestVersionsAreSorted: package managers sort the versions in the order of the releases.
func TestVersionsAreSorted(t *testing.T) {
	need.Program(t, "dpkg")
	versions := []string{"0+412.g1a2b3c4", "1.4.0~rc.1", "1.4.0~rc.1+1.gfffffff", "1.4.0", "1.4.0+2.gfffffff", "1.4.0+10.g0000000", "1.4.1"}
	for i, newer := range versions[1:] {
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", versions[i], "lt", newer).Run(); err != nil {
			t.Errorf("%s is not older than %s for dpkg: %v", versions[i], newer, err)
		}
	}
}

// built returns a directory with stand-ins for the output of "make build".
func built(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for _, program := range []string{"pivot", "pivotctl", "pivot-agent", "pivot-fleet"} {
		write(t, filepath.Join(bin, program), "#!/bin/true "+program+"\n", 0o755)
		for _, completion := range []string{"bash/" + program, "zsh/_" + program, "fish/" + program + ".fish"} {
			write(t, filepath.Join(bin, "completions", completion), "#"+completion+"\n", 0o644)
		}
	}
	for _, page := range []string{"pivot.8", "pivot-status.8", "pivotctl.1", "pivotctl-config-validate.1", "pivot-agent.8", "pivot-fleet-controller.8", "firstboot.conf.5", "pivot-firstboot.service.8"} {
		write(t, filepath.Join(bin, "man", page), ".Dt "+page+"\n", 0o644)
	}
	return bin
}

// TestInstall (P72): everything is installed, nothing is built, each directory can be configured, and the
// files refer to the configured program.
func TestInstall(t *testing.T) {
	dest := t.TempDir()
	run(t, root, "make", "-s", "install", "BIN="+built(t), "DESTDIR="+dest, "PREFIX=/opt/p",
		"UNITDIR=/lib/units", "PRESETDIR=/lib/presets", "DRACUTDIR=/lib/modules.d", "POLICYDIR=/share/policy")
	want := map[string]string{ // a line that each file must contain
		"/opt/p/bin/pivot":                                     "#!/bin/true pivot",
		"/opt/p/bin/pivotctl":                                  "#!/bin/true pivotctl",
		"/opt/p/bin/pivot-agent":                               "#!/bin/true pivot-agent",
		"/opt/p/bin/pivot-fleet":                               "#!/bin/true pivot-fleet",
		"/lib/units/pivot-agent.service":                       "ExecStart=/opt/p/bin/pivot-agent node",
		"/lib/units/pivot-firstboot.service":                   "ExecStart=/opt/p/bin/pivot firstboot",
		"/lib/units/pivot-project.service":                     "ExecStart=/opt/p/bin/pivot project",
		"/lib/units/pivot-live.service":                        "ExecStart=/opt/p/bin/pivot apply --finish",
		"/lib/units/pivot-trial.service":                       "ExecStart=/opt/p/bin/pivot trial",
		"/lib/units/pivot-slot.service":                        "ExecStart=/opt/p/bin/pivot release-slot",
		"/lib/units/kubelet.service.d/10-pivot-firstboot.conf": "Requires=pivot-firstboot.service",
		"/lib/presets/80-pivot.preset":                         "enable pivot-project.service",
		"/lib/modules.d/90pivot/module-setup.sh":               "	inst_multiple /opt/p/bin/pivot mount",
		"/lib/modules.d/90pivot/pivot-initramfs.service":       "ExecStart=/opt/p/bin/pivot firstboot --root /sysroot",
		"/lib/modules.d/90pivot/pivot-enter.service":           "ExecStart=/opt/p/bin/pivot enter",
		"/opt/p/share/man/man8/pivot-status.8":                 ".Dt pivot-status.8",
		"/opt/p/share/man/man1/pivotctl-config-validate.1":     ".Dt pivotctl-config-validate.1",
		"/opt/p/share/pivot/schema/Status.json":                `  "$id": "urn:pivot:v1:Status",`,
		"/share/policy/pivot.cil":                              `	(filecon "/opt/p/bin/pivot" file (system_u object_r install_exec_t ((s0) (s0)))))`,
	}
	for path, line := range want {
		data, err := os.ReadFile(filepath.Join(dest, path))
		if err != nil || !slices.Contains(strings.Split(string(data), "\n"), line) {
			t.Errorf("%s has no line %q: %v\n%s", path, line, err, data)
		}
	}
	for _, dir := range []string{"usr", "etc"} {
		if _, err := os.Lstat(filepath.Join(dest, dir)); err == nil {
			t.Errorf("there is a directory %s that nobody asked for", dir)
		}
	}
}

// TestInstallBelowARelativeDirectory: DESTDIR may be relative, as in debhelper. The result is the
// same as with an absolute one.
func TestInstallBelowARelativeDirectory(t *testing.T) {
	bin, absolute, other := built(t), t.TempDir(), t.TempDir()
	from, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(from, other)
	if err != nil {
		t.Fatal(err)
	}
	installed := func(destdir, dir string) string {
		run(t, root, "make", "-s", "install", "BIN="+bin, "DESTDIR="+destdir)
		return run(t, dir, "find", ".", "-printf", "%P %m %l\n")
	}
	if got, want := installed(relative, other), installed(absolute, absolute); got != want {
		t.Errorf("below a relative directory there is\n%s\nwant\n%s", got, want)
	}
}

func TestInstallDoesNotBuild(t *testing.T) {
	bin := t.TempDir()
	out, err := command(t, root, nil, "make", "-s", "install", "BIN="+bin, "DESTDIR="+t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `cannot install `+bin+`/pivot: run "make build" first`) {
		t.Errorf("make install without programs: %v\n%s", err, out)
	}
	if entries, err := os.ReadDir(bin); err != nil || len(entries) > 0 {
		t.Errorf("it built %v: %v", entries, err)
	}
}

// TestEnable: units can be enabled by presets, as in an image build, and disabled and enabled by an
// administrator.
func TestEnable(t *testing.T) {
	need.Program(t, "systemctl")
	dest := t.TempDir()
	run(t, root, "make", "-s", "install", "BIN="+built(t), "DESTDIR="+dest)
	for _, unit := range presetUnits(t) {
		t.Run(unit, func(t *testing.T) { enable(t, dest, unit) })
	}
}

func enable(t *testing.T, dest, unit string) {
	systemctl := func(verb, state string) {
		t.Helper()
		run(t, ".", "systemctl", "-q", "--root="+dest, verb, unit)
		out, _ := command(t, ".", nil, "systemctl", "--root="+dest, "is-enabled", unit).Output()
		if got := strings.TrimSpace(string(out)); got != state {
			t.Errorf("after %q the unit is %q, want %q", verb, got, state)
		}
		links, err := filepath.Glob(filepath.Join(dest, "*/systemd/system/*.wants/"+unit))
		if more, _ := filepath.Glob(filepath.Join(dest, "usr/lib/systemd/system/*.wants/"+unit)); err != nil || len(links)+len(more) > 0 != (state == "enabled") {
			t.Errorf("after %q there are the links %q %q: %v", verb, links, more, err)
		}
	}
	systemctl("preset", "enabled")
	systemctl("disable", "disabled")
	systemctl("enable", "enabled")
}

// TestFilesOfPackages: each installed file is in exactly one package.
func TestFilesOfPackages(t *testing.T) {
	dest := t.TempDir()
	run(t, root, "make", "-s", "install", "BIN="+built(t), "DESTDIR="+dest)
	owner := map[string]string{}
	for _, name := range []string{"pivot", "pivotctl", "pivot-agent", "pivot-fleet", "pivot-dracut", "pivot-selinux"} {
		for path := range strings.Lines(run(t, root, "packaging/files.sh", name, dest)) {
			path = strings.TrimSuffix(path, "\n")
			if owner[path] != "" {
				t.Errorf("%s is in %s and in %s", path, owner[path], name)
			}
			owner[path] = name
		}
	}
	files := strings.Fields(run(t, dest, "find", ".", "-type", "f", "-printf", "/%P\n"))
	for _, path := range files {
		if owner[path] == "" {
			t.Errorf("%s is in no package", path)
		}
	}
	for path, want := range map[string]string{
		"/usr/bin/pivot": "pivot", "/usr/bin/pivotctl": "pivotctl", "/usr/bin/pivot-agent": "pivot-agent", "/usr/bin/pivot-fleet": "pivot-fleet", "/usr/share/man/man8/pivot-fleet-controller.8": "pivot-fleet", "/usr/lib/systemd/system/pivot-agent.service": "pivot-agent",
		"/usr/share/man/man8/pivot.8": "pivot", "/usr/share/man/man1/pivotctl.1": "pivotctl", "/usr/share/zsh/site-functions/_pivotctl": "pivotctl",
		"/usr/lib/dracut/modules.d/90pivot/module-setup.sh": "pivot-dracut", "/usr/share/selinux/packages/pivot.cil": "pivot-selinux",
	} {
		if owner[path] != want {
			t.Errorf("%s is in package %q, want %q", path, owner[path], want)
		}
	}
}

// TestReproducible (P70): two checkouts in different directories produce the same archive. The archive,
// unpacked in different directories, without network, modules or build cache, produces the same
// programs, which have the right version.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds everything twice, from nothing")
	}
	all := []string{"pivot", "pivotctl", "pivot-agent", "pivot-fleet"}
	var archives, programs [][]byte
	source := clone(t, root)
	release(t, source, "v1.2.3")
	for _, name := range []string{"one", "another-directory"} {
		checkout := clone(t, source)
		dist := filepath.Join(t.TempDir(), name)
		archive := strings.TrimSpace(run(t, checkout, "make", "-s", "dist", "DIST="+dist))
		if want := filepath.Join(dist, "pivot-1.2.3.tar.gz"); archive != want {
			t.Fatalf("the archive is %s, want %s", archive, want)
		}
		archives = append(archives, read(t, archive))
		run(t, dist, "tar", "-xf", archive)
		tree := filepath.Join(dist, "pivot-1.2.3")
		offline := []string{"GOPROXY=off", "GOMODCACHE=" + t.TempDir(), "GOCACHE=" + t.TempDir(), "GOFLAGS="}
		runWith(t, tree, offline, "make", "-s", "build")
		for _, program := range all {
			path := filepath.Join(tree, "bin", program)
			programs = append(programs, read(t, path))
			if got, want := strings.TrimSpace(run(t, tree, path, "--version")), program+" version 1.2.3"; got != want {
				t.Errorf("%s says %q, want %q", path, got, want)
			}
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the two archives differ")
	}
	for i, program := range all {
		if !bytes.Equal(programs[i], programs[i+len(all)]) {
			t.Errorf("the two builds of %s differ", program)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 {
		t.Fatal(fmt.Errorf("%s is empty", path))
	}
	return data
}
