package firstboot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"machine-pivot/fault"
	"machine-pivot/host"
	"machine-pivot/osimage"
	"machine-pivot/pivot"
)

// Machine is what a pivot works on and with.
type Machine struct {
	Host     *host.Host
	Puller   *osimage.Puller
	Engine   pivot.Engine
	Retry    pivot.Retry
	Progress *pivot.Progress
}

// image parses a reference and pins it: a tag is looked up once, now, so that
// what is planned, pulled and proven is the same content.
func (m *Machine) image(ctx context.Context, text string) (pivot.Image, error) {
	ref, err := osimage.ParseReference(text)
	if err != nil {
		return pivot.Image{}, fault.New(fault.BadInput, "%w", err)
	}
	if d := ref.Digest(); d != "" {
		return pivot.Image{Reference: ref.String(), Digest: d}, nil
	}
	var found osimage.Image
	err = m.Retry.Do(ctx, m.Progress.Waiting, func(ctx context.Context) (err error) {
		found, err = m.Puller.Resolve(ctx, ref)
		return err
	})
	if err != nil {
		return pivot.Image{}, err
	}
	return pivot.Image{Reference: found.Reference.String(), Digest: found.Digest}, nil
}

// apply carries out the plan that leads from state to target and reboots.
func (m *Machine) apply(ctx context.Context, state pivot.State, target pivot.Target, attempt int) error {
	if err := m.checkEngine(ctx, state, target); err != nil {
		return err
	}
	t := pivot.Transaction{Images: m, Engine: m.Engine, Retry: m.Retry, Progress: m.Progress}
	if err := t.Run(ctx, state, target, attempt); err != nil {
		return err
	}
	m.release()
	return nil
}

// release gives up the ref that kept an imported commit: its deployment keeps it
// now. Without that the repository would keep each system that ever was. The
// machine is well also if it fails, so that is only noted.
func (m *Machine) release() {
	commit := m.Progress.Record.Target.Image.Commit
	if commit == "" {
		return
	}
	repo, view, err := m.Host.OpenRepo()
	if err == nil {
		err = errors.Join(repo.DeleteRef(osimage.KeepAliveRef(commit)), view.Close())
	}
	if err != nil {
		m.Progress.Note(fmt.Sprintf("cannot give up the ref that kept commit %s: %v", commit, err))
	}
}

// decide holds what was meant against what is true.
func (m *Machine) decide(state pivot.State, target pivot.Target) pivot.Decision {
	record := m.Progress.Record
	return pivot.Decide(record, pivot.Facts{
		SameBoot:        record.BootID == state.BootID,
		SameTarget:      record.Target.Same(target),
		AtTarget:        len(pivot.Prove(state, target)) == 0,
		PendingAtTarget: state.Pending() && len(pivot.Prove(state.AsIfRebooted(), target)) == 0,
	})
}

// recall adds to target what an earlier boot learned of its image.
func (m *Machine) recall(target pivot.Target) pivot.Target {
	if known := m.Progress.Record.Target.Image; known.Same(target.Image) {
		target.Image.Commit, target.Image.Version = known.Commit, known.Version
	}
	return target
}

// gaveUp explains why a machine stays on its old system.
func (m *Machine) gaveUp(state pivot.State, target pivot.Target) error {
	missing := strings.Join(pivot.Prove(state, target), "; ")
	err := fault.New(fault.Refused, "cannot pivot this machine: after %d attempts it still comes up without the target: %s%s",
		m.Progress.Record.Attempt, missing, m.finalizeFailure())
	return err.WithHint("see the journal of the boot before (journalctl -b -1); to try again remove %s and restart pivot-firstboot.service",
		m.Progress.Journal.Path)
}

// finalizeFailure is the text that libostree left when it could not finalize a deployment.
func (m *Machine) finalizeFailure() string {
	text, err := os.ReadFile(m.Host.Path("/boot/ostree/finalize-failure.stamp"))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "; ostree could not finalize it: " + strings.TrimSpace(string(text))
}

// reboot asks for the one reboot and then waits for it: whoever is held until
// this program ends stays held.
func (m *Machine) reboot(ctx context.Context) error {
	m.Progress.Begin(pivot.StepReboot, "rebooting into "+m.Progress.Record.Target.Image.String())
	if err := m.Retry.Do(ctx, m.Progress.Waiting, m.Host.Reboot); err != nil {
		return fault.New(fault.KindOf(err), "%w", err).WithHint("the new system is ready; reboot by hand to enter it")
	}
	<-ctx.Done() // systemd stops us on its way down
	return nil
}

// Import implements pivot.Images on the host's own repository.
func (m *Machine) Import(ctx context.Context, image pivot.Image, progress func(done, total int64)) (pivot.Image, error) {
	ref, err := osimage.ParseReference(image.Reference)
	if err != nil {
		return pivot.Image{}, err
	}
	found, err := m.Puller.Resolve(ctx, ref)
	if err != nil {
		return pivot.Image{}, err
	}
	repo, view, err := m.Host.OpenRepo()
	if err != nil {
		return pivot.Image{}, fmt.Errorf("cannot import %s: %w", image.Reference, err)
	}
	defer view.Close()
	puller := *m.Puller
	puller.Progress = func(p osimage.Progress) { progress(p.FetchedBytes, p.TotalBytes) }
	result, err := puller.Import(ctx, found, repo)
	if err != nil {
		return pivot.Image{}, err
	}
	image.Commit, image.Version = result.Commit, result.Version
	if result.Format == osimage.Encapsulated {
		image.Container = ref.OstreeReference()
	}
	return image, nil
}
