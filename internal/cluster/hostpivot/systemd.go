package hostpivot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/pid1"
)

// The units that the agent starts. Their names never change, so that an agent finds what the one before
// it has started.
const (
	runUnit   = "pivot-agent-run.service"
	queryUnit = "pivot-agent-query.service"
	watchUnit = "pivot-agent-watch.service"
)

// unit is the state of a unit, as far as it matters.
type unit struct {
	loaded  bool
	running bool // it is starting, running or stopping
	failure string
}

// service is a command to be run as a unit.
type service struct {
	name, description string
	args              []string
	output            string // path on the host of the file that gets the standard output; "": the journal
	keep              bool   // whether the unit stays after the command has succeeded
	differs           bool   // whether the exit status of a machine that differs is no failure
}

// connect connects to the host's systemd by its private socket, which needs no message bus. The connection outlives ctx:
// what was begun by then is ended by it.
func (s *Systemd) connect(ctx context.Context) (*systemd.Conn, error) {
	socket := s.path(pid1.Socket)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	connected := context.AfterFunc(ctx, end)
	conn, err := pid1.Dial(life, socket)
	if !connected() { // ctx has ended meanwhile, which is the cause of any error
		if err == nil {
			conn.Close()
		}
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, fault.New(fault.Unavailable, "cannot reach the host's systemd at %s: %w", socket, err).
			WithHint("the agent must run as root, with the host's /run")
	}
	return conn, nil
}

// stateOf returns the state of a unit.
func stateOf(ctx context.Context, conn *systemd.Conn, name string) (u unit, err error) {
	properties, err := conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return u, fault.New(fault.Unavailable, "cannot ask the host's systemd about %s: %w", name, err)
	}
	text := func(property string) string { value, _ := properties[property].(string); return value }
	u.loaded = text("LoadState") == "loaded"
	switch text("ActiveState") {
	case "active":
		u.running = text("SubState") != "exited"
	case "activating", "deactivating", "reloading":
		u.running = true
	case "failed":
		u.failure = fmt.Sprintf("%s (status %v)", text("Result"), properties["ExecMainStatus"])
	}
	return u, nil
}

// startUnit starts a command as a unit, in place of what is left of an earlier one. It returns as soon as the
// command runs.
func (s *Systemd) startUnit(ctx context.Context, conn *systemd.Conn, what service) error {
	if err := s.endUnit(ctx, conn, what.name); err != nil {
		return err
	}
	if what.output != "" {
		if err := os.Remove(s.path(what.output)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot run pivot on the host: %w", err)
		}
	}
	job := make(chan string, 1)
	_, err := conn.StartTransientUnitContext(ctx, what.name, "replace", what.properties(), job)
	if err != nil {
		return fault.New(fault.Unavailable, "cannot run pivot on the host as %s: %w", what.name, err)
	}
	result, err := jobResult(ctx, conn, job)
	if err == nil && result != "done" {
		err = fault.New(fault.Unavailable, "cannot run pivot on the host as %s: the job has ended as %s", what.name, result)
	}
	return err
}

// endUnit stops a unit, which systemd then forgets. It is no error if there is none.
func (s *Systemd) endUnit(ctx context.Context, conn *systemd.Conn, name string) error {
	_ = conn.ResetFailedUnitContext(ctx, name) // it fails if there is nothing to reset
	u, err := stateOf(ctx, conn, name)
	if err != nil || !u.loaded {
		return err
	}
	job := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", job); err != nil {
		if gone, ok := errors.AsType[dbus.Error](err); ok && gone.Name == "org.freedesktop.systemd1.NoSuchUnit" {
			return nil
		}
		return fault.New(fault.Unavailable, "cannot stop %s on the host: %w", name, err)
	}
	_, err = jobResult(ctx, conn, job)
	return err
}

// jobResult waits for the result of a job. None comes over a connection that has ended, as when systemd executes itself
// again.
func jobResult(ctx context.Context, conn *systemd.Conn, job <-chan string) (string, error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case result := <-job:
			return result, nil
		case <-ctx.Done():
			return "", ctx.Err()
		case <-look.C:
			if !conn.Connected() {
				return "", fault.New(fault.Unavailable, "the host's systemd has ended the connection")
			}
		}
	}
}

// properties returns the properties of the unit. They are those of the units that pivot installs: it
// stops at its next safe point, and uses the cluster's proxy.
func (w service) properties() []systemd.Property {
	const stop = 2 * time.Minute
	property := func(name string, value any) systemd.Property {
		return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
	}
	type optional struct {
		Path  string
		Maybe bool
	}
	properties := []systemd.Property{
		systemd.PropDescription(w.description),
		systemd.PropType("simple"),
		systemd.PropExecStart(w.args, false),
		systemd.PropRemainAfterExit(w.keep),
		property("StandardError", "journal"), // by default it would go into the file, too
		property("EnvironmentFiles", []optional{{"/etc/mco/proxy.env", true}, {"/etc/pivot/proxy.env", true}}),
		property("KillMode", "mixed"),
		property("TimeoutStopUSec", uint64(stop/time.Microsecond)),
	}
	if w.output != "" {
		properties = append(properties, property("StandardOutputFile", w.output))
	}
	if w.differs {
		properties = append(properties, property("SuccessExitStatus", exitStatuses{Statuses: []int32{int32(fault.BadInput.ExitStatus())}}))
	}
	return properties
}

// exitStatuses is the type of systemd's property SuccessExitStatus.
type exitStatuses struct{ Statuses, Signals []int32 }

// path returns where the agent finds a path of the host.
func (s *Systemd) path(onHost string) string { return filepath.Join(s.Root, onHost) }
