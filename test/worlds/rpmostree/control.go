package rpmostree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ControlPath is the file with which a test configures the stand-in's release and faults. Without
// it the stand-in is the newest release and has no faults.
const ControlPath = "/etc/rpm-ostree-standin.json"

// Control is the content of the file at ControlPath.
type Control struct {
	Version      string   `json:"version,omitempty"`      // of rpm-ostree; "" is the newest
	NoContainer  bool     `json:"noContainer,omitempty"`  // built without the feature
	NoBus        bool     `json:"noBus,omitempty"`        // no message bus listens
	NoDaemon     bool     `json:"noDaemon,omitempty"`     // the message bus knows no such service
	NoUpdate     bool     `json:"noUpdate,omitempty"`     // the daemon has no UpdateDeployment
	Driver       *Driver  `json:"driver,omitempty"`       // a registered update driver
	Transaction  []string `json:"transaction,omitempty"`  // method, client and path of another client's transaction
	BusyCalls    int      `json:"busyCalls,omitempty"`    // number of calls during which Transaction runs
	DaemonFails  int      `json:"daemonFails,omitempty"`  // number of first calls for which the daemon fails to start
	Unconfigured string   `json:"unconfigured,omitempty"` // the origin's unconfigured-state
	Faults       []Fault  `json:"faults,omitempty"`

	root string
	verb string // of this call
	nth  int    // number of calls of the verb, including this one
	all  int    // number of all calls
}

// Driver is an update driver such as Zincati.
type Driver struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Active bool   `json:"active"` // its unit is active
}

// Fault is a fault that is injected into a call.
type Fault struct {
	Verb    string `json:"verb"`          // or the method, UpdateDeployment
	Nth     int    `json:"nth,omitempty"` // of the verb's calls, from 1; 0 is every call
	At      string `json:"at"`            // start, locked, staged or end
	Do      string `json:"do"`            // fail, hang or die
	Message string `json:"message,omitempty"`
}

const newest = "2026.2"

// Write writes c to the control file of the host with the given root directory.
func (c Control) Write(root string) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, ControlPath), data, 0o644)
}

func loadControl(root string) (*Control, error) {
	c := &Control{root: root}
	data, err := os.ReadFile(filepath.Join(root, ControlPath))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	return c, json.Unmarshal(data, c)
}

func (c *Control) version() string {
	if c.Version == "" {
		return newest
	}
	return c.Version
}

func (c *Control) release() release { return parseRelease(c.version()) }

// takesContainers reports whether native containers are supported: since v2022.1, with
// --experimental.
func (c *Control) takesContainers() bool {
	return !c.NoContainer && c.release().since(release{2022, 1})
}

// Calls returns the calls of the stand-in since the host booted, one line of arguments for each.
// Requests to the daemon by others than the command line are among them, with the method in the
// place of the verb, and the modifiers.
func Calls(root string) ([]string, error) { return lines(root, "calls") }

// Assemblies returns the deployments that were assembled from a base and packages since the host booted. Each is one
// line of packages, with a "-" before those removed from the base. On a real machine, assembling one takes minutes.
func Assemblies(root string) ([]string, error) { return lines(root, "assemblies") }

func lines(root, name string) ([]string, error) {
	data, err := os.ReadFile(runFile(root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.Collect(strings.Lines(string(data))), err
}

// note appends a line to a file that is kept until the next boot.
func (c *Control) note(name, line string) error {
	file := runFile(c.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// count records a call.
func (c *Control) count(args []string) error {
	if err := c.note("calls", strings.Join(args, " ")); err != nil {
		return err
	}
	calls, err := Calls(c.root)
	c.verb, c.all = args[0], len(calls)
	for _, call := range calls {
		if verb, _, _ := strings.Cut(strings.TrimSpace(call), " "); verb == c.verb {
			c.nth++
		}
	}
	return err
}

// fault injects the fault for this call at the given point, if there is one.
func (c *call) fault(at string) error {
	for _, f := range c.control.Faults {
		if f.Verb != c.control.verb || f.Nth != 0 && f.Nth != c.control.nth || f.At != at {
			continue
		}
		switch f.Do {
		case "fail":
			return failf("%s", f.Message)
		case "hang":
			<-c.ctx.Done()
			return c.ctx.Err()
		case "die":
			return ErrDied
		}
		return fmt.Errorf("bad fault %q in %s", f.Do, ControlPath)
	}
	return nil
}

// startDaemon simulates the start of an idle daemon (rust/src/client.rs, client_start_daemon).
func (c *call) startDaemon() error {
	if c.control.all > c.control.DaemonFails {
		return nil
	}
	fmt.Fprintln(c.stderr, "Job for rpm-ostreed.service failed because the control process exited with error code.")
	return failf("exit status: 1")
}

// begin does the checks that each changing operation does first.
func (c *call) begin() error {
	if c.transaction() != nil {
		return busy(c.transaction()[0])
	}
	return c.lockFree()
}

// busy is the error while a transaction runs (rpmostreed-sysroot.cxx).
func busy(title string) error {
	return failf("Transaction in progress: %s\n You can cancel the current transaction with `rpm-ostree cancel`", title)
}

// transaction returns another client's transaction while it runs.
func (c *call) transaction() []string {
	if c.control.all <= c.control.BusyCalls {
		return c.control.Transaction
	}
	return c.running
}
