package main

import (
	"slices"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/pinning"
	"machine-pivot/kargs"
)

// rebaseFlags are the inputs of a manual pivot.
type rebaseFlags struct {
	hostFlags
	appended, deleted, cpusets []string

	kernelType, extensionsImage string
	extensions                  []string
}

func (f *rebaseFlags) add(cmd *cobra.Command) {
	f.hostFlags.add(cmd)
	cmd.Flags().StringArrayVar(&f.appended, "append-karg", nil, "add kernel argument `ARG` if it is not in effect (repeatable)")
	cmd.Flags().StringArrayVar(&f.deleted, "delete-karg", nil, "remove kernel argument `ARG`, as KEY=VALUE or KEY (repeatable)")
	cmd.Flags().StringArrayVar(&f.cpusets, "cpuset", nil, "CPUs of a workload: `WORKLOAD=SET`, such as management=0-1,52-53 (repeatable)")
	cmd.Flags().StringVar(&f.kernelType, "kernel-type", "", "kernel `TYPE` to install in place of the current one: default, realtime or 64k-pages")
	cmd.Flags().StringArrayVar(&f.extensions, "extension", nil, "extension `NAME` to install, as in a MachineConfig (repeatable)")
	cmd.Flags().StringVar(&f.extensionsImage, "extensions-image", "", "`IMAGE` with the packages of kernels and extensions (default: use the machine's package repositories)")
	cli.Suggest(cmd, "kernel-type", machineconfig.KernelTypes()...)
	cli.Suggest(cmd, "extension", machineconfig.ExtensionNames()...)
	cli.Suggest(cmd, "extensions-image")
	cli.Suggest(cmd, "append-karg")
	cli.Suggest(cmd, "delete-karg")
	cli.Suggest(cmd, "cpuset", pinning.Management+"=")
	cmd.ValidArgsFunction = completeImage
}

// rebase returns the pivot that the flags and the argument request.
func (f *rebaseFlags) rebase(cmd *cobra.Command, args []string) (*day2.Rebase, error) {
	m, err := f.machine(cmd)
	if err != nil {
		return nil, err
	}
	for flag, given := range map[string][]string{"append-karg": f.appended, "delete-karg": f.deleted, "extension": f.extensions} {
		if slices.Contains(given, "") { // such as from an unset variable
			return nil, fault.New(fault.Usage, "cannot use --%s: it is empty", flag)
		}
	}
	r := &day2.Rebase{
		Machine: m, Append: f.appended, Delete: f.deleted,
		KernelType: f.kernelType, Extensions: f.extensions, ExtensionsImage: f.extensionsImage,
	}
	if len(args) > 0 {
		r.Image = args[0]
	}
	if r.Pinning, err = cli.Workloads(f.cpusets); err != nil {
		return nil, err
	}
	return r, nil
}

// moveFlags are rebaseFlags, and how the pivot is carried out.
type moveFlags struct {
	rebaseFlags
	change changeFlags
	reboot bool
}

// addMove adds the flags about how the pivot is carried out.
func (f *moveFlags) addMove(cmd *cobra.Command) {
	f.addReboot(cmd)
	f.change.add(cmd)
	f.progressFlags.add(cmd)
	f.addResult(cmd)
	cmd.Flags().BoolVarP(&f.reboot, "reboot", "r", false, "reboot into the new system")
}

// carryOut carries out the pivot that was requested, or only shows or prepares it, as the flags say.
func (f *moveFlags) carryOut(cmd *cobra.Command, rebase *day2.Rebase) error {
	reboots, err := f.change.use(cmd, rebase.Machine)
	if err != nil {
		return err
	}
	rebase.Reboot = f.reboot || reboots != "" || f.change.window.waits()
	if f.change.dryRun {
		f.showWaits(cmd, rebase)
	}
	return f.change.carryOut(cmd, f.results, rebase.Machine, rebase)
}

// nothingAsked is the error of a manual pivot that would change nothing.
func nothingAsked() error {
	return fault.New(fault.Usage, "nothing asked for").
		WithHint("give an IMAGE, --append-karg, --delete-karg, --cpuset, --kernel-type, --extension or --from-downloaded")
}

func rebaseCommand() *cobra.Command {
	var flags moveFlags
	cmd := &cobra.Command{
		Use:   "rebase [IMAGE]",
		Short: "Change image, kernel arguments, packages and CPU sets of this machine in one step",
		Long: "Change image, kernel arguments, packages and CPU sets of this machine in one step. Everything else\n" +
			"stays as it is; to apply a whole MachineConfig, use \"pivot apply\".\n" +
			"Without IMAGE, the image in " + imageref.PullspecPath + " is used, or the booted one if there is no such\n" +
			"file. Lines ADD ARG and DELETE ARG in " + kargs.LegacyPath + " are applied, too.",
		Example: "  pivot rebase registry.example/os@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 -r\n" +
			"  pivot rebase oci-archive:/run/media/os.tar --append-karg nosmt --cpuset management=0-1\n" +
			"  pivot rebase --delete-karg nosmt --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.change.download.check(cmd); err != nil {
				return err
			}
			rebase, err := flags.rebase(cmd, args)
			if err != nil {
				return err
			}
			if !rebase.Asked() && !flags.change.download.from {
				return nothingAsked()
			}
			return flags.carryOut(cmd, rebase)
		},
	}
	flags.add(cmd)
	flags.addMove(cmd)
	return cmd
}
