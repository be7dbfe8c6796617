// Package varentries knows the entries of a MachineConfig that are not below /etc. All
// deployments share /var, so these cannot be in the one rename that switches systems. A
// deployment carries them in its own /etc (carry.go), and when it boots they are projected
// to where they belong (package projection).
//
// The package does no I/O but to read what a system carries.
package varentries

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// alias is a directory that ostree hosts have as a link into /var.
type alias struct{ link, to string }

// aliases are these links, as rpm-ostree and bootc make them in an image.
func aliases() []alias {
	return []alias{
		{"/home", "/var/home"}, {"/mnt", "/var/mnt"}, {"/opt", "/var/opt"}, {"/root", "/var/roothome"}, {"/srv", "/var/srv"}, {"/usr/local", "/var/usrlocal"},
	}
}

// place is a tree of the file system, and why no entry can be there.
type place struct{ dir, why string }

// refused are the places in which no entry can be. The first that matches tells why.
func refused() []place {
	const (
		request = "it is what asks for the first boot"
		ours    = "it is pivot's own"
		image   = "it is the image's, and read-only"
		memory  = "it is in memory, and each boot makes it anew"
		kernel  = "it is the kernel's"
		loader  = "it is the boot loader's, and libostree's"
		storage = "it is a store of container images, whose files have an index"
		rpm     = "it is the package manager's"
	)
	return []place{
		{"/etc/ignition-machine-config-encapsulated.json", request}, {"/etc/ignition-machine-config-encapsulated.json.bak", request},
		{"/etc/pivot/machineconfig.json", ours}, {Dir, ours}, {"/var/lib/pivot", ours}, {"/var/cache/pivot", ours},
		{"/var/lib/containers", storage}, {"/var/lib/docker", storage},
		{"/var/lib/rpm", rpm}, {"/var/lib/rpm-ostree", rpm},
		{"/var/run", memory}, {"/var/lock", memory}, {"/run", memory},
		{"/var/tmp", "what is in it is temporary"}, {"/tmp", "what is in it is temporary"},
		{"/usr", image}, {"/bin", image}, {"/sbin", image}, {"/lib", image}, {"/lib64", image},
		{"/boot", loader}, {"/sysroot", loader}, {"/ostree", loader},
		{"/proc", kernel}, {"/sys", kernel}, {"/dev", kernel},
	}
}

// Canonical is the one name of a path: of what ostree hosts link into /var, the path there.
// It is an error for a path at which there can be no entry.
func Canonical(name string) (string, error) {
	if path.Clean(name) != name || !path.IsAbs(name) {
		return "", fmt.Errorf("%q is not a path as it would be written: it is absolute, and clean", name)
	}
	name = Resolved(name)
	for _, p := range refused() {
		if within(name, p.dir) {
			return "", fmt.Errorf("cannot apply %s: %s", name, p.why)
		}
	}
	if strings.HasPrefix(name, "/etc/") || Outside(name) {
		return name, nil
	}
	return "", fmt.Errorf("cannot apply %s: entries are below /etc and /var, or below what is linked there: %s", name, strings.Join(links(), ", "))
}

// Resolved is a clean path with what ostree hosts link into /var as the path there.
func Resolved(name string) string {
	for _, a := range aliases() {
		if within(name, a.link) {
			return a.to + strings.TrimPrefix(name, a.link)
		}
	}
	return name
}

// SSHKeys are the canonical paths of the entries that a user's SSH keys are: two directories
// from the top down, and the file. Ignition and the machine-config daemon write it, and sshd
// of Fedora CoreOS and its relatives reads it.
func SSHKeys(user string) []string {
	const dir = "/.ssh/authorized_keys.d"
	home := "/var/home/" + user
	return []string{home + path.Dir(dir), home + dir, home + dir + "/ignition"}
}

// Outside reports whether the canonical path of an entry is not below /etc.
func Outside(name string) bool { return strings.HasPrefix(name, "/var/") }

// LinkedAs is the link by which people know a canonical path: "/opt" of a path below
// /var/opt; "" if there is none.
func LinkedAs(name string) string {
	for _, a := range aliases() {
		if within(name, a.to) {
			return a.link
		}
	}
	return ""
}

func links() []string {
	var names []string
	for _, a := range aliases() {
		names = append(names, a.link)
	}
	slices.Sort(names)
	return names
}

// within reports whether a clean path is a directory or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
