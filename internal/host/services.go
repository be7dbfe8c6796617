package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Services controls the services of the running system. Reload and Restart return when systemd
// has finished the job.
type Services interface {
	DaemonReload(ctx context.Context) error
	Reload(ctx context.Context, unit string) error
	Restart(ctx context.Context, unit string) error // starts one that does not run
	State(ctx context.Context, unit string) (UnitState, error)
	// Starting reports whether the system is still coming up.
	Starting(ctx context.Context) (bool, error)
	// UpdateTrust updates the store of trusted certificates, as the unit coreos-update-ca-trust.service does
	// on systems that have it.
	UpdateTrust(ctx context.Context) error
}

// UnitState has properties of a unit with systemd's values (org.freedesktop.systemd1(5)).
type UnitState struct {
	ID        string // Id, the unit's own name; it may have others
	Load      string // LoadState: loaded, masked, not-found, …
	Active    string // ActiveState
	Sub       string // SubState
	Result    string // of the last run: success, …
	Type      string // of a service: oneshot, …
	Condition bool   // whether its conditions were met when it was last started
	Queued    bool   // a job waits for it, as one that will start it
}

// Runs reports whether a unit is running, starting or stopping.
func (s UnitState) Runs() bool { return s.Active != "inactive" && s.Active != "failed" }

// Healthy reports whether a unit is as it should be after a reload or restart.
func (s UnitState) Healthy() bool {
	if s.Type == "oneshot" && s.Active == "inactive" {
		return s.Result == "success" && s.Condition
	}
	return slices.Contains([]string{"active", "reloading", "refreshing"}, s.Active)
}

// Services controls the services of the running system through systemctl; see Runs.
func (h *Host) Services() Services { return systemctl{h.Run} }

// systemctl implements Services with systemctl(1), which waits for systemd's jobs and
// reports why one failed.
type systemctl struct {
	run func(ctx context.Context, argv ...string) ([]byte, error)
}

// jobTimeout limits a call for one unit. systemd has limits of its own, but a unit can disable
// them.
const jobTimeout = 10 * time.Minute

func (s systemctl) call(ctx context.Context, argv ...string) ([]byte, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("it takes longer than %s", jobTimeout))
	defer cancel()
	return s.run(bounded, argv...)
}

func (s systemctl) do(ctx context.Context, argv ...string) error {
	_, err := s.call(ctx, append([]string{"systemctl", "--no-ask-password"}, argv...)...)
	return err
}

// DaemonReload implements Services.
func (s systemctl) DaemonReload(ctx context.Context) error { return s.do(ctx, "daemon-reload") }

// Reload implements Services.
func (s systemctl) Reload(ctx context.Context, unit string) error {
	return s.do(ctx, "reload", "--", unit)
}

// Restart implements Services.
func (s systemctl) Restart(ctx context.Context, unit string) error {
	return s.do(ctx, "restart", "--", unit)
}

// State implements Services.
func (s systemctl) State(ctx context.Context, unit string) (UnitState, error) {
	p, err := s.show(ctx, "Id,LoadState,ActiveState,SubState,Result,Type,ConditionResult,Job", "--", unit)
	return UnitState{
		ID: p["Id"], Load: p["LoadState"], Active: p["ActiveState"], Sub: p["SubState"], Result: p["Result"], Type: p["Type"], Condition: p["ConditionResult"] == "yes",
		Queued: p["Job"] != "" && p["Job"] != "0",
	}, err
}

// Starting implements Services.
func (s systemctl) Starting(ctx context.Context) (bool, error) {
	p, err := s.show(ctx, "SystemState")
	return p["SystemState"] == "initializing" || p["SystemState"] == "starting", err
}

// UpdateTrust implements Services.
func (s systemctl) UpdateTrust(ctx context.Context) error {
	_, err := s.call(ctx, "update-ca-trust")
	return err
}

// show returns properties of a unit, or of systemd itself.
func (s systemctl) show(ctx context.Context, names string, unit ...string) (map[string]string, error) {
	out, err := s.call(ctx, append([]string{"systemctl", "show", "--property=" + names}, unit...)...)
	properties := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		properties[name] = value
	}
	return properties, err
}
