package main

import (
	"slices"

	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machineconfig/extensions"
	"machine-pivot/internal/pinning"
)

func firstBootCommand() *cobra.Command {
	var flags hostFlags
	var file string
	var noReboot, again bool
	cmd := &cobra.Command{
		Use:   "firstboot",
		Short: "Complete the first boot: pull, deploy, reboot once, then verify and close",
		Long: "Complete the first boot: pull the image, create the deployment and reboot once; on the next boot, verify\n" +
			"the result and close the first boot. To configure it, set pivot.mode=, pivot.on-failure=,\n" +
			"pivot.reboot-method= and pivot.image-kargs= on the kernel command line, or the same keys without\n" +
			"\"pivot.\" in " + host.SettingsPath + ".",
		Example: "  pivot firstboot\n" +
			"  pivot firstboot --again\n" +
			"  pivot firstboot --machineconfig-file /root/machineconfig.json --no-reboot",
		Args: cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.consoles = true
			boot := firstboot.FirstBoot{File: file, NoReboot: noReboot, Again: again}
			if initramfs.Here(flags.root) {
				return earlyBoot(cmd, &flags, boot)
			}
			machine, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			boot.Machine = machine
			if boot.Off() {
				return nil
			}
			return withLock(machine.Host, func() error { return boot.Run(cmd.Context()) })
		},
	}
	flags.add(cmd)
	flags.addReboot(cmd)
	flags.progressFlags.add(cmd)
	flags.addResult(cmd)
	cmd.Flags().StringVar(&file, "machineconfig-file", firstboot.EncapsulatedPath, "read the encapsulated MachineConfig from `FILE`")
	cmd.Flags().BoolVar(&noReboot, "no-reboot", false, "do everything except the reboot")
	cmd.Flags().BoolVar(&again, "again", false, "run even if the first boot was completed or given up before")
	return cmd
}

// withLock calls run while it holds the machine's lock. Errors of run are marked as reported,
// because run reports them itself.
func withLock(h *host.Host, run func() error) error {
	unlock, err := h.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	cli.OutliveReaders()
	return reported(run())
}

// exitUnchanged is the exit status if nothing had to change, with --unchanged-exit-77.
const exitUnchanged = 77

// changeWithLock is withLock for a change by hand of a machine that can be changed. The run reports whether anything had to change. If not, the
// exit status is 77 with --unchanged-exit-77.
func changeWithLock(h *host.Host, unchanged77 bool, run func() (changed bool, err error)) error {
	if err := h.CheckBooted(); err != nil {
		return err
	}
	var changed bool
	err := withLock(h, func() (err error) {
		changed, err = run()
		return err
	})
	if err == nil && !changed && unchanged77 {
		return cli.ExitStatus(exitUnchanged)
	}
	return err
}

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
	cli.Suggest(cmd, "kernel-type", extensions.KernelTypes()...)
	cli.Suggest(cmd, "extension", extensions.Names()...)
	cli.Suggest(cmd, "extensions-image")
	cli.Suggest(cmd, "append-karg")
	cli.Suggest(cmd, "delete-karg")
	cli.Suggest(cmd, "cpuset", pinning.Management+"=")
	cmd.ValidArgsFunction = completeImage
}

// rebase returns the pivot that the flags and the argument request.
func (f *rebaseFlags) rebase(cmd *cobra.Command, args []string) (*firstboot.Rebase, error) {
	machine, err := f.machine(cmd)
	if err != nil {
		return nil, err
	}
	for flag, given := range map[string][]string{"append-karg": f.appended, "delete-karg": f.deleted, "extension": f.extensions} {
		if slices.Contains(given, "") { // such as from an unset variable
			return nil, fault.New(fault.Usage, "cannot use --%s: it is empty", flag)
		}
	}
	r := &firstboot.Rebase{
		Machine: machine, Append: f.appended, Delete: f.deleted,
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

// nothingAsked is the error of a manual pivot that would change nothing.
func nothingAsked() error {
	return fault.New(fault.Usage, "nothing asked for").
		WithHint("give an IMAGE, --append-karg, --delete-karg, --cpuset, --kernel-type, --extension or --from-downloaded")
}

func rebaseCommand() *cobra.Command {
	var flags rebaseFlags
	var trial tryFlags
	var download downloadFlags
	var turn turnFlags
	var reboot, unchanged77, dryRun bool
	cmd := &cobra.Command{
		Use:   "rebase [IMAGE]",
		Short: "Change image, kernel arguments, packages and CPU sets of this machine in one step",
		Long: "Change image, kernel arguments, packages and CPU sets of this machine in one step. Everything else\n" +
			"stays as it is; to apply a whole MachineConfig, use \"pivot apply\".\n" +
			"Without IMAGE, the image in " + firstboot.PullspecPath + " is used, or the booted one if there is no such\n" +
			"file. Lines ADD ARG and DELETE ARG in " + firstboot.KernelArgsPath + " are applied, too.",
		Example: "  pivot rebase registry.example/os@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 -r\n" +
			"  pivot rebase oci-archive:/run/media/os.tar --append-karg nosmt --cpuset management=0-1\n" +
			"  pivot rebase --delete-karg nosmt --dry-run",
		Args: cli.Usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := download.check(cmd, "dry-run"); err != nil {
				return err
			}
			rebase, err := flags.rebase(cmd, args)
			if err != nil {
				return err
			}
			if !rebase.Asked() && !download.from {
				return nothingAsked()
			}
			if err := trial.use(&rebase.Machine); err != nil {
				return err
			}
			if err := turn.use(&rebase.Machine); err != nil {
				return err
			}
			rebase.Reboot, rebase.FromDownloaded = reboot || turn.waits(), download.from
			if dryRun {
				flags.showWaits(cmd, rebase)
				plan, err := rebase.Plan(cmd.Context())
				return flags.results.printedPlan(cmd, plan, err)
			}
			if download.only {
				return downloadOnly(cmd, rebase.Host, unchanged77, rebase)
			}
			return inTurn(cmd, &rebase.Machine, unchanged77, rebase)
		},
	}
	flags.add(cmd)
	flags.addReboot(cmd)
	trial.add(cmd)
	download.add(cmd)
	turn.add(cmd)
	flags.progressFlags.add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, like \"pivot plan\"; write nothing")
	flags.addResult(cmd)
	cmd.Flags().BoolVarP(&reboot, "reboot", "r", false, "reboot into the new system")
	cmd.Flags().BoolVar(&unchanged77, "unchanged-exit-77", false, "exit with status 77 if no change was needed")
	return cmd
}
