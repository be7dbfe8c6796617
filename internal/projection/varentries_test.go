package projection_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
)

// TestCanonical (P57): each path has one canonical form, and paths that can have no entry are
// refused with the reason.
func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"/etc/motd": "/etc/motd", "/var/lib/kubelet/config.json": "/var/lib/kubelet/config.json",
		"/usr/local/bin/x": "/var/usrlocal/bin/x", "/opt/x": "/var/opt/x", "/root/.bashrc": "/var/roothome/.bashrc", "/root": "/var/roothome",
		"/home/core/.ssh": "/var/home/core/.ssh", "/srv/x": "/var/srv/x", "/mnt/x": "/var/mnt/x", "/var/opt/x": "/var/opt/x",
		"/var/library": "/var/library", "/etc/pivot/firstboot.conf": "/etc/pivot/firstboot.conf",
		"/etc/pivot/machineconfig.json": "!it is pivot's own", "/etc/pivot/var/x": "!it is pivot's own", "/var/lib/pivot": "!it is pivot's own", "/var/cache/pivot/x": "!it is pivot's own",
		"/usr/bin/x": "!it is the image's", "/usr": "!it is the image's", "/lib64/x": "!it is the image's",
		"/boot/x": "!it is the boot loader's", "/sysroot/x": "!it is the boot loader's", "/run/x": "!it is in memory", "/var/run/x": "!it is in memory",
		"/tmp/x": "!what is in it is temporary", "/var/tmp/x": "!what is in it is temporary", "/proc/x": "!it is the kernel's", "/dev/x": "!it is the kernel's",
		"/var/lib/containers/storage/x": "!it is a store of container images", "/var/lib/rpm/x": "!it is the package manager's",
		"/etc/ignition-machine-config-encapsulated.json": "!it is what asks for the first boot", "/etc/ignition-machine-config-encapsulated.json.committed": "!it is what asks for the first boot", "/etc/ignition-machine-config-encapsulated.json.bak": "!it is what asks for the first boot",
		"/etc": "!entries are below /etc and /var, or below what is linked there: /home, /mnt", "/var": "!entries are below", "/": "!entries are below", "/data/x": "!entries are below", "/etcetera": "!entries are below",
		"/var/../etc/x": "!as it would be written", "var/x": "!as it would be written", "/var/x/": "!as it would be written",
	} {
		got, err := projection.Canonical(name)
		if reason, wrong := strings.CutPrefix(want, "!"); wrong {
			if err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %q, %v, want %q", name, got, err, reason)
			}
		} else if got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestCarry (P57): a deployment carries what the previous one did, plus what is requested, minus
// what is removed. Contents are added and removed accordingly.
func TestCarry(t *testing.T) {
	file := func(name, content string) hostfiles.File { return hostfiles.NewFile(name, 0o644, []byte(content)) }
	etc := file("/etc/x", "etc")
	secret := file("/var/b", "one")
	secret.User, secret.Mode = "core", 0o600
	root := t.TempDir()
	carry := func(files ...hostfiles.File) (paths []string) {
		t.Helper()
		have, err := projection.Read(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := have.Carry(files)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got {
			name := filepath.Join(root, f.Path)
			short := strings.TrimPrefix(f.Path, projection.Dir+"/")
			switch f.Kind {
			case hostfiles.KindDirectory:
				err = os.MkdirAll(name, f.Mode)
			case hostfiles.KindDefault:
				err = os.Remove(name)
				short = "-" + short
			default:
				if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
					err = os.WriteFile(name, f.Content, f.Mode)
				}
			}
			if err != nil || strings.HasPrefix(f.Path, projection.Dir) && f.Kind != hostfiles.KindDefault && f.Mode.Perm()&0o077 != 0 {
				t.Errorf("%s: %v", f.Entry, err)
			}
			if len(short) > 20 {
				short = short[:5]
			}
			paths = append(paths, short)
		}
		return paths
	}
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("nothing", carry(etc), "/etc/x")
	check("first", carry(etc, secret, file("/var/c", "one"), hostfiles.NewDirectory("/var/a", 0o700)), "/etc/x", "/etc/pivot/var", "7692c", "manifest.json")
	have, err := projection.Read(root)
	if err != nil || len(have.Entries) != 3 || have.Entries[0].Path != "/var/a" || have.Entries[1] != secret.Entry || !have.Has("/var/c") || have.Has("/etc/x") {
		t.Errorf("carried %v, %v", have, err)
	}
	check("the same again", carry(hostfiles.NewDirectory("/var/a", 0o700)), "/etc/pivot/var", "manifest.json")
	if again, err := projection.Read(root); err != nil || again.ID == have.ID || !slices.Equal(again.Entries, have.Entries) {
		t.Errorf("carried %v, %v: the same ID as before", again, err)
	}
	check("one changes", carry(file("/var/c", "two")), "/etc/pivot/var", "3fc4c", "manifest.json")
	check("one goes", carry(hostfiles.Default("/var/b")), "/etc/pivot/var", "manifest.json", "-7692")
	check("all go", carry(hostfiles.Default("/var/a"), hostfiles.Default("/var/c")), "/etc/pivot/var", "-manifest.json", "-3fc4")
	for _, text := range []string{"{", `{"format":2}`, `{"format":1,"entries":[{"path":"/opt/x"}]}`, `{"format":1,"entries":[{"path":"/etc/x"}]}`} {
		if err := os.MkdirAll(filepath.Join(root, projection.Dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, projection.ManifestPath), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := projection.Read(root); err == nil {
			t.Errorf("%s is no error", text)
		}
	}
}
