// Package rpmostree is a stand-in for rpm-ostree: the part of its command line that pivot and the
// tests of the engines use, implemented with the real libostree command line. Machines can boot
// the deployments that it stages.
//
// Its behaviour follows the sources of the real rpm-ostree and experiments with it. It has options and features by
// version, messages and exit statuses, and both forms of the finalization lock. Each operation starts from the pending
// deployment, image refs that no deployment names are removed, and the registry is contacted even for an image in the
// repository. The client does the same after the daemon has finished. Unlike the real one its command line does the
// daemon's work itself, and its state is in the control file. Daemon is the interface of the daemon for others.
//
// Layering: a deployment with an origin that requests or removes packages gets its own commit on top of the base, with
// the files of real RPM packages. Scripts, dependencies, triggers and dracut are not simulated; a kernel package
// includes its initramfs. The package database is a JSON file.
package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"machine-pivot/internal/ostree"
)

// Standin is rpm-ostree on one host.
type Standin struct {
	Root   string // root directory of the host
	Ostree func(ctx context.Context, argv ...string) ([]byte, error)
	// Reboot is called by finalize-deployment.
	Reboot func(ctx context.Context) error
	Daemon *Daemon // runs beside the calls; nil if there is none
}

// failure is an error message of the real program.
type failure string

func (f failure) Error() string { return string(f) }

func failf(format string, args ...any) error { return failure(fmt.Sprintf(format, args...)) }

// The exit statuses.
const (
	exitDone      = 0
	exitFailed    = 1
	exitUnchanged = 77 // only with --unchanged-exit-77
)

// ErrDied is the error of a call that dies, as the control file requires.
var ErrDied = errors.New("signal: killed")

// call is one call of the program.
type call struct {
	*Standin
	ctx     context.Context
	control *Control
	options options
	stdout  io.Writer
	stderr  io.Writer
	running []string // transaction of another client at the daemon
}

// Main runs one call with the arguments after the program's name. It returns the exit status, or
// ErrDied if the call must end as if it were killed.
func (s *Standin) Main(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	control, err := loadControl(s.Root)
	if err != nil {
		return exitFailed, err
	}
	c := &call{Standin: s, ctx: ctx, control: control, stdout: stdout, stderr: stderr, running: s.Daemon.transaction()}
	status, err := c.run(args)
	switch {
	case errors.Is(err, ErrDied):
		return 0, ErrDied
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return 0, err
	case err != nil:
		// rust/src/main.rs: one line, status 1.
		fmt.Fprintf(stderr, "error: %v\n", err)
		return exitFailed, nil
	}
	return status, nil
}

func (c *call) run(args []string) (int, error) {
	if len(args) == 0 {
		return exitFailed, failf("No command specified")
	}
	if args[0] == "--version" {
		c.version()
		return exitDone, nil
	}
	verb, ok := verbs[args[0]]
	if !ok {
		return exitFailed, failf("Unknown command '%s'", args[0])
	}
	var err error
	if c.options, err = parseOptions(verb.options, c.control.release(), args[1:]); err != nil {
		return exitFailed, err
	}
	if err := c.control.count(args); err != nil {
		return exitFailed, err
	}
	if err := c.fault("start"); err != nil {
		return exitFailed, err
	}
	if err := c.startDaemon(); err != nil {
		return exitFailed, err
	}
	status, err := verb.run(c)
	if err == nil {
		err = c.fault("end")
	}
	return status, err
}

// verb is a command with its options and its implementation.
type verb struct {
	options map[string]option
	run     func(*call) (int, error)
}

var verbs = map[string]verb{
	"status":              {statusOptions, (*call).status},
	"kargs":               {kargsOptions, (*call).kargs},
	"rebase":              {rebaseOptions, (*call).rebase},
	"cleanup":             {cleanupOptions, (*call).cleanup},
	"rollback":            {with(map[string]option{}, "reboot", "r"), (*call).rollback},
	"finalize-deployment": {finalizeOptions, (*call).finalize},
	"install":             {packageOptions, (*call).install},
	"uninstall":           {packageOptions, (*call).uninstall},
	"override":            {overrideOptions, (*call).override},
	"db":                  {dbOptions, (*call).db},
}

// version prints the output of --version (src/app/libmain.cxx).
func (c *call) version() {
	fmt.Fprintf(c.stdout, "rpm-ostree:\n Version: '%s'\n Git: 0000000\n Features:\n  - rust\n  - compose\n", c.control.version())
	if c.control.takesContainers() {
		fmt.Fprint(c.stdout, "  - container\n")
	}
	fmt.Fprint(c.stdout, "  - fedora-integration\n")
}

func (c *call) sysroot() *ostree.Sysroot { return ostree.OpenSysroot(c.Root) }

// release is a version of the form YEAR.NUMBER.
type release struct{ year, number int }

func parseRelease(text string) release {
	year, number, _ := strings.Cut(text, ".")
	number, _, _ = strings.Cut(number, ".")
	y, _ := strconv.Atoi(year)
	n, _ := strconv.Atoi(number)
	return release{y, n}
}

// since reports whether r is other or a later release.
func (r release) since(other release) bool {
	return r.year > other.year || r.year == other.year && r.number >= other.number
}

// runFile returns the path of a file that the stand-in keeps until the next boot.
func runFile(root, name string) string { return filepath.Join(root, "run/rpm-ostree-standin", name) }
