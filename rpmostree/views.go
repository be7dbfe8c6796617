package rpmostree

import (
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// views are the overlays for libostree's merge: of the booted /etc, and of the booted image's /usr/etc.
//
// The merge carries over what differs between the two, and nothing else. So the rule: an entry that is asked for
// differs from what the merge sees of the booted image, whatever that image has. Then it wins over the next image's
// default, also where the booted one had the same default.
type views struct {
	nextEtc
	etc, image hostfiles.Overlay
	walked     map[string]bool // directories above entries
}

// viewsFor returns the overlays for a deployment of commit with entries that forDeployment has placed.
func (e *Ostree) viewsFor(booted ostree.Deployment, commit ostree.Checksum, entries []hostfiles.File) ([]hostfiles.Overlay, error) {
	next, err := e.nextEtc(booted, commit, entries)
	if err != nil {
		return nil, err
	}
	return next.views(entries)
}

// views returns the overlays for entries that place has returned.
func (n nextEtc) views(entries []hostfiles.File) ([]hostfiles.Overlay, error) {
	etc, image := filepath.Join(n.booted, "etc"), filepath.Join(n.booted, "usr/etc")
	v := views{nextEtc: n, walked: map[string]bool{}}
	v.etc = hostfiles.Overlay{Dir: etc, At: "/etc", Image: image}
	v.image = hostfiles.Overlay{Dir: image, At: "/etc"}
	for _, f := range entries {
		if err := v.show(f); err != nil {
			return nil, err
		}
	}
	all := []hostfiles.Overlay{v.etc}
	if len(v.image.Files) > 0 {
		all = append(all, v.image)
	}
	return all, nil
}

// show shows the merge an entry.
func (v *views) show(f hostfiles.File) error {
	switch f.Kind {
	case hostfiles.KindDefault:
		return v.showDefault(f)
	case hostfiles.KindAbsent:
		return v.showAbsent(f)
	case hostfiles.KindPassword:
		return v.showPassword(f)
	}
	v.etc.Files = append(v.etc.Files, f)
	if err := v.showWay(f.Path); err != nil {
		return err
	}
	if f.Kind == hostfiles.KindDirectory {
		return v.showDirectory(f)
	}
	had, ships, err := v.shipped(f.Path)
	if err == nil && ships && had.Entry == f.Entry {
		v.image.Files = append(v.image.Files, hostfiles.Absent(f.Path))
	}
	return err
}

// shipped returns what the booted image has at a path.
func (n nextEtc) shipped(at string) (hostfiles.File, bool, error) {
	return hostfiles.Look(filepath.Join(n.booted, "usr"), at)
}

// showWay shows the directories above an entry as the next image has them, unless they were changed in the booted /etc.
// For what is in them, the merge gives a directory of the next image the owner and the mode of the shown one. What is
// no directory in the booted /etc, and is in the next one, becomes one in the view.
func (v *views) showWay(name string) error {
	for _, dir := range above(name) {
		if f, asked := v.asked[dir]; v.walked[dir] || asked && f.Kind != hostfiles.KindDefault {
			continue
		}
		v.walked[dir] = true
		have, there, err := hostfiles.Look(v.booted, dir)
		if err != nil {
			return err
		}
		had, ships, err := v.shipped(dir)
		if err != nil {
			return err
		}
		next, brings, err := v.directory(dir)
		if err != nil {
			return err
		}
		blocked := there && have.Kind != hostfiles.KindDirectory
		if !brings {
			next = hostfiles.NewDirectory(dir, 0o755)
		}
		if blocked || brings && (!there || ships && have.Entry == had.Entry && have.Entry != next.Entry) {
			v.etc.Files = append(v.etc.Files, next)
		}
		if blocked && ships {
			v.image.Files = append(v.image.Files, hostfiles.Absent(dir))
		}
	}
	return nil
}

// blocked reports whether something above an entry is no directory in the booted /etc.
func (n nextEtc) blocked(name string) (bool, error) {
	for _, dir := range above(name) {
		have, there, err := hostfiles.Look(n.booted, dir)
		if err != nil || there && have.Kind != hostfiles.KindDirectory {
			return err == nil, err
		}
	}
	return false, nil
}

// showDirectory has the merge carry over a directory that it would leave as the next image has it, or leave out.
func (v *views) showDirectory(f hostfiles.File) error {
	next, brings, err := v.directory(f.Path)
	if err != nil {
		return err
	}
	if brings {
		if next.Entry != f.Entry {
			v.etc.Carried = append(v.etc.Carried, f.Path)
		}
		return nil
	}
	copied, err := v.copiedWhole(f.Path)
	if err != nil || copied {
		return err
	}
	replaces, err := v.repo.HasPath(v.commit, "usr"+f.Path)
	if err != nil {
		return err
	}
	if !replaces {
		v.etc.Carried = append(v.etc.Carried, f.Path)
		return nil
	}
	other := f // with another mode, so that the merge takes the directory for changed
	other.Mode ^= 0o100
	v.image.Files = append(v.image.Files, other)
	return nil
}

// copiedWhole reports whether the merge copies a directory, which the next image lacks, with everything in it. It does
// where that directory, or one above it, is new or has changed.
func (v *views) copiedWhole(name string) (bool, error) {
	for _, dir := range append(above(name), name) {
		if _, brings, err := v.directory(dir); err != nil || brings {
			if err != nil {
				return false, err
			}
			continue
		}
		had, _, err := v.shipped(dir)
		if err != nil {
			return false, err
		}
		have, _, err := hostfiles.Look(v.booted, dir)
		if err != nil {
			return false, err
		}
		if f, asked := v.asked[dir]; asked {
			have = f
		}
		if had.Kind != hostfiles.KindDirectory || had.Path == "" || had.Entry != have.Entry {
			return true, nil
		}
	}
	return false, nil
}

// showDefault shows the merge the booted image's entry, so that it takes the next one's. A directory has the next one's
// owner and mode, because of its contents. A password is a line of its file.
func (v *views) showDefault(f hostfiles.File) error {
	if blocked, err := v.blocked(f.OnDisk()); err != nil || blocked {
		return err
	}
	v.etc.Files = append(v.etc.Files, f)
	if f.OnDisk() != f.Path {
		return nil
	}
	next, brings, err := v.directory(f.Path)
	if err != nil || !brings {
		return err
	}
	had, ships, err := v.shipped(f.Path)
	if err == nil && ships && had.Kind == hostfiles.KindDirectory && !v.walked[f.Path] {
		v.walked[f.Path] = true
		v.etc.Files = append(v.etc.Files, next)
	}
	return err
}

// showAbsent has the merge remove what the next image has: it removes what the booted image has and the booted /etc
// lacks. To make it remove something that only the commit has, the image shows a link there, which stands for
// whatever the commit has. The directories above it are shown in /etc as well: if one is missing in /etc, the merge
// removes the whole directory.
func (v *views) showAbsent(f hostfiles.File) error {
	blocked, err := v.blocked(f.Path)
	if err == nil && blocked {
		err = v.showWay(f.Path)
	} else if err == nil {
		v.etc.Files = append(v.etc.Files, f)
	}
	if err != nil {
		return err
	}
	brings, err := v.repo.HasPath(v.commit, "usr"+f.Path)
	if err != nil {
		return err
	}
	_, ships, err := v.shipped(f.Path)
	if err != nil || !brings || ships {
		return err
	}
	v.image.Files = append(v.image.Files, hostfiles.NewLink(f.Path, "/dev/null"))
	made, err := madeFor(v.booted, f.Path)
	if err != nil {
		return err
	}
	for _, dir := range made[1:] {
		if !v.walked[dir] {
			v.etc.Files = append(v.etc.Files, hostfiles.NewDirectory(dir, 0o755))
		}
	}
	return nil
}

// showPassword shows a password. The file that has it is carried over as a whole, with the booted image's other lines.
func (v *views) showPassword(f hostfiles.File) error {
	v.etc.Files = append(v.etc.Files, f)
	_, ships, err := v.shipped(f.OnDisk())
	if err == nil && ships {
		v.image.Files = append(v.image.Files, hostfiles.Absent(f.OnDisk()))
	}
	return err
}
