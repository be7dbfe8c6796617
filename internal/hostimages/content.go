package hostimages

import (
	"context"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Content reads what OS images in a host's repository bring: kernel arguments, accounts and
// units.
type Content struct {
	Host *host.Host
	// Arguments returns the kernel arguments that a commit in the repository brings; see
	// Store.Arguments.
	Arguments func(commit string) (osimage.Arguments, error)
	// Check checks a plan with its image in the repository.
	Check pivot.Check
}

var _ pivot.Content = Content{}

// Learn implements pivot.Content.
func (c Content) Learn(ctx context.Context, plan pivot.Plan) (pivot.Plan, error) {
	target, _, notes, err := c.withArguments(plan.From(), plan.To())
	if err != nil {
		return plan, err
	}
	learned, err := plan.For(target)
	if err != nil {
		return learned, err
	}
	learned.Notes = notes
	return learned, c.Check(learned)
}

// Preview implements pivot.Content. It does not pull the image: what it brings is known only if
// the image is in the repository already.
func (c Content) Preview(ctx context.Context, plan pivot.Plan) (pivot.Plan, error) {
	state, target := plan.From(), plan.To()
	own := pivot.ImageKargs{Choice: string(settings.ImageKargsPrint), Arguments: kargs.Line{}}
	if target.Kargs.Image != nil {
		own.Choice = string(settings.ImageKargsApply)
	}
	plan.ImageKargs = &own
	commit, err := c.importedAs(target.Image)
	if err != nil {
		return plan, err
	}
	if commit == "" {
		if target.Kargs.Image != nil {
			plan.Notes = append(plan.Notes, "kernel arguments that the image contains (/"+osimage.KargsDir+") are added; "+
				"they are known when it is in the host's repository, as after: pivot image import --repo "+c.Host.Sysroot().RepoPath())
		}
		return plan, nil
	}
	if err := c.CheckBoots(commit); err != nil {
		return plan, err
	}
	target.Image.Commit = commit
	target, now, notes, err := c.withArguments(state, target)
	if err != nil {
		return plan, err
	}
	if plan, err = plan.For(target); err != nil {
		return plan, err
	}
	own.Known, own.Arguments = true, slices.Concat(own.Arguments, now)
	plan.ImageKargs, plan.Notes = &own, append(plan.Notes, notes...)
	note, err := c.noteBound(commit)
	if err != nil {
		return plan, err
	}
	if note != "" {
		plan.Notes = append(plan.Notes, note)
	}
	if err := c.Check(plan); err != nil {
		return plan, err
	}
	return c.previewUnits(plan, commit)
}

// importedAs returns the commit of an image in the host's repository, or "".
func (c Content) importedAs(image pivot.Image) (commit string, err error) {
	repo, err := c.Host.ReadRepo()
	if err != nil {
		return "", err
	}
	imported, found, err := commitOf(repo, image.Pinned())
	if !found {
		return "", err
	}
	return imported.String(), nil
}

// checkBoots is the function of this name, for a commit in the host's repository.
func (c Content) CheckBoots(commit string) error {
	next, err := c.next(commit)
	if err == nil {
		_, err = CheckBoots(next.repo, next.commit)
	}
	return err
}

// previewUnits adds a warning about requested unit changes that are impossible in the system of a commit. It adds none
// about units that packages on top of the image may bring: any unit if the plan changes packages, the running system's
// if it has layered ones.
func (c Content) previewUnits(plan pivot.Plan, commit string) (pivot.Plan, error) {
	if len(plan.Packages) > 0 {
		return plan, nil
	}
	units, err := c.Units(plan, commit)
	if running := plan.From(); len(running.Packages.Layered) > 0 {
		maps.DeleteFunc(units.Wrong, func(name string, _ error) bool { return running.Etc.Units.Wrong[name] == nil })
	}
	if wrong := units.Err(); wrong != nil {
		plan.Notes = append(plan.Notes, "warning: in the new system: "+strings.ReplaceAll(wrong.Error(), "\n", "; "))
	}
	return plan, err
}

// Accounts implements pivot.Content. It returns the accounts of the new /etc, which follow from
// the image in the repository and the local changes in /etc.
func (c Content) Accounts(plan pivot.Plan) (hostfiles.Accounts, error) {
	if !plan.Image.Changed {
		return plan.From().Etc.Accounts, nil
	}
	next, err := c.next(plan.To().Image.Commit)
	if err != nil {
		return hostfiles.Accounts{}, err
	}
	return host.NextAccounts(next.booted, func(name string) ([]byte, error) { return next.repo.ReadFile(next.commit, name) })
}

// Units implements pivot.Content.
func (c Content) Units(plan pivot.Plan, commit string) (enable.Resolved, error) {
	next, err := c.next(commit)
	if err != nil {
		return enable.Resolved{}, err
	}
	return host.NextUnits(next.booted, next.repo, next.commit, plan.To())
}

// nextSystem has the parts from which the next system is made: a commit, and the /etc of the
// booted deployment.
type nextSystem struct {
	repo   *ostree.Repo
	commit ostree.Checksum
	booted ostree.Deployment
}

func (c Content) next(commit string) (next nextSystem, err error) {
	if next.commit, err = ostree.ParseChecksum(commit); err != nil {
		return next, err
	}
	if next.repo, err = c.Host.ReadRepo(); err != nil {
		return next, err
	}
	next.booted, err = c.Host.Sysroot().Booted()
	return next, err
}
