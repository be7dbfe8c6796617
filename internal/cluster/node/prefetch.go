package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
)

// A node can be asked, by the annotation api.Download, to download a MachineConfig before it is its turn to change. It
// does so while it is at rest. Nothing else depends on that: the NodeSystem names a download that fails, and the node
// stays what it is. Whoever has asked decides whether to ask again.

// early is what the agent remembers of the MachineConfig that it was last asked to download.
type early struct {
	config  string
	asked   bool   // the node has the annotation
	data    []byte // as JSON; nil: not read, or not needed any more
	digest  string // of data; "": it was not read
	failure string // why the download has failed; "": it has not
	cannot  string // the names of the verdicts in failure that the node does not say yet
	failed  time.Time
	judged  string // ID of the run with a known result
}

// observePrefetch finds out whether there is something to download before its turn.
func (a *Agent) observePrefetch(ctx context.Context, s *situation) error {
	e, asked := &a.early, askedFor(s)
	switch {
	case asked == "" || asked == a.change.config: // what is known of the last download stays published
		e.asked = false
		return nil
	case !e.asked || asked != e.config:
		*e = early{config: asked, asked: true}
		if s.host.Run.State == hostpivot.RunEnded { // before it was asked for
			e.judged = s.host.Run.Request.ID
		}
	}
	if err := a.readEarly(ctx, s.host.Status); err != nil {
		return err
	}
	a.judgeEarly(ctx, s)
	s.Prefetch = e.failure == "" && !s.host.Status.HasDownloaded(e.digest)
	return nil
}

// askedFor returns the MachineConfig that a node is asked to download; "" if it has to do something else first.
func askedFor(s *situation) string {
	if s.System != SystemTarget {
		return ""
	}
	return s.node.Annotations[api.Download]
}

// readEarly reads the MachineConfig, and keeps it until it is downloaded.
func (a *Agent) readEarly(ctx context.Context, host hostpivot.Status) error {
	e := &a.early
	if e.digest != "" && host.HasDownloaded(e.digest) {
		e.data = nil
		return nil
	}
	if e.failure != "" || e.data != nil {
		return nil
	}
	data, err := a.Cluster.MachineConfig(ctx, e.config)
	if errors.Is(err, ErrNoMachineConfig) {
		e.failure, e.failed = fmt.Sprintf("cannot read the MachineConfig %s: %v", e.config, err), a.Now()
		return nil
	}
	if err == nil {
		e.data, e.digest = data, hostpivot.DigestOf(data)
	}
	return err
}

// judgeEarly takes note of the result of the download, once.
func (a *Agent) judgeEarly(ctx context.Context, s *situation) {
	e, run := &a.early, s.host.Run
	if run.State != hostpivot.RunEnded || !run.Request.Early || run.Request.Config != e.config || run.Request.ID == e.judged {
		return
	}
	e.judged = run.Request.ID
	switch {
	case run.Failure != nil:
		e.failure, e.cannot = run.Failure.WithHint(), strings.Join(run.Failure.Verdicts, ",")
	case !s.host.Status.HasDownloaded(e.digest):
		e.failure = "pivot has ended the download without an error, but the host does not have it; pivot status on the host says more"
	default:
		return
	}
	e.failure, e.failed, e.data = api.BoundedReason(e.failure), a.Now(), nil
	a.event(ctx, s.node, Event{Reason: api.EventDownloadFailed, Warning: true, Message: fmt.Sprintf("cannot download %s before its turn: %s", e.config, e.failure)})
}

// actPrefetch starts the download.
func (a *Agent) actPrefetch(ctx context.Context) error {
	e := a.early
	return a.Runner.Start(ctx, hostpivot.Request{
		Verb: hostpivot.Download, Early: true, Config: e.config, Digest: e.digest, Data: e.data, Unsupported: a.Policy.Unsupported,
	})
}

// download returns the result of the last download that was asked for; nil: there is none that still matters.
func (a *Agent) download(host hostpivot.Status) *api.EarlyDownload {
	e := a.early
	done := e.digest != "" && host.HasDownloaded(e.digest)
	switch {
	case e.config == a.change.config:
		return nil
	case done:
		return &api.EarlyDownload{Config: e.config}
	case e.failure != "":
		return &api.EarlyDownload{Config: e.config, Failure: e.failure, FailedAt: e.failed.UTC().Truncate(time.Second)}
	}
	return nil
}
