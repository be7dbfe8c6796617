package firstboot

import (
	"machine-pivot/internal/fault"
	"machine-pivot/kargs"
)

// arguments are the kernel arguments of entries, which must meet the machine's policy.
func (m *Machine) arguments(entries []string) (kargs.Line, error) {
	policy, err := m.Host.KargPolicy()
	if err != nil {
		return nil, err
	}
	line, err := policy.ParseEntries(entries)
	if err != nil {
		return nil, fault.New(fault.BadInput, "%w", err)
	}
	return line, nil
}
