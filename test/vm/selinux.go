package vm

import (
	"context"
	_ "embed"
	"path/filepath"
	"regexp"
	"slices"
)

// SELinux is how a guest runs SELinux: with Debian's policy, enforcing, with all
// files labelled, if the kernel command line has KernelArgs. The pinning files have
// other labels by B's policy than by A's.
type SELinux string

// The ways to run it.
const (
	NoSELinux SELinux = ""
	Enforcing SELinux = "enforcing"
	// NewType has a B whose policy has a type that A's lacks: that of the pinning
	// files, and of NewTypePath.
	NewType SELinux = "new type"
	// NewTypeAllowed is NewType where the services of A may store labels that the
	// policy does not know.
	NewTypeAllowed SELinux = "new type, any label allowed"
)

// NewTypePath is a directory whose type only B's policy has, and in it a file.
const NewTypePath = "/usr/share/new-type"

// Types are the types that B's policy, and no other, gives to paths and all below them:
// of the pinning files, of the base, and of derived layers.
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

// Policies are two SELinux policies: directories with nothing but etc/selinux.
type Policies struct{ Base, Changed string }

// policies are those of A and of B.
func (s SELinux) policies(base cache) Policies {
	in := func(name string) string { return filepath.Join(base.dir, policiesDir, name) }
	if s == NoSELinux {
		return Policies{}
	}
	return Policies{in("a"), in(s.policy(versionB()))}
}

// KernelArgs are what the kernel command line of a guest needs: Debian's kernel has
// SELinux off, and without auditd what it denies would be limited to a few a second.
// Trixie's policy keeps systemd-network-generator, which has nothing to do here, from
// its work.
func (s SELinux) KernelArgs() []string {
	if s == NoSELinux {
		return nil
	}
	return []string{"security=selinux", "selinux=1", "audit=1", "audit_backlog_limit=16384", "sysctl.kernel.printk_ratelimit=0",
		"systemd.mask=systemd-network-generator.service"}
}

// variant is the base system that it needs.
func (s SELinux) variant() string {
	switch s {
	case NoSELinux:
		return ""
	case NewTypeAllowed:
		return "selinux-any-label"
	}
	return "selinux"
}

// policy names the policy, of those that a base keeps, that a version has instead
// of the base's; "": none.
func (s SELinux) policy(v version) string {
	switch {
	case s == NoSELinux || !v.successor:
		return ""
	case s == Enforcing:
		return "other-labels"
	}
	return "new-type"
}

// labelScript is no part of the recipe: it works on disks.
//
//go:embed label.sh
var labelScript string

// label gives the files of a sysroot, which was made where no policy is loaded, the
// labels that a running system would have given them.
func label(ctx context.Context, sysroot, deployment string) error {
	return runPrivate(ctx, "bash", "-c", labelScript, "label.sh", sysroot, deployment, filepath.Join(sysroot, VarDir))
}

// Denial is what SELinux has denied.
type Denial struct {
	Source, Target string // their types
	Command        string // the name of the process, cut at 15 bytes
	Text           string // all of it
}

var denial = regexp.MustCompile(`avc:  denied .*comm="?([^" ]*)"? .*scontext=[^: ]*:[^: ]*:([^: ]*):\S* tcontext=[^: ]*:[^: ]*:([^: ]*):`)

// Denials are what the console shows of SELinux's denials.
func (b *BootResult) Denials() []Denial {
	var all []Denial
	for _, line := range b.Serial {
		if m := denial.FindStringSubmatch(line.Text); m != nil {
			all = append(all, Denial{Source: m[2], Target: m[3], Command: m[1], Text: line.Text})
		}
	}
	// The kernel says it twice, to the console and to the journal's reader of it.
	return slices.CompactFunc(all, func(x, y Denial) bool { return x.Text == y.Text })
}
