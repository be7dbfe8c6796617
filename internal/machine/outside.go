package machine

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// projectEnabled is the link that enables the unit that projects what a system carries.
const projectEnabled = "/etc/systemd/system/sysinit.target.wants/" + systemdunits.Project

// Projector returns what makes /var match what the running system carries.
func (m *Machine) Projector(note func(string)) *projection.Projector {
	return &projection.Projector{Root: m.Host.Root, Disk: m.Host.Disk, Note: note}
}

// Project makes /var match what the running system carries, and returns the paths that it
// changed: see projection.Projector. No other program may change the machine meanwhile.
func (m *Machine) Project(note func(string)) (changed []string, err error) {
	return Project(m.Projector(note))
}

// Project is Machine.Project with a Projector.
func Project(p *projection.Projector) (changed []string, err error) {
	if changed, err = p.Project(); err != nil {
		// The remedy for a damaged file is that file's own.
		return changed, fault.New(fault.CannotWrite, "cannot write the MachineConfig's files that are outside of /etc: %w", err).
			WithHint("%s", cmp.Or(fault.HintOf(err), "correct the path that is named, then: systemctl restart "+systemdunits.Project))
	}
	return changed, nil
}

// projected returns entries, and if any of them is outside of /etc, also the link that enables
// the projecting unit in the next system. A link that already exists keeps its target.
func (m *Machine) projected(entries []hostfiles.File) []hostfiles.File {
	if !anyOutside(hostfiles.Entries(entries)) {
		return entries
	}
	target, err := os.Readlink(m.Host.Path(projectEnabled))
	if err != nil {
		target = host.UnitInImage(systemdunits.Project)
		if _, err := os.Stat(m.Host.Path(host.UnitInEtc(systemdunits.Project))); err == nil {
			target = host.UnitInEtc(systemdunits.Project)
		}
	}
	return append(slices.Clone(entries), hostfiles.NewLink(projectEnabled, target))
}

func anyOutside(entries []hostfiles.Entry) bool {
	return slices.ContainsFunc(entries, func(e hostfiles.Entry) bool { return projection.Outside(e.Path) })
}

// outside is the Contributor for entries outside of /etc. It adds none: it checks that the next
// system can project those that are asked for.
type outside struct{ *Machine }

var _ pivot.Contributor = outside{}

// Entries implements pivot.Contributor.
func (outside) Entries() ([]hostfiles.File, error) { return nil, nil }

// Check implements pivot.Contributor for a plan that keeps the image. For another image
// checkProjectsNext does so, once the image is in the repository.
func (o outside) Check(plan pivot.Plan, entries []hostfiles.File) ([]string, error) {
	if plan.Image.Changed {
		return nil, nil
	}
	return nil, o.checkProjects(hostfiles.Entries(entries), o.hasDirectory, o.Host.Has)
}

// Drift implements pivot.Contributor.
func (outside) Drift(pivot.State, pivot.Target) ([]pivot.Difference, error) { return nil, nil }

// checkProjectsNext returns an error if the system that a plan leads to cannot project the
// plan's entries. Its image must be in the repository.
func (m *Machine) checkProjectsNext(plan pivot.Plan) error {
	if !anyOutside(plan.To().Entries) {
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

// checkProjects returns an error if a system cannot project entries. isDir and has report
// whether its image has a directory, or anything, at a path.
func (m *Machine) checkProjects(entries []hostfiles.Entry, isDir, has func(string) (bool, error)) error {
	if !anyOutside(entries) {
		return nil
	}
	inEtc, err := os.Stat(m.Host.Path(host.UnitInEtc(systemdunits.Project)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !inEtc.Mode().IsRegular() {
		return fault.New(fault.Refused, "cannot apply files outside of /etc: %s, which writes them at each boot, is masked", systemdunits.Project).
			WithHint("systemctl unmask %s", systemdunits.Project)
	}
	shipped, herr := has(host.UnitInImage(systemdunits.Project))
	if herr != nil {
		return herr
	}
	if err != nil && !shipped {
		return fault.New(fault.Refused, "cannot apply files outside of /etc: the new system has no %s, which writes them at each boot", systemdunits.Project).
			WithHint("use an image that has pivot, of this version or a later one")
	}
	for _, e := range entries {
		link := hostfiles.LinkedAs(e.Path)
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

// CarryInRunningSystem makes the running system carry the entries outside of /etc, which must all
// be in place already, so that later runs know that they are pivot's.
func (m *Machine) CarryInRunningSystem(entries []hostfiles.File) error {
	if !anyOutside(hostfiles.Entries(entries)) {
		return nil
	}
	if err := m.checkProjects(hostfiles.Entries(entries), m.hasDirectory, m.Host.Has); err != nil {
		return err
	}
	carriers, err := m.Carriers(entries, false)
	if err != nil || len(carriers) == 0 {
		return err
	}
	labels, err := sepolicy.RunningLabels(m.Host.Root)
	if err != nil {
		return err
	}
	for _, f := range carriers {
		if err := m.PutInRunningEtc(f, labels); err != nil {
			return fault.New(fault.CannotWrite, "cannot store the MachineConfig's files that are outside of /etc in %s: %w", projection.OwnDir, err).
				WithHint("free space on / (see df -h), and run the command again")
		}
	}
	_, err = m.Project(m.Progress.Note)
	return err
}

// Carriers returns the entries below /etc by which the running system carries those that are
// outside of /etc; none if it carries them already. With anew it returns a new set in any case,
// so that the projection undoes local changes.
func (m *Machine) Carriers(entries []hostfiles.File, anew bool) ([]hostfiles.File, error) {
	have, err := projection.Read(m.Host.Root)
	if err != nil || !anew && slices.Equal(have.With(entries), have.Entries) {
		return nil, err
	}
	outside := slices.DeleteFunc(slices.Clone(entries), func(f hostfiles.File) bool { return !projection.Outside(f.Path) })
	carriers, err := have.Carry(outside)
	if err != nil {
		return nil, fault.New(fault.CannotWrite, "cannot store the MachineConfig's files that are outside of /etc in %s: %w", projection.OwnDir, err)
	}
	return carriers, nil
}
