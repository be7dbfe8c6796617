package initramfs

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// Running is what the machine was started with. It is read before a commit, which writes the boot entries and the
// links to the deployments anew.
type Running struct {
	Deployment ostree.DeploymentRef // at the root that the initramfs has mounted
	Linked     ostree.DeploymentRef // to which ostree= on the kernel command line leads
	Entry      ostree.BootEntry     // of Deployment
	Cmdline    kargs.Line           // of the kernel, as it runs
	Edited     bool                 // coreos-boot-edit.service has added arguments to Entry in this boot
	BootLoader string               // the repository's setting sysroot.bootloader
	Aboot      bool                 // the Android boot image of Entry exists
}

// committed is what the commit has made.
type committed struct {
	Deployment string            // the ID of that of the transaction
	Default    ostree.Deployment // what the next boot starts, with its boot entry
	Aboot      bool              // the default entry's Android boot image exists
}

// Refusal returns an error with all reasons why the kernel and the initramfs that run cannot enter another deployment,
// whatever is committed; nil if they can.
func (r Running) Refusal() error { return refusal(r.reasons()) }

func (r Running) reasons() (reasons []string) {
	no := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if r.Linked != r.Deployment {
		no("the kernel's ostree= leads to deployment %s, and %s is mounted", r.Linked.ID(), r.Deployment.ID())
	}
	if missing := r.missing(); len(missing) > 0 {
		no("the kernel was started without %s of its boot entry", missing)
	}
	if r.Entry.Linux == "" {
		no("boot entry %s names no kernel, as that of a unified kernel image", r.Entry.File)
	}
	if r.BootLoader == "zipl" {
		no("the boot loader is zipl")
	}
	return append(reasons, keptByName(r.Entry, r.Aboot)...)
}

// reasonsOf returns why the committed deployment cannot be entered by the kernel and the initramfs that run; nothing if
// it can. They have to be what the next boot would start: the same files, with the same arguments.
func reasonsOf(running Running, c committed) []string {
	reasons, next := running.reasons(), c.Default.Entry
	no := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if c.Default.ID() != c.Deployment {
		no("the default boot entry starts %s, not what was committed", c.Default.ID())
	}
	if linkOf(running.Entry) != linkOf(next) {
		no("the new system has another kernel or initramfs, or another stateroot")
	} else if running.Entry.Linux != next.Linux || !slices.Equal(running.Entry.Initrds, next.Initrds) || !slices.Equal(running.Entry.Board, next.Board) {
		no("boot entry %s names other files than %s", next.File, running.Entry.File)
	}
	if !kargs.Split(running.Entry.Options).EqualButOstree(kargs.Split(next.Options)) {
		no("the kernel arguments change")
	}
	return append(reasons, keptByName(next, c.Aboot)...)
}

// keptByName returns why firmware or boot loader keep the name of a boot entry that they have started, and would have
// to be told about another one.
func keptByName(e ostree.BootEntry, aboot bool) (reasons []string) {
	if strings.Contains(e.File, "+") {
		reasons = append(reasons, fmt.Sprintf("boot entry %s counts boots", e.File))
	}
	if aboot {
		reasons = append(reasons, fmt.Sprintf("boot entry %s has an Android boot image", e.File))
	}
	return reasons
}

// refusal returns an error with all reasons; nil if there are none.
func refusal(reasons []string) error {
	if len(reasons) == 0 {
		return nil
	}
	return errors.New(strings.Join(reasons, "; "))
}

// bootFiles is what the value of ostree=, /ostree/boot.N/STATEROOT/BOOTCSUM/M, says of a system besides its number:
// BOOTCSUM is the checksum of kernel, initramfs and device trees.
type bootFiles struct{ stateroot, checksum string }

func linkOf(e ostree.BootEntry) bootFiles {
	checksum := path.Dir(e.Ostree())
	return bootFiles{path.Base(path.Dir(checksum)), path.Base(checksum)}
}

// missing returns the arguments of the boot entry that the running kernel does not have. Arguments that it has besides
// are of this boot alone, from the boot loader or a person at its menu, and go on being in effect.
func (r Running) missing() kargs.Line {
	return slices.DeleteFunc(kargs.Split(r.Entry.Options).WithoutOstree(), func(arg string) bool {
		return arg == kargs.IgnitionVariable || slices.Contains(r.Cmdline, arg) || r.Edited && addedByEdit(arg)
	})
}

// addedByEdit reports whether coreos-boot-edit.service adds an argument on a first boot. By these arguments later boots
// find the root and /boot that this one has found by their labels. They are those of "rdcore rootmap", for the root and
// what it is on, and of "rdcore bind-boot" (coreos-installer, src/bin/rdcore/rootmap.rs). It adds none for multipath.
func addedByEdit(arg string) bool {
	if slices.Contains([]string{"rw", "rd.neednet=1", "rd.luks.options=_netdev"}, arg) {
		return true
	}
	key, _, _ := strings.Cut(arg, "=")
	return slices.Contains([]string{"root", "rootflags", "boot", "rd.luks.name", "rd.md.uuid"}, key)
}
