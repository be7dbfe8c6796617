package initramfs

import (
	"context"
	"fmt"
	"os"

	"machine-pivot/internal/hostfiles"
)

// Way is the way into a committed deployment, so that the boot continues in the new system and needs no reboot.
//
// ostree-prepare-root makes the new root beside the old one, in a private mount namespace. Only when it is complete
// and checked, it replaces the old root. Whoever runs a Way must reboot the machine if that fails or is killed: the
// commit holds, so a reboot starts the same deployment.
//
// Sources: ostree-prepare-root(1) and its source, systemd's bootup(7), open_tree(2), move_mount(2).
//
// The fields are directories and programs of the initramfs, in which the
// process runs, in the mount namespace of its systemd.
type Way struct {
	Request     EnterRequest
	Root        string // the mount point of the system that starts: /sysroot
	Run         string // /run
	Cmdline     string // the file with the kernel's command line: /proc/cmdline
	PrepareRoot string // the program ostree-prepare-root
	Scratch     string // an empty directory, or one that is made, for the new root until it is complete
	// Stop stops a unit, if it is active, without what depends on it.
	Stop func(ctx context.Context, unit string) error
	// Before is called before each call of the way, and at its end with ""; nil: nothing. Tests end the way there.
	Before func(call string)

	mounted map[int]bool // the mounts of the private namespace before ostree-prepare-root, by their ID
	tree    *os.File     // the new root with its mounts, which no namespace has yet
}

// NewWay returns the way into the requested deployment.
func NewWay(r EnterRequest) *Way {
	return &Way{Request: r, Root: "/sysroot", Run: "/run", Cmdline: "/proc/cmdline", PrepareRoot: prepareRootPath, Scratch: "/sysroot.next", Stop: stopAlone}
}

// prepareRootPath is ostree-prepare-root in an initramfs.
const prepareRootPath = "/usr/lib/ostree/ostree-prepare-root"

// enterUnit is the unit of an initramfs that takes the way.
const enterUnit = "pivot-enter.service"

// wayCall is one call of the way.
type wayCall struct {
	name string // VERB OBJECT
	do   func(ctx context.Context) error
}

// Go takes the way. When it returns nil, Root is the deployment, as after an ordinary boot. After an error it may be
// anything, and the machine must reboot.
func (w *Way) Go(ctx context.Context) error {
	err := w.all(ctx, w.clear())
	if err == nil {
		// What is mounted here nobody else sees, and it ends with the process.
		err = hostfiles.InNamespace(func() error { return w.all(ctx, w.prepare()) })
	}
	if err == nil {
		err = w.all(ctx, w.swap())
	}
	if err != nil {
		return fmt.Errorf("cannot enter deployment %s: %w", w.Request.Deployment, err)
	}
	w.before("")
	return nil
}

func (w *Way) all(ctx context.Context, calls []wayCall) error {
	for _, c := range calls {
		w.before(c.name)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.do(ctx); err != nil {
			return fmt.Errorf("cannot %s: %w", c.name, err)
		}
	}
	return nil
}

func (w *Way) before(call string) {
	if w.Before != nil {
		w.Before(call)
	}
}

// clear makes the old root one that nobody holds: only ostree-prepare-root's mounts are below it.
func (w *Way) clear() []wayCall {
	return []wayCall{
		{"stop the units that have mounted something", w.stopOwners},
		{"check what is mounted", w.checkMounts},
	}
}

// prepare makes the new root in a private mount namespace.
func (w *Way) prepare() []wayCall {
	return []wayCall{
		{"bind the physical root", w.bindPhysical},
		{"give it a /run of its own", w.bindRun},
		{"show it the new boot entry's link", w.bindCmdline},
		{"prepare the new root", w.prepareRoot},
		{"check the new root", w.checkRoot},
		{"take the new root along", w.takeTree},
	}
}

// swap replaces the old root by the new one, in the namespace of the initramfs.
func (w *Way) swap() []wayCall {
	return []wayCall{
		{"mark the system as entered", w.mark},
		{"sync the file systems", syncAll},
		{"unmount the old root", w.unmountOld},
		{"mount the new root", w.mountNew},
		{"replace libostree's files in /run", w.replaceRun},
	}
}
