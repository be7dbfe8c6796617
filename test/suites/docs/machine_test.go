package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// machine is a stage on a machine with an old system. A registry serves newer systems as
// registry.example/os: stable, a container build with kernel arguments of its own, and 4.14, a
// legacy image. mirror.example:5000 has only 4.14.
type machine struct {
	*stage
	*booted.Machine
	host   *hostdir.Host
	mirror *registry.Registry
	stable string // digest of stable
	legacy string // digest of 4.14
}

func newMachine(s *stage, bin string) *machine {
	s.t.Helper()
	for _, program := range []string{"curl", "jq", "skopeo", "systemd-analyze", "systemd-id128"} {
		need.Program(s.t, program)
	}
	h := hostdir.New(s.t)
	m := &machine{stage: s, host: h, Machine: booted.New(shortDir(s.t), h.Physical(), withStandIns(s.t, bin))}
	m.CPUs = eightCPUs(s.t)
	s.t.Cleanup(func() { m.must(m.Close()) })
	mirror, err := registry.Start(registry.Options{})
	m.must(err)
	s.t.Cleanup(func() { m.must(mirror.Close()) })
	m.mirror = mirror
	h.Write("/etc/containers/certs.d/"+m.mirror.Host()+"/ca.crt", m.mirror.CA())
	h.Write("/etc/containers/policy.json", []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`))
	h.Write("/etc/machine-id", []byte("0123456789abcdef0123456789abcdef\n"))
	m.names["registry.example"], m.names["mirror.example:5000"] = h.Registry.Host(), m.mirror.Host()
	m.dir = m.Home()
	m.sh, m.absolute = m.Run, m.write
	m.mustRun("true") // boots the machine
	m.serve()
	return m
}

// serve pushes the images to the registries.
func (m *machine) serve() {
	m.t.Helper()
	stable := m.host.NativeImage(oscontainer.WithChunks(2), oscontainer.WithDerived(
		oscontainer.File("usr/lib/bootc/kargs.d/10-console.toml", "kargs = [\"console=ttyS0\", \"mitigations=auto\"]\n")))
	digest, err := m.host.Registry.Push(m.t.Context(), "os", "stable", stable)
	m.must(err)
	m.stable = digest
	m.names["sha256:2f6d3a1e0c5b4987a6f5e4d3c2b1a0998877665544332211ffeeddccbbaa0099"] = digest
	legacy, err := oscontainer.Legacy(m.host.Archive, m.host.Commit, "B.2", oscontainer.WithWorkDir(m.t.TempDir()))
	m.must(err)
	for _, r := range []*registry.Registry{m.host.Registry, m.mirror} {
		digest, err = r.Push(m.t.Context(), "os", "4.14", legacy)
		m.must(err)
	}
	m.legacy = digest
	m.names["sha256:5c10fdde2743e4f12b35735d3c1d74be0c84659933f051697058bc9f37bcf957"] = digest
	m.names["0f48c32c82db1bd93747539e89a71754accdc0603190900de966db5ccaaf49f2"] = m.host.Commit
	m.secrets(m.host.Registry, m.mirror)
}

// secrets replaces the machine's pull secrets by those of the given registries.
func (m *machine) secrets(registries ...*registry.Registry) {
	m.t.Helper()
	all := map[string]any{}
	for _, r := range registries {
		var one struct{ Auths map[string]any }
		m.must(json.Unmarshal(r.PullSecret(r.Host()), &one))
		all[r.Host()] = one.Auths[r.Host()]
	}
	data, err := json.Marshal(map[string]any{"auths": all})
	m.must(err)
	m.write("var/lib/kubelet/config.json", string(data))
}

// write writes a file of the running system.
func (m *machine) write(path, text string) {
	m.t.Helper()
	root := m.Root
	if within, ok := strings.CutPrefix(path, "var/"); ok {
		root, path = m.Var, within
	} else if within, ok := strings.CutPrefix(path, "run/"); ok {
		root, path = m.RunDir, within
	}
	file := filepath.Join(root, path)
	m.must(os.MkdirAll(filepath.Dir(file), 0o755))
	m.must(os.WriteFile(file, []byte(m.actual(text)), mode(text)))
}

// mustRun runs a command that is not in the document. It must succeed.
func (m *machine) mustRun(command string) {
	m.t.Helper()
	if out, status := m.run(command); status != 0 {
		m.t.Fatalf("%s: exit status %d\n%s", command, status, out)
	}
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// withStandIns returns a directory with the programs and stand-ins for ssh and systemctl.
func withStandIns(t *testing.T, bin string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("cp", "-l", filepath.Join(bin, "pivot"), filepath.Join(bin, "pivotctl"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("install", "testdata/ssh", "testdata/systemctl", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func eightCPUs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"present", "possible", "online"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("0-7\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shortDir returns a directory with a path that is short enough for Unix sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
