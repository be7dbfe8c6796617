package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// FromInitramfs is a machine that runs the first boot in its initramfs first, right
// after Ignition, which its boot loader starts as long as its stamp is there.
func FromInitramfs(m *Machine) { m.initramfs = true }

// IgnitionUnsynced is a program that closes Ignition's part before what Ignition
// wrote is durable. Broken.
func IgnitionUnsynced(m *Machine) { m.disk.Forgetful = true }

// ignited is what Ignition wrote.
const ignited = "/etc/ignited"

// stamp is what has the boot loader start Ignition.
func (m *Machine) stamp() string { return filepath.Join(m.dir, "boot/ignition.firstboot") }

// putStamp makes the machine one that was never booted.
func (m *Machine) putStamp() error {
	n := &inode{mode: 0o644}
	m.disk.now[m.stamp()], m.disk.durable[m.stamp()] = n, n
	return writeAll(map[string]string{m.stamp(): ""})
}

// ignite is Ignition's part of a boot: nothing of it is durable.
func (m *Machine) ignite() error {
	if _, err := os.Stat(m.stamp()); err != nil {
		return nil
	}
	path := m.root + ignited
	m.disk.now[path] = &inode{content: []byte(ignited), mode: 0o644}
	delete(m.disk.durable, path)
	return writeAll(map[string]string{path: ignited})
}

// startSystem is the boot after the initramfs has stepped aside: the system closes
// Ignition's part by itself.
func (m *Machine) startSystem() error {
	if !m.initramfs {
		return nil
	}
	delete(m.disk.now, m.stamp())
	for _, n := range m.disk.now {
		n.durable = n.content
	}
	m.disk.durable = m.disk.copy()
	if err := os.Remove(m.stamp()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// wholeIgnition checks that what Ignition wrote is there, or will be written again,
// and never on a system that it was not meant for.
func (m *Machine) wholeIgnition(root string, isB bool) error {
	if !m.initramfs {
		return nil
	}
	if _, err := os.Stat(m.stamp()); err == nil {
		if isB {
			return errors.New("the boot loader would run Ignition on the new system")
		}
		return nil
	}
	if content, err := os.ReadFile(root + ignited); err != nil || string(content) != ignited {
		return fmt.Errorf("what Ignition wrote is lost: %q (%v)", content, err)
	}
	return nil
}

// place is the machine's initramfs, whose mounts and network are there.
type place struct{ *initramfs.Initramfs }

// Mount implements firstboot.Early.
func (place) Mount() error { return nil }

// Network implements firstboot.Early.
func (place) Network(context.Context) error { return nil }

// direct is the engine there: it makes nothing before it commits.
type direct struct{ *Machine }

// Preflight implements pivot.Engine.
func (direct) Preflight(ctx context.Context, _ pivot.Plan) error { return ctx.Err() }

// Accept implements pivot.Engine.
func (direct) Accept(context.Context, ostree.PrepareRoot) error { return nil }

// Prepare implements pivot.Engine.
func (direct) Prepare(ctx context.Context, _ pivot.Request) error { return ctx.Err() }

// Commit implements pivot.Engine: made whole and durable, then one rename.
func (d direct) Commit(_ context.Context, r pivot.Request) error {
	half := func() { _ = d.merge(r) }
	return d.effect("deploy", half, func() error { return d.finalize(r) })
}

// Discard implements pivot.Engine.
func (direct) Discard(context.Context) error { return nil }
