package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/pivot"
)

func applyCommand() *cobra.Command {
	var flags hostFlags
	var change changeFlags
	var finish, repair bool
	when, unsupported := string(day2.RebootLater), string(machineconfig.Stop)
	cmd := &cobra.Command{
		Use:   "apply [MACHINECONFIG]",
		Short: "Apply a MachineConfig to this machine in one step",
		Long: "Apply a MachineConfig to this machine in one step: image, kernel arguments, files,\n" +
			"directories and links, systemd units, SSH keys and password of core. It replaces the\n" +
			"MachineConfig that the machine has. The file is in YAML or JSON; - is standard input.\n" +
			"With --from-downloaded alone, the MachineConfig that --download-only has kept is applied.\n\n" +
			"Whatever only the previous MachineConfig requested is reset to what the image has or, in /var,\n" +
			"to what was there before. Entries that were changed since then are kept.\n\n" +
			"If the rules say that no change needs a reboot, the running system is changed, and services\n" +
			"are reloaded or restarted, unless --reboot=now is given. Image, kernel arguments and packages\n" +
			"always need a reboot, and so does any change without a rule. The machine's own rules are in\n" +
			disruption.RulesPath + ".\n\n" +
			"With --repair, drift from the current MachineConfig is corrected, by the same rules. Whatever\n" +
			"a repair replaces is backed up below " + day2.FoundDir + ", readable by root only.",
		Example: "  pivot apply --dry-run worker.yaml\n  pivot apply -r worker.yaml\n  pivot apply --reboot=never worker.yaml\n  pivot apply --finish\n  pivot apply --repair --reboot=never\n" +
			"  pivot apply --try=15m --check 'curl -fsS http://localhost/healthz' worker.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := change.download.check(cmd, "finish", "repair"); err != nil {
				return err
			}
			if !oneOf(len(args) > 0 || change.download.from, finish, repair) || finish && change.dryRun {
				return fault.New(fault.Usage, "cannot tell what to apply").WithHint("give a MACHINECONFIG; or without one --from-downloaded, --repair, or --finish without --dry-run")
			}
			if finish {
				m, err := flags.machine(cmd)
				if err != nil {
					return err
				}
				return change.finish(cmd.Context(), m)
			}
			apply := day2.Apply{Repair: repair}
			var err error
			if len(args) > 0 {
				apply.Config.File = args[0]
				if apply.Config.Data, err = readConfig(cmd.Context(), args[0], cmd.InOrStdin()); err != nil {
					return err
				}
			}
			m, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			reboots, err := change.use(cmd, m)
			if err != nil {
				return err
			}
			if reboots != "" {
				if cmd.Flags().Changed("reboot") && when != string(day2.RebootNow) {
					return fault.New(fault.Usage, "cannot use --%s with --reboot=%s: it reboots", reboots, when)
				}
				when = string(day2.RebootNow)
			}
			if change.window.waits() && !cmd.Flags().Changed("reboot") && reboots == "" {
				when = string(day2.RebootIfNeeded)
			}
			apply.Machine, apply.When, apply.Unsupported = m, day2.When(when), machineconfig.Unsupported(unsupported)
			if change.dryRun {
				apply.Progress.Emit = func(pivot.Event) {} // a plan is only printed
			}
			return change.carryOut(cmd, flags.results, m, &apply)
		},
	}
	flags.add(cmd)
	flags.addReboot(cmd)
	change.add(cmd)
	flags.progressFlags.add(cmd)
	flags.addResult(cmd)
	cli.OneOf{Value: &when, Allowed: []string{string(day2.RebootNever), string(day2.RebootLater), string(day2.RebootIfNeeded), string(day2.RebootNow)}}.AddP(cmd, "reboot", "r",
		"when to reboot: never (refuse changes that need a reboot), later (leave it to you), if-needed (at once), now (even if no rule needs one); without a value: now")
	// Not if-needed: scripts that use -r rely on an atomic change with a reboot, and a MachineConfig
	// that corrects a bad rules file must not need that file.
	cmd.Flags().Lookup("reboot").NoOptDefVal = string(day2.RebootNow)
	cmd.Flags().BoolVar(&finish, "finish", false, "only finish an interrupted change of the running system")
	cmd.Flags().BoolVar(&repair, "repair", false, "correct drift from the current MachineConfig; apply no other")
	cli.OneOf{Value: &unsupported, Allowed: []string{string(machineconfig.Stop), string(machineconfig.Warn), string(machineconfig.Replace)}}.
		Add(cmd, "unsupported", "how to treat differences that need a new installation: stop, warn and apply the rest, or exit with status 79 to have the machine replaced")
	return cmd
}

// oneOf reports whether exactly one of its arguments is true.
func oneOf(which ...bool) bool {
	return len(slices.DeleteFunc(which, func(is bool) bool { return !is })) == 1
}

// readConfig reads a MachineConfig from a file, or from standard input for "-".
func readConfig(ctx context.Context, file string, stdin io.Reader) ([]byte, error) {
	data, err := input.File{What: "the MachineConfig", Path: file, Max: document.MaxSize, Stdin: stdin}.Read(ctx)
	if err != nil {
		return nil, fault.New(fault.BadInput, "%w", err).
			WithHint("name a file with a MachineConfig, in JSON or YAML; - is standard input")
	}
	return data, nil
}
