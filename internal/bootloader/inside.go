package bootloader

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
)

// aside is looking at a boot loader, or installing one.
func aside() rehearse.Aside { return rehearse.Aside{Role: "boot-loader", Session: true} }

const bootupctl = "/usr/bin/bootupctl"

// asked is what the process inside is told.
type asked struct {
	Repo          string
	Commit        ostree.Checksum
	Boot, Sysroot string
	Update        bool // or only look
}

// answer is what it found.
type answer struct {
	Said       string // by bootupctl
	Failed     string // how that failed; "": it did not
	Partitions []partition
}

// Inside does what Loader asks of another process, if the arguments of this program say so, and returns the exit status. The main
// function calls it first: Loader starts the same program again, as the first process of namespaces.
func Inside(args []string, to, complaints io.Writer) (status int, inside bool) {
	var a asked
	return aside().Inside(args, &a, complaints, func() error { return perform(a, to) })
}

func perform(a asked, to io.Writer) error {
	root, err := mountTree(a)
	if err != nil {
		return err
	}
	if _, err := hostfiles.ResolveIn(root, bootupctl); err != nil {
		return fmt.Errorf("the image has no %s", bootupctl)
	}
	t := tree(root)
	mounted, err := t.mountAll(a.Update)
	if err != nil {
		return err
	}
	var found answer
	if a.Update {
		if found.Said, found.Failed, err = t.update(); err != nil {
			return err
		}
	}
	if found.Partitions, err = readAll(mounted); err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(found)
}

// update has bootupctl update what it knows to be installed, and adopt it first if need be.
func (t tree) update() (said, failed string, err error) {
	said, err = t.run(bootupctl, "update")
	if err != nil {
		failed = err.Error()
	}
	return said, failed, t.label("boot/bootupd-state.json", "boot")
}

// mountTree makes the tree of the new system, with what bootupctl looks at of the machine. /boot is mounted without what is
// mounted in it: an ESP that is would be taken for each of several.
func mountTree(a asked) (root string, err error) {
	udev, err := unix.Open("/run/udev", unix.O_PATH|unix.O_CLOEXEC, 0) // lsblk asks it for types of partitions
	known := err == nil
	if root, err = rehearse.Build(a.Repo, a.Commit); err != nil {
		return "", err
	}
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return "", fmt.Errorf("cannot mount: %w", err)
	}
	binds := []bind{{a.Boot, "boot", 0}, {a.Sysroot, "sysroot", 0}, {"/dev", "dev", unix.MS_REC}, {"/sys", "sys", unix.MS_REC}}
	if known {
		binds = append(binds, bind{fmt.Sprintf("/proc/self/fd/%d", udev), "run/udev", 0})
	}
	for _, b := range binds {
		if err := b.mount(root); err != nil {
			return "", err
		}
	}
	return root, nil
}

// bind is a directory of the machine that the tree has, too.
type bind struct {
	from, to string
	flags    uintptr
}

func (b bind) mount(root string) error {
	at := filepath.Join(root, b.to)
	err := os.MkdirAll(at, 0o755)
	if err == nil {
		err = unix.Mount(b.from, at, "", unix.MS_BIND|b.flags, "")
	}
	if err != nil {
		return fmt.Errorf("cannot show /%s to the new system: %w", b.to, err)
	}
	return nil
}

// tree is the path of a new system's tree.
type tree string

// label gives a file without an SELinux label that of another one: in an initramfs no policy is loaded, and nothing labels new files.
func (t tree) label(name, as string) error {
	const attribute = "security.selinux"
	file, label := filepath.Join(string(t), name), make([]byte, 512)
	n, err := unix.Lgetxattr(filepath.Join(string(t), as), attribute, label)
	if err != nil {
		return nil // a system without SELinux
	}
	if _, err := unix.Lgetxattr(file, attribute, nil); err != unix.ENODATA {
		return nil
	}
	if err := unix.Lsetxattr(file, attribute, label[:n], 0); err != nil {
		return fmt.Errorf("cannot label /%s: %w", name, err)
	}
	return nil
}

// run runs a program of the new system, as root, and returns what it said. With INVOCATION_ID bootupctl takes itself for the
// unit that it would have systemd start otherwise.
func (t tree) run(argv ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/usr/sbin", "HOME=/", "LC_ALL=C", "INVOCATION_ID=00000000000000000000000000000001"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: string(t)}
	out, err := cmd.CombinedOutput()
	if said = string(out); err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return said, err
}
