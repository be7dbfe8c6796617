package identity_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/identity"
)

// TestRead (P102): what others know a machine by is read from its files, as other programs show it.
func TestRead(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"proc/sys/kernel/hostname": "worker-7.example\n", "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
		// Fingerprints as ssh-keygen -l shows them.
		"etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJd0DPVsFCpZQEnkbXWxnFbRWx7UC/4i1rRVlLOMZzvG root@x\n",
		"etc/ssh/ssh_host_rsa_key.pub":     "garbled\n",
		"proc/net/route":                   "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\teth0\nens3\t00000000\t0102000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\nens3\t0002000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n",
		"proc/net/ipv6_route":              strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 fe800000000000000000000000000001 00000400 1 0 00450003 ens3\n" + strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " ffffffff 1 0 00200200 lo\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := identity.Read(root)
	if got.Name != "worker-7.example" || got.MachineID != "0123456789abcdef0123456789abcdef" || len(got.Keys) != 1 || !strings.HasPrefix(got.Keys["ssh_host_ed25519_key.pub"], "SHA256:") {
		t.Errorf("%+v", got)
	}
	if want := []string{"via 10.0.2.1 on ens3", "via fe80::1 on ens3"}; !slices.Equal(got.Routes, want) {
		t.Errorf("routes %q, wanted %q", got.Routes, want)
	}
	if empty := identity.Read(t.TempDir()); empty.Name != "" || len(empty.Keys) > 0 || len(empty.Routes) > 0 {
		t.Errorf("nothing there: %+v", empty)
	}
}

// TestChanges (P102): each change is named with what was before; what is new is none.
func TestChanges(t *testing.T) {
	before := identity.Identity{
		Name: "worker-7", MachineID: "1", Keys: map[string]string{"a.pub": "SHA256:a", "b.pub": "SHA256:b"},
		Interfaces: map[string][]string{"ens7f0": {"192.0.2.7/24"}, "ens8": {"198.51.100.7/24", "2001:db8::7/64"}}, Routes: []string{"via 192.0.2.1 on ens7f0"},
	}
	if got := before.Changes(before); len(got) > 0 {
		t.Errorf("nothing has changed: %q", got)
	}
	now := identity.Identity{
		Name: "localhost", MachineID: "2", Keys: map[string]string{"a.pub": "SHA256:c", "new.pub": "SHA256:n"},
		Interfaces: map[string][]string{"ens7f0np0": {"192.0.2.7/24"}, "ens8": {"198.51.100.8/24"}}, Routes: []string{"via 192.0.2.1 on ens7f0np0"},
	}
	want := []string{
		`the host name is "localhost"; before the reboot it was "worker-7"`,
		"the machine ID is 2; before the reboot it was 1",
		"the SSH host key a.pub is SHA256:c; before the reboot it was SHA256:a",
		"the SSH host key b.pub is gone; before the reboot it was SHA256:b",
		"the address of interface ens7f0 is gone; before the reboot it was 192.0.2.7/24",
		"the address of interface ens8 is 198.51.100.8/24; before the reboot it was 198.51.100.7/24 2001:db8::7/64",
		"the default route is via 192.0.2.1 on ens7f0np0; before the reboot it was via 192.0.2.1 on ens7f0",
	}
	if got := before.Changes(now); !slices.Equal(got, want) {
		t.Errorf("changes:\n%s\nwanted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := (identity.Identity{Name: "localhost"}).Changes(before); !slices.Equal(got, []string{`the host name is "worker-7"; before the reboot it was "localhost"`}) {
		t.Errorf("a machine that gets all: %q", got)
	}
}

// TestLostName (P102): only a machine that had a name can have lost it.
func TestLostName(t *testing.T) {
	for _, c := range []struct {
		before, now string
		lost        bool
	}{
		{"worker-7", "localhost", true}, {"worker-7", "localhost.localdomain", true}, {"worker-7", "fedora", true}, {"worker-7", "", true},
		{"worker-7", "worker-8", false}, {"worker-7", "fedora7", false}, {"localhost", "fedora", false}, {"", "localhost", false},
	} {
		if got := (identity.Identity{Name: c.before}).LostName(identity.Identity{Name: c.now}); got != c.lost {
			t.Errorf("from %q to %q: lost %v", c.before, c.now, got)
		}
	}
}
