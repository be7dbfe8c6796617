package vm

import (
	"context"
	_ "embed"
	"path/filepath"
	"regexp"
	"slices"
)

// SELinux is a guest's SELinux configuration. If it is not NoSELinux and the kernel command line has
// KernelArgs, Debian's policy is enforcing and all files are labelled. B's policy has other labels
// for the pinning files than A's.
type SELinux string

// The SELinux configurations.
const (
	NoSELinux SELinux = ""
	Enforcing SELinux = "enforcing"
	// NewType gives B's policy a type that A's lacks, for the pinning files and NewTypePath.
	NewType SELinux = "new type"
	// NewTypeAllowed is NewType, and A's services may store labels that the policy does not
	// know.
	NewTypeAllowed SELinux = "new type, any label allowed"
)

// NewTypePath is a directory with a file of a type that only B's policy has.
const NewTypePath = "/usr/share/new-type"

// Types returns the types that only B's policy gives to certain paths and everything below them:
// those of the pinning files, of files in the base, and of derived layers.
func (s SELinux) Types() map[string]string {
	types := map[string]string{"/usr/lib/tmpfiles.d/guest.conf": "etc_t"}
	switch s {
	case NoSELinux:
		return nil
	case Enforcing:
		types["/etc/crio"], types["/etc/kubernetes"], types["/usr/share/derived"] = "cert_t", "cert_t", "etc_t"
	default:
		for _, path := range []string{"/etc/crio", "/etc/kubernetes", "/usr/share/derived", NewTypePath} {
			types[path] = "guest_new_t"
		}
	}
	return types
}

// Policies are the directories of two SELinux policies, with nothing but etc/selinux.
type Policies struct{ Base, Changed string }

// policies returns the policies of A and B.
func (s SELinux) policies(base cache) Policies {
	in := func(name string) string { return filepath.Join(base.dir, policiesDir, name) }
	if s == NoSELinux {
		return Policies{}
	}
	return Policies{in("a"), in(s.policy(versionB()))}
}

// KernelArgs returns the kernel arguments that the guest needs. Debian's kernel has SELinux off by
// default, and without auditd it logs only a few denials per second. Trixie's policy does not
// allow systemd-network-generator to work, which is not needed here, so it is masked.
func (s SELinux) KernelArgs() []string {
	if s == NoSELinux {
		return nil
	}
	return []string{"security=selinux", "selinux=1", "audit=1", "audit_backlog_limit=16384", "sysctl.kernel.printk_ratelimit=0",
		"systemd.mask=systemd-network-generator.service"}
}

// variant returns the variant of the base system that the configuration needs.
func (s SELinux) variant() string {
	switch s {
	case NoSELinux:
		return ""
	case NewTypeAllowed:
		return "selinux-any-label"
	}
	return "selinux"
}

// policy returns the name of the base's stored policy that a version has instead of the base's own;
// "" if it keeps the base's own.
func (s SELinux) policy(v version) string {
	switch {
	case s == NoSELinux || !v.successor:
		return ""
	case s == Enforcing:
		return "other-labels"
	}
	return "new-type"
}

// labelScript is not part of the recipe, because it works on disks.
//
//go:embed label.sh
var labelScript string

// label gives the files of a sysroot the labels that a running system would have given them. The
// sysroot was made on a host without the policy.
func label(ctx context.Context, sysroot, deployment string) error {
	return runPrivate(ctx, "bash", "-c", labelScript, "label.sh", sysroot, deployment, filepath.Join(sysroot, VarDir))
}

// Denial is an SELinux denial.
type Denial struct {
	Source, Target string // types
	Command        string // the name of the process, truncated to 15 bytes
	Text           string // the whole line
}

var denial = regexp.MustCompile(`avc:  denied .*comm="?([^" ]*)"? .*scontext=[^: ]*:[^: ]*:([^: ]*):\S* tcontext=[^: ]*:[^: ]*:([^: ]*):`)

// Denials returns the SELinux denials on the console.
func (b *BootResult) Denials() []Denial {
	var all []Denial
	for _, line := range b.Serial {
		if m := denial.FindStringSubmatch(line.Text); m != nil {
			all = append(all, Denial{Source: m[2], Target: m[3], Command: m[1], Text: line.Text})
		}
	}
	// Each one may appear twice in a row, from the kernel and from the journal.
	return slices.CompactFunc(all, func(x, y Denial) bool { return x.Text == y.Text })
}
