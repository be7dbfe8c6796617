package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/internal/fault"
)

// downloadFlags are the flags of commands that can download now and change the machine later.
type downloadFlags struct{ only, from bool }

func (f *downloadFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.only, "download-only", false, "run all checks, pull the image and keep it for --from-downloaded; change neither the running system nor the next boot")
	cmd.Flags().BoolVar(&f.from, "from-downloaded", false, "use what --download-only has kept; contact no registry for an image")
}

// check returns an error if --download-only is combined with flags that are for a change.
func (f *downloadFlags) check(cmd *cobra.Command, changes ...string) error {
	if !f.only {
		return nil
	}
	for _, name := range append(changes, "dry-run", "from-downloaded", "reboot", "reboot-method", "try", "window", "fleetlock") {
		if cmd.Flags().Changed(name) {
			return fault.New(fault.Usage, "cannot use --download-only with --%s", name)
		}
	}
	return nil
}
