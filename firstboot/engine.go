package firstboot

import (
	"context"
	"os"

	"machine-pivot/fault"
	"machine-pivot/ostree"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// UseEngine chooses what makes the machine's deployments: "rpm-ostree",
// "ostree", or "auto" for the one that fits the host. In an initramfs there is only
// one. The other fields of the machine must be set.
func (m *Machine) UseEngine(name string) error {
	if m.Early != nil {
		m.Engine = &rpmostree.Direct{Sysroot: m.Host.Sysroot(), Run: m.Host.Run, State: []string{pivot.StateDir}}
		return nil
	}
	plain := rpmostree.Ostree{Sysroot: m.Host.Sysroot(), Run: m.Host.Run}
	switch name {
	case "auto":
		if _, err := os.Stat(m.Host.Path("/usr/bin/rpm-ostree")); err == nil {
			m.useRpmOstree(plain, false)
			return nil
		}
		m.Engine = &plain
	case "ostree":
		m.Engine = &plain
	case "rpm-ostree":
		m.useRpmOstree(plain, true)
	default:
		return fault.New(fault.Usage, "cannot use --engine=%s: it is auto, rpm-ostree or ostree", name)
	}
	return nil
}

// checkEngine asks the engine for what it knows to fail, before anything is pulled.
func (m *Machine) checkEngine(ctx context.Context) error {
	if engine, ok := m.Engine.(interface{ Check(context.Context) error }); ok {
		return engine.Check(ctx)
	}
	return nil
}

// accept asks the engine whether what it makes would boot a system that mounts its root
// so, as soon as an import knows that.
func (m *Machine) accept(ctx context.Context, p ostree.PrepareRoot) error {
	if engine, ok := m.Engine.(interface {
		Accept(context.Context, ostree.PrepareRoot) error
	}); ok {
		return engine.Accept(ctx, p)
	}
	return nil
}

func (m *Machine) useRpmOstree(plain rpmostree.Ostree, always bool) {
	m.Engine = &rpmostree.RpmOstree{
		Ostree: plain, Always: always,
		Retry: m.Retry, Waiting: m.Progress.Waiting, Note: m.Progress.Note,
	}
}
