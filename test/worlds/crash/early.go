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

// FromInitramfs is a machine that runs the first boot first in the initramfs, right after Ignition.
// The boot loader requests Ignition as long as its stamp file exists.
func FromInitramfs(m *Machine) { m.initramfs = true }

// IgnitionUnsynced is a program broken on purpose: it removes the stamp before the files that
// Ignition wrote are durable.
func IgnitionUnsynced(m *Machine) { m.disk.Forgetful = true }

// ignited is the file that Ignition wrote.
const ignited = "/etc/ignited"

// stamp returns the path of the file that makes the boot loader request Ignition.
func (m *Machine) stamp() string { return filepath.Join(m.dir, "boot/ignition.firstboot") }

// putStamp makes this the first boot of the machine.
func (m *Machine) putStamp() error {
	n := &inode{mode: 0o644}
	m.disk.now[m.stamp()], m.disk.durable[m.stamp()] = n, n
	return writeAll(map[string]string{m.stamp(): ""})
}

// ignite does what Ignition does in a boot. Nothing that it writes is durable.
func (m *Machine) ignite() error {
	_, err := os.Stat(m.stamp())
	if m.ignites = err == nil; !m.ignites {
		return nil
	}
	path := m.root + ignited
	m.disk.now[path] = &inode{content: []byte(ignited), mode: 0o644}
	delete(m.disk.durable, path)
	return writeAll(map[string]string{path: ignited})
}

// completeUnit is the unit of the started system that removes the stamp, and fails if it is not there. It runs if the
// kernel was started for Ignition, unless pivot has given it a condition.
const completeUnit = "/run/systemd/system/coreos-ignition-firstboot-complete.service.d/50-pivot.conf"

// startSystem starts the system after the first boot in the initramfs: the system syncs and
// removes the stamp.
func (m *Machine) startSystem() error {
	if !m.initramfs {
		return nil
	}
	_, stamp := os.Stat(m.stamp())
	if _, err := os.Stat(m.root + completeUnit); m.ignites && stamp != nil && err != nil {
		return fmt.Errorf("the unit that removes Ignition's stamp fails: %w", err)
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

// wholeIgnition checks that Ignition's file exists or will be written again, and that Ignition will
// never run on the new system.
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

// place is the machine's initramfs. Mounts and network are always there.
type place struct{ *initramfs.Initramfs }

// Mount implements firstboot.Early.
func (place) Mount() error { return nil }

// Network implements firstboot.Early.
func (place) Network(context.Context) error { return nil }

// direct is the engine in the initramfs. It does nothing before the commit.
type direct struct{ *Machine }

// Preflight implements pivot.Engine.
func (direct) Preflight(ctx context.Context, _ pivot.Plan) error { return ctx.Err() }

// CheckPrepareRoot implements pivot.Engine.
func (direct) CheckPrepareRoot(context.Context, ostree.PrepareRoot) error { return nil }

// Prepare implements pivot.Engine.
func (direct) Prepare(ctx context.Context, _ pivot.Spec) error { return ctx.Err() }

// Commit implements pivot.Engine. The deployment is complete and durable before it is committed by
// one rename.
func (d direct) Commit(_ context.Context, r pivot.Spec) error {
	half := func() { _ = d.merge(r) }
	return d.effect("deploy", half, func() error { return d.finalize(r) })
}

// Discard implements pivot.Engine.
func (direct) Discard(context.Context) error { return nil }
