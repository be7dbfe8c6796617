package hostpivot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pid1"
)

// Systemd runs pivot by the host's systemd. It implements node.Runner.
type Systemd struct {
	// Root is where the agent finds the host's /run: "/" on the host, or the directory of a pod below
	// which it is mounted.
	Root string
	// Program is the path of pivot on the host.
	Program string
	// Version is the version of the agent.
	Version string
	// Queries is the name of the unit that asks pivot; "": pivot-agent-query.service. Values that ask at the
	// same time need different ones.
	Queries string
	Now     func() time.Time

	ofHost string // version of pivot on the host; "": not asked for
	answer Answer
	lock   *os.File // kept open
}

// The files of the agent, below /run, so that a reboot removes them; a soft reboot does not. Only root can read them: they have
// contents of MachineConfigs.
const (
	dir         = "/run/pivot/agent"
	requestFile = dir + "/request.json"
	resultFile  = dir + "/result.json"
	configFile  = dir + "/machineconfig.json"
	planFile    = dir + "/plan-machineconfig.json"
	lockFile    = dir + "/lock"

	statusFile = "/run/pivot/status.json"
	ostreeFile = "/run/ostree-booted"
)

// Lock makes this process the only agent of the host, until it ends.
func (s *Systemd) Lock() error {
	if err := s.makeDir(); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path(lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot become this host's agent: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fault.New(fault.Unavailable, "cannot become this host's agent: another agent is at work").
				WithHint("run it as pivot-agent.service or as a pod of the DaemonSet, not as both")
		}
		return errors.Join(err, f.Close())
	}
	s.lock = f
	return nil
}

func (s *Systemd) makeDir() error {
	if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
		return fmt.Errorf("cannot work on the host: %w", err)
	}
	return os.Chmod(s.path(dir), 0o700)
}

// Look implements node.Runner.
func (s *Systemd) Look(ctx context.Context) (h Host, err error) {
	if _, err := os.Stat(s.path(ostreeFile)); errors.Is(err, os.ErrNotExist) {
		return h, ErrNotOstree
	} else if err != nil {
		return h, fmt.Errorf("cannot look at the host: %w", err)
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return h, err
	}
	defer conn.Close()
	if h.Version, err = s.handshake(ctx, conn); err != nil {
		return h, err
	}
	if h.Start, err = s.startOf(conn); err != nil {
		return h, err
	}
	if h.Run, err = s.lastRun(ctx, conn, h.Start); err != nil {
		return h, err
	}
	h.Status, err = s.status(ctx, conn, h)
	h.Watched = s.watched()
	return h, err
}

// handshake asks the host's pivot for its version, once, and refuses one that this agent does not know.
func (s *Systemd) handshake(ctx context.Context, conn *systemd.Conn) (string, error) {
	if s.ofHost == "" {
		var v struct {
			Version string `json:"version"`
		}
		if err := s.ask(ctx, conn, api.Version, &v, "version", "-o", "json"); err != nil {
			return "", err
		}
		s.ofHost = cmp.Or(v.Version, "unknown")
	}
	if !compatible(s.Version, s.ofHost) {
		version := s.ofHost
		s.ofHost = "" // it may be another one the next time
		return "", fault.New(fault.Refused, "cannot use pivot %s on the host with this agent, which is %s", version, s.Version).
			WithHint("install the agent and pivot of one release")
	}
	return s.ofHost, nil
}

// major matches the first number of a version.
var major = regexp.MustCompile(`^([0-9]+)([.+~]\S*[0-9]|$)`)

// compatible reports whether an agent can use a pivot: both are the same, of one major version, or of two that follow each
// other. Nobody updates agents and hosts at once, in whatever order. What an agent reads of a document keeps its meaning over
// two major versions, or the document gets another version, which decode refuses.
func compatible(agent, pivot string) bool {
	if agent == pivot {
		return true
	}
	a, known := majorOf(agent)
	p, also := majorOf(pivot)
	return known && also && max(a, p)-min(a, p) <= 1
}

func majorOf(version string) (int, bool) {
	m := major.FindStringSubmatch(version)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}

// status returns the status of the host, of which the start and the run are known.
func (s *Systemd) status(ctx context.Context, conn *systemd.Conn, h Host) (Status, error) {
	var run func() (Status, error)
	if h.Run.State == RunRunning {
		run = s.statusOfRun
	}
	return s.answer.Status(h.Start, run, func() (status Status, err error) {
		err = s.ask(ctx, conn, api.Status, &status, "status", "-o", "json")
		return status, err
	})
}

// statusOfRun reads the file that a run of pivot writes.
func (s *Systemd) statusOfRun() (status Status, err error) {
	data, err := s.read(statusFile)
	if err != nil {
		return status, err
	}
	err = decode(data, api.Status, &status)
	return status, err
}

// ask runs a command of pivot that changes nothing, and decodes its document. Its exit status does not
// matter if there is a document.
func (s *Systemd) ask(ctx context.Context, conn *systemd.Conn, kind api.Kind, into any, args ...string) error {
	data, err := s.query(ctx, conn, args...)
	if err != nil {
		return err
	}
	var failed Result
	if decode(data, api.Result, &failed) == nil && failed.Error != nil {
		return failed.Error
	}
	return decode(data, kind, into)
}

// endLimit is how long the end of a question may take when the agent itself is stopped. It is less than the time that
// kubelet gives to a pod.
const endLimit = 10 * time.Second

// query runs a command of pivot as a unit, and returns its output. A query of an agent that was killed is
// replaced.
func (s *Systemd) query(ctx context.Context, conn *systemd.Conn, args ...string) ([]byte, error) {
	const limit, poll = 15 * time.Minute, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	defer func() { // also if it is not known whether it was started
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		_ = s.endUnit(ctx, conn, s.queries())
	}()
	err := s.startUnit(ctx, conn, service{
		name: s.queries(), description: "A question of the node agent to pivot: " + args[0],
		args: append([]string{s.Program}, args...), output: s.answerFile(), keep: true,
	})
	if err != nil {
		return nil, err
	}
	for {
		u, err := stateOf(ctx, conn, s.queries())
		if err != nil {
			return nil, err
		}
		if !u.running {
			return s.output(args[0], u)
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot ask pivot %s: %w", args[0], ctx.Err())
		}
	}
}

// queries returns the name of the unit that asks pivot.
func (s *Systemd) queries() string { return cmp.Or(s.Queries, queryUnit) }

// answerFile returns the file of the host with the output of that unit.
func (s *Systemd) answerFile() string { return dir + "/" + s.queries() + ".json" }

// output returns the output of a query that has ended.
func (s *Systemd) output(command string, u unit) ([]byte, error) {
	data, err := s.read(s.answerFile())
	if err == nil && len(data) > 0 {
		return data, nil
	}
	if u.failure == "" {
		u.failure = "it has no output"
	}
	return nil, &Failure{Class: fault.Internal.String(), Message: fmt.Sprintf("cannot ask pivot %s on the host: %s", command, u.failure), Hint: "journalctl -u " + s.queries() + " on the host says more"}
}

// read reads a file of the host.
func (s *Systemd) read(onHost string) ([]byte, error) {
	f, err := os.OpenFile(s.path(onHost), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readDocument(f)
}

// write writes a file of the host that only root can read.
func (s *Systemd) write(onHost string, data []byte) error {
	if err := s.makeDir(); err != nil {
		return err
	}
	return hostfiles.Replace(hostfiles.OS{}, s.path(onHost), data, 0o600)
}

// Tell implements node.Runner.
func (s *Systemd) Tell(w *api.Wanted) error { return api.WriteWanted(s.Root, w) }

// Plan implements node.Runner.
func (s *Systemd) Plan(ctx context.Context, r Request) (plan Plan, err error) {
	if err := s.write(planFile, r.Data); err != nil {
		return plan, err
	}
	defer func() { _ = os.Remove(s.path(planFile)) }()
	conn, err := s.connect(ctx)
	if err != nil {
		return plan, err
	}
	defer conn.Close()
	return plan, s.ask(ctx, conn, api.Plan, &plan, "apply", "--dry-run", "--from-downloaded", "--unsupported="+r.Unsupported, "-o", "json", planFile)
}

// Verify implements node.Runner.
func (s *Systemd) Verify(ctx context.Context) (v Verify, err error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return v, err
	}
	defer conn.Close()
	return v, s.ask(ctx, conn, api.Verify, &v, "verify", "-o", "json")
}

// startOf returns the start of the host's system.
func (s *Systemd) startOf(conn *systemd.Conn) (pid1.StartID, error) {
	boot, err := os.ReadFile(pid1.BootIDFile)
	if err != nil {
		return "", fmt.Errorf("cannot look at the host: %w", err)
	}
	count, err := pid1.SoftReboots(conn.GetManagerProperty)
	if err != nil {
		return "", fault.New(fault.Unavailable, "cannot look at the host: %w", err)
	}
	id, err := pid1.RunningStart(strings.TrimSpace(string(boot)), count, s.path(pid1.EnteredMark))
	if err != nil {
		return "", fmt.Errorf("cannot look at the host: %w", err)
	}
	return id, nil
}

// lastRun returns the last run that an agent has started in the given start of the system. A soft reboot keeps
// /run, so the request of an earlier start may be there: it is over.
func (s *Systemd) lastRun(ctx context.Context, conn *systemd.Conn, now pid1.StartID) (r Run, err error) {
	data, err := s.read(requestFile)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r.Request)
	}
	if err != nil {
		return Run{}, fmt.Errorf("cannot read what an agent has asked for, %s: %w; remove the file", filepath.Base(requestFile), err)
	}
	if of := r.Request.Of; of != "" && of != now {
		s.dropConfig()
		return Run{}, nil
	}
	u, err := stateOf(ctx, conn, runUnit)
	if err != nil {
		return Run{}, err
	}
	if u.running {
		r.State = RunRunning
		return r, nil
	}
	s.dropConfig()
	return s.ended(r, u), nil
}

// ended completes a run that is not running.
func (s *Systemd) ended(r Run, u unit) Run {
	r.State = RunEnded
	if result, at, err := s.result(); err == nil {
		r.Result, r.Ended, r.Failure, r.Rebooting = &result, at, result.Error, result.Outcome == "rebooting"
		return r
	}
	if !u.loaded {
		return Run{} // the agent was killed before it has started the unit
	}
	r.Failure = &Failure{
		Class:   fault.Internal.String(),
		Message: fmt.Sprintf("pivot has ended on the host without a result: %s", cmp.Or(u.failure, "no output")),
		Hint:    "journalctl -u " + runUnit + " on the host says more",
	}
	return r
}

// result returns the result of the last run, and when it was written.
func (s *Systemd) result() (r Result, at time.Time, err error) {
	data, err := s.read(resultFile)
	if err != nil {
		return r, at, err
	}
	info, err := os.Stat(s.path(resultFile))
	if err != nil {
		return r, at, err
	}
	err = decode(data, api.Result, &r)
	return r, info.ModTime(), err
}

// dropConfig removes the MachineConfig of a run that has ended.
func (s *Systemd) dropConfig() { _ = os.Remove(s.path(configFile)) }

// Start implements node.Runner.
func (s *Systemd) Start(ctx context.Context, r Request) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if u, err := stateOf(ctx, conn, runUnit); err != nil || u.running {
		return cmp.Or(err, error(fault.New(fault.Unavailable, "cannot start pivot on the host: %s is running", runUnit)))
	}
	r.ID = s.Now().UTC().Format(time.RFC3339Nano)
	if r.Of, err = s.startOf(conn); err != nil {
		return err
	}
	request, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := s.write(configFile, r.Data); err != nil {
		return err
	}
	if err := s.endUnit(ctx, conn, runUnit); err != nil { // with its result, so that it is not taken for the new one's
		return err
	}
	if err := os.Remove(s.path(resultFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := s.write(requestFile, request); err != nil {
		return err
	}
	return s.startUnit(ctx, conn, service{
		name: runUnit, description: fmt.Sprintf("pivot for the node agent: %s %s", r.Verb, r.Config),
		args: append([]string{s.Program}, r.arguments()...), output: resultFile, keep: true,
	})
}

// arguments returns pivot's command line. The windows and the fleet's lock of the host's settings are
// for machines outside of a cluster: here the cluster says when a machine may change.
func (r Request) arguments() []string {
	switch r.Verb {
	case Revert:
		return []string{"rollback", "-o", "json"}
	case HandBack:
		return []string{"hand-back", "-o", "json"}
	case Download:
		return []string{"apply", "--download-only", "--unsupported=" + r.Unsupported, "-o", "json", configFile}
	}
	args := []string{"apply", "--window=none", "--fleetlock=none", "--unsupported=" + r.Unsupported}
	if r.Downloaded {
		args = append(args, "--from-downloaded")
	}
	switch {
	case !r.Reboot:
		args = append(args, "--reboot=never")
	case r.Try > 0:
		args = append(args, "--try="+r.Try.String(), "--confirm=auto")
	default:
		args = append(args, "--reboot=if-needed")
	}
	return append(args, "-o", "json", configFile)
}

// Stop implements node.Runner.
func (s *Systemd) Stop(ctx context.Context) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return s.endUnit(ctx, conn, runUnit)
}
