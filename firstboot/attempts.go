package firstboot

import (
	"context"
	"fmt"
	"os"
	"strings"

	"machine-pivot/fault"
	"machine-pivot/pivot"
)

// startOver says why an attempt follows another one.
func (m *Machine) startOver(ctx context.Context, state pivot.State, target pivot.Target, attempt int) {
	if attempt > m.Progress.Record.Attempt && m.Progress.Record.Phase == pivot.Committed {
		m.Progress.Note(fmt.Sprintf("attempt %d of %d: the one before was committed, but this boot came up without it: %s",
			attempt, pivot.MaxAttempts, m.missing(ctx, state, target)))
	}
}

// gaveUp ends the transaction of a machine that stays on its old system, and
// says why.
func (m *Machine) gaveUp(ctx context.Context, state pivot.State, target pivot.Target) error {
	err := fault.New(fault.Refused, "cannot pivot this machine: after %d attempts it still comes up without the target: %s",
		m.Progress.Record.Attempt, m.missing(ctx, state, target))
	if m.Progress.Record.Phase != pivot.Failed {
		m.Progress.Record.Error = pivot.FailureOf(err)
		if jerr := m.Progress.Enter(pivot.Failed, state.BootID); jerr != nil {
			return jerr
		}
	}
	return err.WithHint("see the journal of the boot before (journalctl -b -1); to try again: pivot firstboot --again")
}

// missing is what the running system lacks, with what ostree said of it.
func (m *Machine) missing(ctx context.Context, state pivot.State, target pivot.Target) string {
	text := strings.Join(pivot.Prove(state, target), "; ")
	if onlyFiles(state, target) {
		text += "; image and arguments are there, as when something was staged on top of the commit, with the /etc that ran"
	}
	if failure := m.finalizeFailure(ctx); failure != "" {
		text += "; ostree could not finalize it: " + failure
	}
	return text
}

// onlyFiles reports whether the running system is the target but for its files.
func onlyFiles(state pivot.State, target pivot.Target) bool {
	plan, err := pivot.Diff(state, target)
	return err == nil && plan.Image.From == plan.Image.To && !plan.Kargs.Changed && len(plan.Files) > 0
}

// finalizeFailure is what libostree left when it could not finalize a deployment
// at shutdown: in a file on /boot, which ostree-boot-complete.service of the next
// boot moves to its own journal (ostree-sysroot-deploy.c, ot-admin-builtin-boot-complete.c).
func (m *Machine) finalizeFailure(ctx context.Context) string {
	if text, err := os.ReadFile(m.Host.Path("/boot/ostree/finalize-failure.stamp")); err == nil {
		return strings.TrimSpace(string(text))
	}
	lines, err := m.Host.Run(ctx, "journalctl", "--boot", "--unit=ostree-boot-complete.service", "--output=cat", "--no-pager", "--quiet")
	if err != nil {
		return "" // no journal, then no text: what is missing is known all the same
	}
	for line := range strings.Lines(string(lines)) {
		if _, failure, ok := strings.Cut(line, "failed on previous boot: "); ok {
			return strings.TrimSpace(failure)
		}
	}
	return ""
}
