package main

import (
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/kargsd"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

func rootCommand(version string) *cobra.Command {
	return cli.Root("pivot", version, "Move an image-based host to its OS image, kernel arguments and CPU pinning in one reboot",
		firstBootCommand(), rebaseCommand(), rollbackCommand(), planCommand(), statusCommand(), verifyCommand(), imageCommand(),
		elsewhere("config"), elsewhere("ctrcfg"), elsewhere("pinning"), elsewhere("kargs"))
}

// elsewhere is a command of pivotctl's that was one of this program before: it says so.
func elsewhere(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return fault.New(fault.Usage, "pivot has no command %s", name).
				WithHint("pivotctl has it, the program for authors and operators: %s", strings.Join(append([]string{"pivotctl", name}, args...), " "))
		},
	}
}

// hostFlags are the flags of the commands that work on a machine.
type hostFlags struct {
	root     string
	engine   string
	authFile string
	retryFor time.Duration
	method   rebootMethod
	kargs    string               // what becomes of an image's own; "": as the settings say
	consoles bool                 // a failure holds the machine: all its consoles show it
	early    *initramfs.Initramfs // nil in the started system
}

// addRoot adds what the commands need that only look.
func (f *hostFlags) addRoot(cmd *cobra.Command) {
	f.engine = "auto"
	cmd.Flags().StringVar(&f.root, "root", "/", "root directory of the machine")
}

func (f *hostFlags) add(cmd *cobra.Command) {
	f.addRoot(cmd)
	cmd.Flags().StringVar(&f.engine, "engine", "auto", "what makes the deployment: auto|rpm-ostree|ostree")
	cmd.Flags().StringVar(&f.authFile, "authfile", "", "pull secret (default: the first known place that has one for the registry)")
	cmd.Flags().DurationVar(&f.retryFor, "retry-for", pivot.DefaultRetry().Bound, "how long to try again what fails for a transient reason")
	cli.OneOf{Value: &f.kargs, Allowed: []string{string(host.ImageKargsPrint), string(host.ImageKargsApply)}}.Add(cmd, "image-kargs",
		"kernel arguments of the image's own in /"+kargsd.Dir+": print|apply (default: as the machine's settings say, else print)")
}

// addReboot adds what the commands need that reboot.
func (f *hostFlags) addReboot(cmd *cobra.Command) {
	cmd.Flags().Var(&f.method, "reboot-method", "reboot, or kexec: past the firmware where that is safe (default: as the machine's settings say)")
}

// rebootMethod is the flag for one; "" until it is set.
type rebootMethod host.RebootMethod

// String implements pflag.Value.
func (m *rebootMethod) String() string { return string(*m) }

// Type implements pflag.Value.
func (m *rebootMethod) Type() string { return "METHOD" }

// Set implements pflag.Value.
func (m *rebootMethod) Set(name string) error {
	method, err := host.ParseRebootMethod(name)
	*m = rebootMethod(method)
	return err
}

// machine puts together the machine that the flags name.
func (f *hostFlags) machine(cmd *cobra.Command) (firstboot.Machine, error) {
	if err := cli.CheckRoot(f.root); err != nil {
		return firstboot.Machine{}, err
	}
	boundMemory()
	log := newLog(cmd.ErrOrStderr())
	reporter := &status.Reporter{Root: f.root, Log: log, Notify: notify, Now: time.Now, Consoles: f.consoles}
	m := firstboot.Machine{
		Host:         host.New(f.root),
		Puller:       &osimage.Puller{Root: f.root, AuthFile: f.authFile, Log: noteTo(log), Architecture: host.Architecture()},
		Retry:        pivot.DefaultRetry(),
		RebootMethod: host.RebootMethod(f.method),
		ImageKargs:   host.ImageKargs(f.kargs),
		Progress: &pivot.Progress{
			Journal: pivot.JournalIn(f.root), Emit: reporter.Emit, Now: time.Now,
		},
	}
	m.Retry.Bound = f.retryFor
	f.earlyMachine(&m)
	if err := m.UseEngine(f.engine); err != nil {
		return firstboot.Machine{}, err
	}
	return m, nil
}

// noteTo tells people what the image's reader has to say.
func noteTo(log *logrus.Logger) func(string) {
	return func(message string) { log.Info(message) }
}

// notify sets the line that systemctl status shows; outside a unit it does nothing.
func notify(text string) {
	// A lost status line is no reason to stop.
	_, _ = daemon.SdNotify(false, "STATUS="+text)
}
