package machine

import (
	"os"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/rpmostree"
)

// UseEngine sets the engine that makes the machine's deployments: "rpm-ostree",
// "ostree", or "auto" for the one that fits the host. An initramfs has only one, which is
// used whatever the name. The other fields of the machine must be set before the call.
func (m *Machine) UseEngine(name string) error {
	if engine, only := m.Where().Engine(m.Host); only {
		m.Engine = engine
		return nil
	}
	plain := rpmostree.Ostree{Sysroot: m.Host.Sysroot(), Run: m.Host.Run, Space: m.Host.Space, Warn: m.Progress.Note}
	switch name {
	case "auto":
		if _, err := os.Stat(m.Host.Path(host.RpmOstreePath)); err == nil {
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

func (m *Machine) useRpmOstree(plain rpmostree.Ostree, always bool) {
	m.Engine = &rpmostree.RpmOstree{
		Ostree: plain, Always: always,
		Retry: m.Retry, Waiting: m.Progress.Waiting, Note: m.Progress.Note,
	}
}
