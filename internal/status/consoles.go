package status

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
)

// showOnConsoles prints an error and its hint on every console of the machine. /dev/console
// would be only the last one on the kernel command line.
func showOnConsoles(root string, err error) error {
	active, rerr := os.ReadFile(filepath.Join(root, "sys/class/tty/console/active"))
	if rerr != nil {
		return fmt.Errorf("cannot find the consoles: %w", rerr)
	}
	var failed error
	for name := range strings.FieldsSeq(string(active)) {
		// O_NONBLOCK: do not wait for a carrier. O_NOCTTY: do not make it our controlling terminal.
		tty, err2 := os.OpenFile(filepath.Join(root, "dev", name), os.O_WRONLY|os.O_APPEND|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
		if err2 == nil {
			_, err2 = tty.WriteString(notice(err))
			err2 = errors.Join(err2, tty.Close())
		}
		failed = errors.Join(failed, err2)
	}
	return failed
}

// notice returns the text for the consoles of a machine with a failed first boot.
func notice(err error) string {
	text := "\n*** pivot: the first boot is not complete: kubelet is held ***\n" + printable.Text(err.Error()) + "\n"
	if hint := fault.HintOf(err); hint != "" {
		text += "What to do: " + printable.Text(hint) + "\n"
	}
	if fault.KindOf(err).Transient() {
		text += "It will be tried again. To follow it: pivot wait\n"
	} else {
		text += "All steps: man pivot-failed\n"
	}
	// A console may be in raw mode, where a line feed does not return to the first column.
	return strings.ReplaceAll(text+"***\n", "\n", "\r\n")
}
