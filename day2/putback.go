package day2

import (
	"cmp"
	"fmt"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// A change of the running system that fails is taken back, so its journal has everything that it replaces. It cannot
// have a FIFO, a socket or a device, a file that is too large to be read, or more than the change leaves room in the
// journal. Where only root may write, that is a reason for a reboot, which the plan names. Users must not be able to
// stop a change, so theirs is not put back then, and takes only the room that root's leaves.

// replaced is a path of a change, with what the change has to put back there.
type replaced struct {
	path  string
	comes *hostfiles.Entry // nil: nothing; for what drifted, the entry that it drifted from
	read  func(root, path string) (hostfiles.File, bool, error)
	keep  func(old *hostfiles.File) // nil: there is nothing
}

// unrestorable is the error of a change of the running system that could not be taken back.
type unrestorable struct{ path, because string }

// Error implements error.
func (u unrestorable) Error() string { return u.path + ": " + u.because }

// need returns the need for a reboot.
func (u unrestorable) need() pivot.Need {
	if strings.HasPrefix(u.path, projection.Dir+"/") { // carries what the plan has under other paths
		u.path = ""
	}
	return pivot.NeedReboot(cmp.Or(u.path, "deployment"), u.because)
}

// addOld adds to a change what it has to put back if it fails. differ are the entries outside of /etc from
// which the system differs. notes name what users have and a failed change would not put back.
func (a *Apply) addOld(c *LiveChange, differ []hostfiles.Entry) (notes []string, err error) {
	room, fits, err := LiveRoomFor(*c)
	if err == nil && !fits {
		err = unrestorable{because: "all that changes is together too large for the journal of a change without a reboot"}
	}
	if err != nil {
		return nil, err
	}
	all := a.replacedBy(c, differ)
	paths := make([]string, len(all))
	for i, r := range all {
		paths[i] = r.path
	}
	of := hostfiles.AllOfUsers(a.Host.Root, paths)
	for _, users := range []bool{false, true} {
		for _, r := range all {
			if of[r.path] != users {
				continue
			}
			why, err := r.addOld(a.Host.Root, users, room)
			switch {
			case err != nil:
				return nil, err
			case why != "" && !users:
				return nil, unrestorable{r.path, "what is there could not be put back by a change without a reboot: " + why}
			case why != "":
				notes = append(notes, fmt.Sprintf("what a user has put at %s is not put back if the change fails: %s", r.path, why))
			}
		}
	}
	return notes, nil
}

// replacedBy returns the paths of a change, and those of differ. Passwords have their Old already.
func (a *Apply) replacedBy(c *LiveChange, differ []hostfiles.Entry) (all []replaced) {
	for i := range c.Entries {
		e := &c.Entries[i]
		if (hostfiles.Entry{Path: e.Path}).OnDisk() != e.Path {
			continue
		}
		r := replaced{path: e.Path, read: hostfiles.Read, keep: func(old *hostfiles.File) { e.Old = old }}
		if e.New != nil {
			r.comes = &e.New.Entry
		}
		all = append(all, r)
	}
	for _, e := range differ {
		all = append(all, replaced{e.Path, &e, hostfiles.Look, func(old *hostfiles.File) {
			c.Drifted = append(c.Drifted, LiveEntry{Path: e.Path, Old: old})
		}})
	}
	return all
}

// addOld keeps what is at the path, or returns why it cannot be kept.
func (r replaced) addOld(root string, users bool, room *LiveRoom) (why string, err error) {
	old, there, err := r.read(root, r.path)
	if err != nil {
		return "", err
	}
	if !there {
		r.keep(nil)
		return "", nil
	}
	switch isDir := old.Kind == hostfiles.KindDirectory; {
	case old.Kind == hostfiles.KindOther:
		return "it is no file, directory or link", nil
	case !old.Whole():
		return "it is too large", nil
	case users && r.comes != nil && isDir != (r.comes.Kind == hostfiles.KindDirectory):
		return "it is moved aside, and stays there", nil
	case isDir && r.comes != nil && r.comes.Kind != hostfiles.KindDirectory:
		return fmt.Sprintf("it is a directory, and a %s comes there", r.comes.Kind), nil
	}
	fits, err := room.Take(old)
	if err != nil || !fits {
		return "it is too large", err
	}
	r.keep(&old)
	return "", nil
}

// changedMeanwhile returns the error for an unrestorable that was none when the change was planned.
func (u unrestorable) changedMeanwhile() error {
	n := u.need()
	return fault.New(fault.Refused, "cannot change the running system: %s: %s", n.Change, n.Because).
		WithHint("run the same pivot apply again, which plans anew: this was not so when the change was planned")
}
