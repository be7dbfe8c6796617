package projection

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// place is a directory tree, and why no entry can be in it.
type refusedPlace struct{ dir, why string }

// refused returns the places in which no entry can be. The first that matches has the reason.
func refused() []refusedPlace {
	const (
		request = "it is what asks for the first boot"
		ours    = "it is pivot's own"
		image   = "it is the image's, and read-only"
		memory  = "it is in memory, and each boot makes it anew"
		kernel  = "it is the kernel's"
		loader  = "it is the boot loader's, and libostree's"
		storage = "it is a store of container images, which has an index of its files"
		rpm     = "it is the package manager's"
	)
	return []refusedPlace{
		{"/etc/ignition-machine-config-encapsulated.json", request}, {"/etc/ignition-machine-config-encapsulated.json.committed", request},
		{"/etc/ignition-machine-config-encapsulated.json.bak", request},
		{OwnDir, ours}, {"/var/lib/pivot", ours}, {"/var/cache/pivot", ours},
		{"/var/lib/containers", storage}, {"/var/lib/docker", storage},
		{"/var/lib/rpm", rpm}, {"/var/lib/rpm-ostree", rpm},
		{"/var/run", memory}, {"/var/lock", memory}, {"/run", memory},
		{"/var/tmp", "what is in it is temporary"}, {"/tmp", "what is in it is temporary"},
		{"/usr", image}, {"/bin", image}, {"/sbin", image}, {"/lib", image}, {"/lib64", image},
		{"/boot", loader}, {"/sysroot", loader}, {"/ostree", loader},
		{"/proc", kernel}, {"/sys", kernel}, {"/dev", kernel},
	}
}

// OwnDir has pivot's state in a deployment: the record of its MachineConfig, what it carries, the
// journal of a change without a reboot. Of the paths in it, only those of Settings can be entries.
const OwnDir = "/etc/pivot"

// Settings returns the files and directories in OwnDir that administrators write, and
// MachineConfigs for them. All else there is state.
func Settings() []string {
	return []string{
		OwnDir + "/firstboot.conf", OwnDir + "/firstboot.conf.d", OwnDir + "/disruption.yaml", OwnDir + "/kernel-args.policy",
		OwnDir + "/image-pullspec", OwnDir + "/kernel-args", OwnDir + "/static-pods",
	}
}

// accounts returns the files with users and groups: passwd(5), shadow(5), subuid(5). Each has a backup with a name that
// ends in "-".
func accounts() []string {
	return []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"}
}

// Canonical returns the canonical path of name: a directory that ostree hosts link into /var is
// replaced by its path there. It returns an error if there can be no entry at the path. It refuses pivot's own state and
// the account databases by their class, not by a list of known files.
func Canonical(name string) (string, error) {
	if path.Clean(name) != name || !path.IsAbs(name) {
		return "", fmt.Errorf("%q is not a path as it would be written: it is absolute, and clean", name)
	}
	name = hostfiles.Resolved(name)
	if err := hostfiles.CheckName(name); err != nil {
		return "", fmt.Errorf("cannot apply %q: %w", name, err)
	}
	if why := refusal(name); why != "" {
		return "", fmt.Errorf("cannot apply %s: %s", name, why)
	}
	if strings.HasPrefix(name, "/etc/") || Outside(name) {
		return name, nil
	}
	return "", fmt.Errorf("cannot apply %s: entries are below /etc and /var, or below what is linked there: %s", name, strings.Join(hostfiles.IntoVar(), ", "))
}

// refusal returns why there can be no entry at a resolved path, or "".
func refusal(name string) string {
	if slices.ContainsFunc(Settings(), func(setting string) bool { return within(name, setting) }) {
		return ""
	}
	for _, p := range refused() {
		if within(name, p.dir) {
			return p.why
		}
	}
	// A path below /etc/shadow stands for a password (hostfiles.PasswordPath), which only the
	// member passwd of a config can ask for.
	for _, file := range accounts() {
		if strings.HasPrefix(name, file+"/") || strings.HasPrefix(name, file+"-/") {
			return file + " is a file: the member passwd asks for users"
		}
	}
	return ""
}

// Outside reports whether the canonical path of an entry is not below /etc.
func Outside(name string) bool { return strings.HasPrefix(name, "/var/") }

// within reports whether a clean path is dir or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
