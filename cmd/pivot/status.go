package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// exitTransactionFailed is the exit status of "status --exit-code" if the last transaction
// failed or was interrupted. It does not mean that the command failed.
const exitTransactionFailed = 3

// ended reports whether a transaction has ended without reaching its target.
func ended(p pivot.Phase) bool { return p == pivot.PhaseFailed || p == pivot.PhaseInterrupted }

func statusCommand() *cobra.Command {
	var flags hostFlags
	var out cli.Output
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show phase, progress, the last error and its remedy",
		Long: "Show phase, progress, the last error and its remedy, and the next step. pivot-failed(7) explains\n" +
			"each phase.",
		Example: "  pivot status\n" +
			"  pivot status --exit-code -o json",
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			s, err := m.Status(cmd.Context())
			if err != nil {
				return err
			}
			rollback := day2.Rollback{Machine: m}
			if to, _, _, err := rollback.Leads(); err == nil { // otherwise it leads nowhere
				s.Rollback = &to
			}
			err = out.Write(cmd.OutOrStdout(), s, func(w io.Writer) { printStatus(w, s) })
			if err == nil && exitCode && ended(s.Phase) {
				return cli.ExitStatus(exitTransactionFailed)
			}
			return err
		}),
	}
	flags.addRoot(cmd)
	out.Add(cmd, api.Status)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with status 3 if the last transaction failed or was interrupted")
	return cmd
}

func printStatus(w io.Writer, s status.Status) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-9s%s\n", name, indented(fmt.Sprintf(format, args...)))
	}
	line("phase", "%s", s.Phase)
	for _, note := range s.Notes {
		line("note", "%s", note)
	}
	for _, name := range s.LeftOut {
		line("left out", "%s", name)
	}
	if s.Step != "" {
		line("step", "%s, %d%%", s.Step, s.Percent)
	}
	if s.Attempt > 0 {
		line("attempt", "%d of %d, started %s", s.Attempt, pivot.MaxAttempts, s.Started.Format(time.RFC3339))
	}
	if s.MachineConfig != nil {
		recorded := map[machineconfig.Recorder]string{machineconfig.RecordedByDaemon: " (as the machine-config-daemon says; not compared)"}
		line("config", "%s%s", configName(s.MachineConfig.Current), recorded[machineconfig.Recorder(s.MachineConfig.RecordedBy)])
		line("desired", "%s", configName(s.MachineConfig.Desired))
	}
	if c := s.Cluster; c != nil {
		line("cluster", "node %s wants %s: %s since %s, step %s", c.Node, c.Config, c.State, c.Since.Format(time.RFC3339), c.Step)
		if c.Reason != "" {
			line("", "%s", c.Reason)
		}
	}
	if !s.Target.Image.IsZero() {
		line("target", "%s", s.Target.Image)
	}
	if s.Booted != nil {
		line("booted", "%s", deploymentText(*s.Booted))
	}
	if s.Pending != nil {
		line("pending", "%s%s", deploymentText(*s.Pending), map[bool]string{true: " (staged)"}[s.Pending.Staged])
	}
	if s.HeldBack != nil {
		line("held", "%s (staged and locked: no reboot starts it)", deploymentText(*s.HeldBack))
	}
	if follows := followed(s); follows != "" {
		line("follows", "%s", follows)
	}
	if p := s.Partitioning; p != nil && len(p.Workloads) > 0 {
		line("workloads", " %s", strings.Join(p.Workloads, ", "))
	}
	for _, l := range s.Lines {
		line(l.Name, "%s", l.Text)
	}
	if s.LastCommand != nil {
		line("command", "%s, %s", s.LastCommand.Name, s.LastCommand.Result)
	}
	if s.Error != nil {
		printFailure(line, *s.Error)
	} else if s.Failed() {
		printFailure(line, *s.LastCommand.Error)
	}
	if s.Next != "" {
		line("next", "%s", s.Next)
	}
	if s.Rollback != nil {
		line("rollback", "to %s", rollbackText(s))
	}
	printSteps(w, s.Phases)
	for _, a := range s.History {
		line("before", "%s in attempt %d, %s to %s %s", a.Phase, a.Attempt, a.Started.Format(time.RFC3339), a.Ended.Format(time.RFC3339), imageText(a.Image, "(the image was kept)"))
	}
}

// rollbackText returns where a rollback leads.
func rollbackText(s status.Status) string {
	if s.Booted != nil && s.Rollback.ID() == s.Booted.ID() {
		return "this system, which stays"
	}
	return deploymentText(*s.Rollback)
}

// followed returns the tag that the system of the next boot follows; "" if it follows none.
func followed(s status.Status) string {
	switch {
	case s.Pending != nil:
		return s.Pending.Image.Follows().String()
	case s.Booted != nil:
		return s.Booted.Image.Follows().String()
	}
	return ""
}

// printFailure prints why a run failed, and what to do.
func printFailure(line func(name, format string, args ...any), f pivot.Failure) {
	line("error", "%s", f.Message)
	if f.Hint != "" {
		line("hint", "%s", f.Hint)
	}
	line("exit", "%s", exitText(f))
}

// configName returns the name of a MachineConfig for display.
func configName(mc *pivot.MachineConfig) string {
	switch {
	case mc == nil:
		return "none"
	case mc.Name == "":
		return "without a name, " + string(mc.Digest)
	}
	return mc.Name
}

// deploymentText describes a deployment in one line.
func deploymentText(d pivot.Deployment) string {
	return fmt.Sprintf("%s.%d %s", d.Commit, d.Serial, imageText(d.Image, "(not from an image)"))
}

// imageText describes an image; none is what to say if there is none.
func imageText(image pivot.Image, none string) string {
	if image.IsZero() {
		return none
	}
	return image.String()
}

// exitText describes how a failed run ended. Journals of older programs have no exit status.
func exitText(f pivot.Failure) string {
	text := "transient: trying again can help"
	if f.Permanent {
		text = "permanent: trying the same again fails again"
	}
	if f.ExitStatus > 0 {
		text = fmt.Sprintf("%d, %s", f.ExitStatus, text)
	}
	return text
}

// indented indents the lines after the first to align with it.
func indented(text string) string {
	return strings.ReplaceAll(printable.Text(text), "\n", fmt.Sprintf("\n%-9s", ""))
}

// printSteps prints the duration of each step, with a heading for each boot.
func printSteps(w io.Writer, steps []pivot.Duration) {
	var began pid1.StartID
	for _, p := range steps {
		if p.BootID != began {
			began = p.BootID
			what := "boot"
			switch {
			case began.Soft():
				what = "soft reboot"
			case began.Entered():
				what = "entered in boot"
			}
			fmt.Fprintf(w, "%-9s%s %s\n", "", what, began)
		}
		fmt.Fprintf(w, "%-9s%-10s %7.1f s\n", "", p.Name, p.Seconds)
	}
}
