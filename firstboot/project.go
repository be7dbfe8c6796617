package firstboot

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/live"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/varentries"
	"machine-pivot/pivot"
)

// The unit that projects what a system carries, and what enables it.
const (
	projectUnit    = "pivot-project.service"
	projectEnabled = "/etc/systemd/system/sysinit.target.wants/" + projectUnit
)

// Project makes /var what the system that runs asks of it, and returns the paths that it
// changed: see projection.Projector. No other program may be changing the machine.
func (m *Machine) Project(note func(string)) (changed []string, err error) {
	p := projection.Projector{Root: m.Host.Root, Disk: m.Host.Disk, Note: note}
	if changed, err = p.Project(); err != nil {
		return changed, fault.New(fault.CannotWrite, "cannot make /var what this system asks for: %w", err).
			WithHint("put right what is named, and have it done again: pivot project")
	}
	return changed, nil
}

// projected are entries with what makes the next system project those that are not below
// /etc: the link that enables the unit for it, unless that stands there.
func (m *Machine) projected(entries []hostfiles.File) []hostfiles.File {
	if !someOutside(hostfiles.Entries(entries)) {
		return entries
	}
	target, err := os.Readlink(m.Host.Path(projectEnabled))
	if err != nil {
		target = host.UnitInImage(projectUnit)
		if _, err := os.Stat(m.Host.Path(host.UnitInEtc(projectUnit))); err == nil {
			target = host.UnitInEtc(projectUnit)
		}
	}
	return append(slices.Clone(entries), hostfiles.NewLink(projectEnabled, target))
}

func someOutside(entries []hostfiles.Entry) bool {
	return slices.ContainsFunc(entries, func(e hostfiles.Entry) bool { return varentries.Outside(e.Path) })
}

// outside are the machine's entries outside of /etc: it has none but those that it carries.
type outside struct{ *Machine }

var _ pivot.Contributor = outside{}

// Entries implements pivot.Contributor.
func (outside) Entries() ([]hostfiles.File, error) { return nil, nil }

// Check implements pivot.Contributor, where the image stays: of another one
// checkProjectsNext judges, once it is there.
func (o outside) Check(plan pivot.Plan, entries []hostfiles.File) ([]string, error) {
	if plan.Image.Changed {
		return nil, nil
	}
	return nil, o.checkProjects(hostfiles.Entries(entries), o.hasDirectory, o.Host.Has)
}

// Drift implements pivot.Contributor.
func (outside) Drift(pivot.State, pivot.Target) ([]string, error) { return nil, nil }

// checkProjectsNext is an error if the system that a plan leads to, whose image is in the
// repository, could not project the plan's entries.
func (m *Machine) checkProjectsNext(plan pivot.Plan) error {
	if !someOutside(plan.To().Entries) {
		return nil
	}
	repo, err := m.Host.ReadRepo()
	if err != nil {
		return err
	}
	commit, err := ostree.ParseChecksum(plan.To().Image.Commit)
	if err != nil {
		return err
	}
	isDir := func(name string) (bool, error) {
		_, found, err := repo.DirInfo(commit, name[1:])
		return found, err
	}
	return m.checkProjects(plan.To().Entries, isDir, func(name string) (bool, error) { return repo.HasPath(commit, name[1:]) })
}

// checkProjects is an error if a system cannot project entries: by which directories its
// image has, and which files.
func (m *Machine) checkProjects(entries []hostfiles.Entry, isDir, has func(string) (bool, error)) error {
	if !someOutside(entries) {
		return nil
	}
	inEtc, err := os.Stat(m.Host.Path(host.UnitInEtc(projectUnit)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !inEtc.Mode().IsRegular() {
		return fault.New(fault.Refused, "cannot apply what is not below /etc: %s is masked, which would project it", projectUnit).
			WithHint("systemctl unmask %s", projectUnit)
	}
	shipped, herr := has(host.UnitInImage(projectUnit))
	if herr != nil {
		return herr
	}
	if err != nil && !shipped {
		return fault.New(fault.Refused, "cannot apply what is not below /etc: the new system has no %s, which would project it", projectUnit).
			WithHint("use an image that has pivot, of this version or a later one")
	}
	for _, e := range entries {
		link := varentries.LinkedAs(e.Path)
		if link == "" || e.Kind == hostfiles.KindDefault {
			continue
		}
		own, err := isDir(link)
		if err != nil {
			return err
		}
		if own {
			return fault.New(fault.Refused, "cannot apply %s: the new system has %s as a directory of its image, and does not link it into /var", e.Path, link).
				WithHint("build the image with the file, or put it elsewhere below /var")
		}
	}
	return nil
}

func (m *Machine) hasDirectory(name string) (bool, error) {
	info, err := os.Lstat(m.Host.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

// carryHere has the system that runs carry entries of those that are not below /etc, where
// all is as they say: so that what is asked for later finds them to be ours.
func (m *Machine) carryHere(entries []hostfiles.File) error {
	if !someOutside(hostfiles.Entries(entries)) {
		return nil
	}
	if err := m.checkProjects(hostfiles.Entries(entries), m.hasDirectory, m.Host.Has); err != nil {
		return err
	}
	carriers, err := m.carriers(entries, false)
	if err != nil || len(carriers) == 0 {
		return err
	}
	labels, err := hostfiles.RunningLabels(m.Host.Root)
	if err != nil {
		return err
	}
	for _, f := range carriers {
		if err := m.putHere(f, labels); err != nil {
			return fault.New(fault.CannotWrite, "cannot keep what is asked for outside of /etc: %w", err)
		}
	}
	_, err = m.Project(m.Progress.Note)
	return err
}

// carriers are the entries below /etc by which the system that runs carries those of entries
// that are not; none if it carries them already. With anew they are those of another set even
// so, of which the projection puts right what somebody has changed.
func (m *Machine) carriers(entries []hostfiles.File, anew bool) ([]hostfiles.File, error) {
	have, err := varentries.Read(m.Host.Root)
	if err != nil || !anew && slices.Equal(have.With(entries), have.Entries) {
		return nil, err
	}
	outside := slices.DeleteFunc(slices.Clone(entries), func(f hostfiles.File) bool { return !varentries.Outside(f.Path) })
	carriers, err := have.Carry(outside)
	if err != nil {
		return nil, fault.New(fault.CannotWrite, "cannot keep what is asked for outside of /etc: %w", err)
	}
	return carriers, nil
}

// outsideHere is what is not below /etc, for changes of the system that runs.
type outsideHere struct{ *Machine }

var _ live.Outside = outsideHere{}

// Project implements live.Outside. What stays was named when the change was worked out.
func (o outsideHere) Project() error {
	_, err := o.Machine.Project(func(string) {})
	return err
}

// PutBack implements live.Outside.
func (o outsideHere) PutBack(path string, f *hostfiles.File) error {
	p := projection.Projector{Root: o.Host.Root, Disk: o.Host.Disk}
	return p.PutBack(path, f)
}

// carried are the entries outside of /etc that a system's MachineConfigs asked for, by what
// it carries and by the last of them.
func (m *Machine) carried(old []hostfiles.File) ([]hostfiles.File, error) {
	all := slices.Clone(old)
	carried, err := varentries.Read(m.Host.Root)
	for _, e := range carried.Entries {
		if !slices.ContainsFunc(old, func(f hostfiles.File) bool { return f.Path == e.Path }) {
			all = append(all, hostfiles.File{Entry: e})
		}
	}
	return all, err
}
