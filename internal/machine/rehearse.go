package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// rehearsal returns what asks new systems; nil: nothing is asked.
func (m *Machine) rehearsal() func(context.Context, pivot.Plan) ([]verdict.Accepted, []string, error) {
	if m.Self == "" {
		return nil
	}
	return m.rehearse
}

// rehearse asks a plan's new system whether this machine can start it. Its image is in the repository. The error has
// all that refuses it; accepted is what the settings accept of that.
func (m *Machine) rehearse(ctx context.Context, plan pivot.Plan) (accepted []verdict.Accepted, notes []string, err error) {
	found, err := m.judge(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := m.Settings()
	if err != nil {
		return nil, nil, err
	}
	return verdict.Settle(found, chosen.Accept)
}

// judge returns what speaks against a plan's new system on this machine.
func (m *Machine) judge(ctx context.Context, plan pivot.Plan) (found []verdict.Finding, err error) {
	next, err := ostree.ParseChecksum(plan.To().Image.Commit)
	if err != nil {
		return nil, err
	}
	running, err := ostree.ParseChecksum(plan.From().Booted.Commit)
	if err != nil {
		return nil, err
	}
	change := rehearse.Change{Next: next, Running: running, Line: plan.Kargs.Final, Units: m.ownUnits(plan), Rebuilt: plan.From().Booted.Base != ""}
	found, err = m.asked(ctx, change, factsOf(ctx, m.Host))
	return slices.Concat(found, m.judgeKernel(plan, next, running), m.judgeForm(next, running)), err
}

// factsOf returns what a rehearsal asks of a machine.
func factsOf(ctx context.Context, h *host.Host) rehearse.Facts {
	known := map[string][]string{}
	return rehearse.Read(h.Root, func(alias string) []string {
		if _, asked := known[alias]; !asked {
			names, _ := h.Run(ctx, "modprobe", "-R", alias)
			known[alias] = strings.Fields(string(names))
		}
		return known[alias]
	})
}

// Facts are what images are judged by for a machine that is elsewhere. They have no secrets: of the kernel arguments only
// the names of some, of headers of LUKS only the registers of the TPM.
type Facts struct {
	Architecture string     `json:"architecture"`
	Arguments    kargs.Line `json:"arguments"`
	Rebuilt      bool       `json:"rebuilt"` // packages are layered, and so another initramfs may start than an image's
	rehearse.Facts
	Notes []string `json:"notes"` // what is not known
}

// FactsOf returns the facts of a machine that is booted from an ostree deployment.
func FactsOf(ctx context.Context, h *host.Host) (Facts, error) {
	f := Facts{Architecture: host.Architecture(), Arguments: kargs.Line{}, Notes: []string{}, Facts: factsOf(ctx, h)}
	state, err := h.Observe(ctx, pivot.Target{})
	if err != nil {
		return f, err
	}
	running, err := ostree.ParseChecksum(state.Booted.Commit)
	if err != nil {
		return f, err
	}
	f.Arguments, f.Rebuilt = rehearse.Asking(state.Booted.Options), state.Booted.Base != ""
	if f.Today, err = (rehearse.Stage{Repo: h.Sysroot().RepoPath()}).Today(running, f.Facts); err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("the running system's initramfs is not known: %v", err))
		f.Today = &rehearse.Initramfs{Modules: []string{}, Dracut: []string{}}
	}
	return f, nil
}
