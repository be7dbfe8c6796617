package machine

import (
	"os"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// stubInfo is the EFI variable that systemd-stub sets (systemd-stub(7)). It exists if the
// running kernel was started from a unified kernel image.
const stubInfo = "/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// checkUnified returns an error if a plan changes kernel arguments that a unified kernel image
// would ignore.
func (m *Machine) checkUnified(plan pivot.Plan) error {
	if _, err := os.Stat(m.Host.Path(stubInfo)); plan.Kargs.Changed && err == nil {
		return fault.New(fault.Refused, "cannot change the kernel arguments: this machine was started from a unified kernel image, which has them built in").
			WithHint("build the arguments into the image, and leave out kernelArguments and --append-karg")
	}
	return nil
}
