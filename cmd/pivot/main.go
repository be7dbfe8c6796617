// Command pivot brings an image-based Linux host to its MachineConfig: OS image, kernel arguments, files, units and
// packages. That is one transaction with at most one reboot.
package main

import (
	"io"
	"os"
	"syscall"

	"machine-pivot/internal/bootloader"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/rehearse"
)

// version and commit are set by the linker.
var version, commit = "0-unknown", ""

// main sets the umask first. So files of this program, and of programs that it starts, have the modes that were asked
// for, whatever the umask of the shell was. libostree makes /boot/loader.N and refs by its umask.
func main() {
	syscall.Umask(0o022)
	for _, inside := range []func([]string, io.Writer, io.Writer) (int, bool){rehearse.Inside, bootloader.Inside} {
		if status, is := inside(os.Args, os.Stdout, os.Stderr); is {
			os.Exit(status)
		}
	}
	if status := cli.Run(rootCommand(cli.Build{Version: version, Commit: commit})); status != 0 {
		os.Exit(status)
	}
}
