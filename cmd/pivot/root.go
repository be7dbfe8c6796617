package main

import (
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/host"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/status"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
)

func rootCommand(build cli.Build) *cobra.Command {
	commands := []*cobra.Command{
		firstBootCommand(), enterCommand(), rebaseCommand(), upgradeCommand(), applyCommand(), rollbackCommand(), handBackCommand(), planCommand(), diffCommand(), projectCommand(), staticPodsCommand(), statusCommand(), plotCommand(), waitCommand(), verifyCommand(), factsCommand(), imageCommand(),
	}
	commands = append(commands, featureCommands()...)
	commands = append(commands, cli.Elsewhere("pivotctl", "for authors and operators", "config", "ctrcfg", "pinning")...)
	commands = append(commands, kargsCommand())
	root := cli.Root("pivot", build, "Bring a host to its MachineConfig in one step: OS image, kernel arguments, files, units, packages", commands...)
	cli.Teach(root, foreign())
	return root
}

// hostFlags are the flags of the commands that work on a machine.
type hostFlags struct {
	progressFlags
	root     string
	engine   string
	authFile string
	retryFor time.Duration
	method   string               // of the reboot; "": from the settings
	kargs    string               // treatment of an image's kernel arguments; "": from the settings
	bound    string               // treatment of application images that an image binds; "": from the settings
	loader   string               // when the image's boot loader is installed; "": from the settings
	accept   []verdict.Name       // verdicts that do not refuse an image
	consoles bool                 // a failure holds the machine, so show it on all consoles
	early    *initramfs.Initramfs // nil in the started system
	results  *results             // nil: the command writes no result
}

// addRoot adds the flags of commands that only read.
func (f *hostFlags) addRoot(cmd *cobra.Command) {
	f.engine = "auto"
	cli.AddRoot(cmd, &f.root)
	f.quietFlag.add(cmd)
}

func (f *hostFlags) add(cmd *cobra.Command) {
	f.addRoot(cmd)
	cli.OneOf{Value: &f.engine, Allowed: []string{"auto", "rpm-ostree", "ostree"}}.Add(cmd, "engine", "tool that creates the deployment")
	cmd.Flags().StringVar(&f.authFile, "authfile", "", "read the pull secret from `FILE` (default: the first known location that has one for the registry)")
	f.addRetry(cmd)
	f.addBound(cmd)
	cli.OneOf{Value: &f.loader, Allowed: texts(settings.BootLoaders())}.Add(cmd, "boot-loader", "when to install the image's own boot loader before the commit (default: the machine's setting, or needed)")
	cmd.Flags().Var(acceptFlag{&f.accept}, "accept", "use an image although the verdict `NAME` refuses it, besides those of the machine's setting; repeatable")
	cli.Suggest(cmd, "accept", acceptFlag{}.names()...)
	cli.OneOf{Value: &f.kargs, Allowed: []string{string(settings.ImageKargsPrint), string(settings.ImageKargsApply)}}.Add(cmd, "image-kargs",
		"whether to print or apply the kernel arguments that the image has in /"+osimage.KargsDir+" (default: the machine's setting, or apply where bootc manages the machine, and print elsewhere)")
}

// addBound adds the flag of commands that pull an OS image.
func (f *hostFlags) addBound(cmd *cobra.Command) {
	cli.OneOf{Value: &f.bound, Allowed: []string{string(settings.BoundImagesRequire), string(settings.BoundImagesIgnore)}}.Add(cmd, "bound-images",
		"whether to refuse an image if its application images (/"+osimage.BoundDir+") cannot be had, or to continue without them (default: the machine's setting, or require)")
}

// addRetry adds the flags of commands that retry.
func (f *hostFlags) addRetry(cmd *cobra.Command) {
	f.retryFor = pivot.DefaultRetry().Bound
	cmd.Flags().Var(cli.Wait{For: &f.retryFor}, "retry-for", "retry transient failures for `DURATION`")
	cli.Suggest(cmd, "retry-for")
}

// addReboot adds the flags of commands that reboot.
func (f *hostFlags) addReboot(cmd *cobra.Command) {
	cli.OneOf{Value: &f.method, Allowed: texts(settings.RebootMethods())}.Add(cmd, "reboot-method", "how to reboot: through the firmware (reboot), by kexec, with a soft reboot that keeps the kernel (soft), or the cheapest safe way (auto) (default: the machine's setting, or reboot)")
}

// texts returns the values of a setting.
func texts[T ~string](values []T) (all []string) {
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}

// machine returns the machine that the flags describe.
func (f *hostFlags) machine(cmd *cobra.Command) (*machine.Machine, error) {
	if err := cli.CheckRoot(f.root); err != nil {
		return nil, err
	}
	limitMemory(planMemory)
	log, show := f.logTo(cmd.ErrOrStderr())
	reporter := &status.Reporter{Root: f.root, Log: log, Notify: notify, Now: time.Now, Consoles: f.consoles}
	m := &machine.Machine{
		Features:     features(),
		Host:         host.New(f.root),
		Self:         "/proc/self/exe", // the path of the file may have been replaced
		Puller:       &osimage.Puller{Root: f.root, AuthFile: f.authFile, Log: noteTo(log), Architecture: host.Architecture(), Retry: retry.Policy{Bound: f.retryFor}},
		Retry:        pivot.DefaultRetry(),
		RebootMethod: settings.RebootMethod(f.method),
		ImageKargs:   settings.ImageKargs(f.kargs),
		BoundImages:  settings.BoundImages(f.bound),
		BootLoader:   settings.BootLoader(f.loader),
		Accept:       f.accept,
		Progress: &pivot.Progress{
			Command: cmd.Name(), Journal: pivot.JournalIn(f.root), Emit: status.Tee(memoryForPull, show, reporter.Emit), Now: time.Now,
		},
	}
	if f.results != nil {
		m.Progress.Emit = status.Tee(m.Progress.Emit, f.results.result.Emit)
		f.results.follow(cmd, m)
	}
	m.Retry.Bound = f.retryFor
	// A file written in the initramfs would have no SELinux label. The started system writes
	// all metrics.
	if chosen, err := m.Host.Settings(); err == nil && chosen.Metrics != "" && f.early == nil {
		reporter.Metrics = m.Host.Path(chosen.Metrics)
	}
	f.earlyMachine(m)
	if err := m.UseEngine(f.engine); err != nil {
		return nil, err
	}
	return m, nil
}

// onMachine returns the run of a command without arguments that works on the machine.
func (f *hostFlags) onMachine(run func(cmd *cobra.Command, m *machine.Machine) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		m, err := f.machine(cmd)
		if err != nil {
			return err
		}
		return run(cmd, m)
	}
}

// noteTo returns a function that logs messages of the image reader.
func noteTo(log *logrus.Logger) func(string) {
	return func(message string) { log.Info(message) }
}

// unitTimeout is how long a unit may be silent before systemd stops it: more than the longest
// rebase by rpm-ostree, during which there are no events.
const unitTimeout = time.Hour

// notify sets the line that systemctl status shows and extends the unit's timeout, so that it
// limits only the time without progress, for images of any size. Outside of a unit it does
// nothing.
func notify(text string) {
	// Ignore the error: a status line is not essential.
	_, _ = daemon.SdNotify(false, fmt.Sprintf("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", text, unitTimeout.Microseconds()))
}
