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

// ControlPath is the file by which a test tells the stand-in what it is and what
// shall happen to it. Without it it is the newest release and nothing happens.
const ControlPath = "/etc/rpm-ostree-standin.json"

// Control is the content of that file.
type Control struct {
	Version      string   `json:"version,omitempty"`      // of rpm-ostree; "": newest
	NoContainer  bool     `json:"noContainer,omitempty"`  // built without the feature
	Driver       *Driver  `json:"driver,omitempty"`       // an update driver that is registered
	Transaction  []string `json:"transaction,omitempty"`  // method, client and path of another's transaction
	BusyCalls    int      `json:"busyCalls,omitempty"`    // how many calls find it running
	DaemonFails  int      `json:"daemonFails,omitempty"`  // how many first calls find that the daemon cannot be started
	Unconfigured string   `json:"unconfigured,omitempty"` // the origin's unconfigured-state
	Faults       []Fault  `json:"faults,omitempty"`

	root string
	verb string // of this call
	nth  int    // how often the verb was called, this call included
	all  int    // how often any was
}

// Driver is an update driver such as Zincati.
type Driver struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Active bool   `json:"active"` // its unit runs
}

// Fault is what happens to one call.
type Fault struct {
	Verb    string `json:"verb"`
	Nth     int    `json:"nth,omitempty"` // of the verb's calls; 0: each
	At      string `json:"at"`            // start, locked, staged or end
	Do      string `json:"do"`            // fail, hang or die
	Message string `json:"message,omitempty"`
}

const newest = "2026.2"

// Write makes c the control file of the host with that root directory.
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

// takesContainers: native containers came with v2022.1, behind --experimental.
func (c *Control) takesContainers() bool {
	return !c.NoContainer && c.release().since(release{2022, 1})
}

// Calls are the calls that the stand-in had since the host booted, as their arguments.
func Calls(root string) ([]string, error) {
	data, err := os.ReadFile(runFile(root, "calls"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.Collect(strings.Lines(string(data))), err
}

// count notes the call.
func (c *Control) count(args []string) error {
	file := runFile(c.root, "calls")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, strings.Join(args, " "))
	if err := errors.Join(err, f.Close()); err != nil {
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

// fault lets happen what is to happen to this call at that point.
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

// startDaemon plays the start of an idle daemon (rust/src/client.rs, client_start_daemon).
func (c *call) startDaemon() error {
	if c.control.all > c.control.DaemonFails {
		return nil
	}
	fmt.Fprintln(c.stderr, "Job for rpm-ostreed.service failed because the control process exited with error code.")
	return failf("exit status: 1")
}

// begin is what each operation that changes something checks first.
func (c *call) begin() error {
	if c.transaction() != nil {
		return failf("Transaction in progress: %s\n You can cancel the current transaction with `rpm-ostree cancel`", c.control.Transaction[0])
	}
	return c.lockFree()
}

// transaction is that of somebody else, while it runs.
func (c *call) transaction() []string {
	if c.control.all > c.control.BusyCalls {
		return nil
	}
	return c.control.Transaction
}
