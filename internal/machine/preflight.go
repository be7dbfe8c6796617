package machine

import (
	"os"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/mcfile"
	"machine-pivot/pivot"
)

// stubInfo is the EFI variable that systemd-stub sets (systemd-stub(7)). It exists if the
// running kernel was started from a unified kernel image.
const stubInfo = "/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// checkUnified returns an error if a plan changes kernel arguments that a unified kernel image
// would ignore.
func (m *Machine) checkUnified(plan pivot.Plan) error {
	if _, err := os.Stat(m.Host.Path(stubInfo)); plan.Kargs.Changed && err == nil {
		return fault.New(fault.Refused, "cannot change the kernel arguments: this machine was started from a unified kernel image, whose arguments are built in").
			WithHint("build the arguments into the image, and ask for none")
	}
	return nil
}

// checkFIPS returns an error if the requested FIPS mode is not that of the running kernel.
func (m *Machine) checkFIPS(d *mcfile.Desired) error {
	fips, err := m.Host.FIPS()
	if err != nil || fips == d.FIPS {
		return err
	}
	return fault.New(fault.Refused, "cannot pivot this machine: spec.fips is %v, but the kernel runs with FIPS mode %s",
		d.FIPS, map[bool]string{true: "on", false: "off"}[fips]).
		WithHint("FIPS mode is chosen when a machine is installed and cannot be changed later: install it anew, or correct spec.fips")
}
