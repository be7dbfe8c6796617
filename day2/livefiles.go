package day2

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/sepolicy"
)

// liveStep is the change of one entry.
type liveStep struct {
	path string
	want *hostfiles.File // nil removes the entry, or locks a password
	temp string          // where a file or link is staged; "" if nothing has to be done
}

// onDisk returns the path of the file that has the entry: the entry's own, or /etc/shadow for a
// password.
func (s liveStep) onDisk() string { return hostfiles.Entry{Path: s.path}.OnDisk() }

// isPassword reports whether the entry is a line of a file that other programs change, too. It is
// not staged: the other lines are kept as they are when put runs.
func (s liveStep) isPassword() bool { return s.onDisk() != s.path }

// stage durably writes the wanted files and links to a directory where nobody reads them. put then
// moves all entries into place, and needs disk space only for directories. Both are idempotent,
// so they can be repeated after a crash.
func (r *LiveRunner) stage(ctx context.Context, entries []LiveEntry, wanted func(LiveEntry) *hostfiles.File) (put func() error, err error) {
	labels, err := sepolicy.RunningLabels(r.Root)
	if err != nil {
		return nil, err
	}
	if err := r.makeStaging(); err != nil {
		return nil, cannotChangeLive(err)
	}
	var steps []liveStep
	for i, e := range entries {
		s := liveStep{path: e.Path, want: wanted(e), temp: filepath.Join(r.path(liveStaging), strconv.Itoa(i))}
		there, err := r.has(s)
		if err == nil && !there && s.want != nil && s.want.Kind != hostfiles.KindDirectory && !s.isPassword() {
			err = r.write(s, labels)
		}
		if err != nil {
			return nil, cannotChangeLive(err)
		}
		if there {
			s.temp = ""
		}
		steps = append(steps, s)
	}
	if err := r.Disk.Sync(r.path(liveStaging)); err != nil {
		return nil, cannotChangeLive(err)
	}
	return func() error {
		if err := r.put(ctx, steps, labels); err != nil {
			return cannotChangeLive(err)
		}
		return nil
	}, nil
}

func cannotChangeLive(err error) error {
	kind := fault.KindOf(err)
	if kind == fault.Internal {
		kind = fault.CannotWrite
	}
	return fault.New(kind, "cannot change the running /etc: %w", err)
}

// makeStaging creates an empty staging directory.
func (r *LiveRunner) makeStaging() error {
	if err := r.clean(); err != nil {
		return err
	}
	return r.Disk.Mkdir(r.path(liveStaging), 0o700)
}

// has reports whether the entry already is as wanted.
func (r *LiveRunner) has(s liveStep) (bool, error) {
	have, there, err := hostfiles.Look(r.Root, s.path)
	if s.want == nil || s.want.Locks() {
		return !there, err
	}
	return there && have.Entry == s.want.Entry, err
}

// write stages a file or link with the SELinux label of its final path, because a rename keeps
// the label.
func (r *LiveRunner) write(s liveStep, labels sepolicy.Labels) error {
	label, err := labels.Of(s.want.Path, s.want.Kind.Type())
	if err == nil {
		err = r.Disk.Make(s.temp, *s.want, label)
	}
	if err == nil && s.want.Kind == hostfiles.KindFile {
		err = r.Disk.Sync(s.temp)
	}
	return err
}

// put changes all entries, in this order: directories top-down, files, passwords, removals
// bottom-up, links. Then it syncs.
func (r *LiveRunner) put(ctx context.Context, steps []liveStep, labels sepolicy.Labels) error {
	sort.Slice(steps, func(i, j int) bool { return steps[i].path < steps[j].path })
	of := func(kind hostfiles.Kind) []liveStep {
		return slices.DeleteFunc(slices.Clone(steps), func(s liveStep) bool { return s.temp == "" || s.want == nil || s.want.Kind != kind })
	}
	for _, s := range of(hostfiles.KindDirectory) {
		if err := r.inPlace(s, func(at livePlace) error { return r.putDirectory(at, labels) }); err != nil {
			return err
		}
	}
	for _, s := range of(hostfiles.KindFile) {
		if err := r.inPlace(s, r.move); err != nil {
			return err
		}
	}
	for _, s := range steps {
		if s.temp == "" || !s.isPassword() {
			continue
		}
		if err := hostfiles.SetPassword(ctx, r.Disk, r.Root, s.path, s.temp, s.want); err != nil {
			return err
		}
	}
	for _, s := range slices.Backward(steps) {
		if s.temp == "" || s.want != nil || s.isPassword() {
			continue
		}
		if err := r.inPlace(s, r.remove); err != nil {
			return err
		}
	}
	for _, s := range of(hostfiles.KindLink) {
		if err := r.inPlace(s, r.move); err != nil {
			return err
		}
	}
	return r.sync(steps)
}

// livePlace is the open directory of a step's entry.
type livePlace struct {
	liveStep
	dir  *hostfiles.Dir
	base string
}

// inPlace calls change with the open directory of a step's entry. In a directory that users own, a change that they
// obstruct is only noted. They decide what is there, but must not stop the change of anything else, nor its way back.
func (r *LiveRunner) inPlace(s liveStep, change func(livePlace) error) error {
	dir, err := r.dirOf(s)
	if err == nil {
		err = errors.Join(change(livePlace{s, dir, filepath.Base(s.path)}), dir.Close())
	}
	if err != nil && hostfiles.Obstructed(err) && hostfiles.OfUsers(r.Root, s.path) {
		r.Note(fmt.Sprintf("cannot change %s, because something that a user owns is in the way: %v", s.path, err))
		return nil
	}
	return err
}

// dirOf opens the directory of a step's entry.
func (r *LiveRunner) dirOf(s liveStep) (*hostfiles.Dir, error) {
	if s.want == nil {
		return hostfiles.OpenDir(r.Root, s.path, hostfiles.FollowNone)
	}
	return hostfiles.MakeWay(r.Disk, r.Root, s.path, r.noteAt(s.path))
}

// noteAt reports what was in the way of an entry.
func (r *LiveRunner) noteAt(name string) func(string) {
	return func(what string) { r.Note(filepath.Dir(name) + ": " + what) }
}

// move moves a staged file or link into place.
func (r *LiveRunner) move(at livePlace) error {
	return at.dir.Place(r.Disk, at.temp, at.base, r.noteAt(at.path))
}

// remove removes an entry. A directory with files that appeared meanwhile stays.
func (r *LiveRunner) remove(at livePlace) error {
	err := r.Disk.Remove(at.dir.At(at.base))
	if errors.Is(err, unix.ENOTEMPTY) || at.dir.Shared() && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (r *LiveRunner) putDirectory(at livePlace, labels sepolicy.Labels) error {
	path := at.dir.At(at.base)
	if info, err := os.Lstat(path); err == nil {
		if info.IsDir() || !at.dir.Shared() {
			return r.Disk.Own(path, at.want.Entry)
		}
		if err := at.dir.MoveAside(r.Disk, at.base, r.noteAt(at.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	label, err := labels.Of(at.want.Path, at.want.Kind.Type())
	if err == nil {
		err = r.Disk.Make(path, *at.want, label)
	}
	return err
}

// sync syncs the directories of all entries, and the directories among the entries. This
// includes entries that an interrupted run has changed already.
func (r *LiveRunner) sync(steps []liveStep) error {
	dirs := map[string]bool{}
	for _, s := range steps {
		dirs[filepath.Dir(s.onDisk())] = true
		if s.want != nil && s.want.Kind == hostfiles.KindDirectory {
			dirs[s.path] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := r.syncDir(dir); err != nil {
			return fmt.Errorf("cannot sync directory: %w", err)
		}
	}
	return nil
}

// syncDir syncs a directory. One that is removed needs no sync, as the directory above it is synced;
// one that a user has replaced is not followed.
func (r *LiveRunner) syncDir(name string) error {
	dir, err := hostfiles.OpenDir(r.Root, filepath.Join(name, "entry"), hostfiles.FollowNone)
	if err == nil {
		err = errors.Join(r.Disk.Sync(dir.Path()), dir.Close())
	}
	if errors.Is(err, fs.ErrNotExist) || hostfiles.Obstructed(err) && hostfiles.OfUsers(r.Root, name) {
		return nil
	}
	return err
}

// unreachable returns why a staged file cannot be renamed to a path below /etc; "" if it can. A
// symbolic link on the way is an error, so that nothing outside of /etc is changed. What users put in
// the way in their directories is none: a change moves it aside.
func unreachable(root, name string) string {
	var etc, at unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "/etc"), &etc); err != nil {
		return err.Error()
	}
	above := "/etc"
	for part := range strings.SplitSeq(strings.TrimPrefix(filepath.Dir(name), "/etc"), "/") {
		if part == "" {
			continue
		}
		above = filepath.Join(above, part)
		err := unix.Lstat(filepath.Join(root, above), &at)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it will be created, on the same file system
			return ""
		case (err != nil || at.Mode&unix.S_IFMT != unix.S_IFDIR) && hostfiles.OfUsers(root, above):
			return "" // it is moved aside, or, if it is a mount, left alone
		case err != nil:
			return err.Error()
		case at.Mode&unix.S_IFMT != unix.S_IFDIR:
			return above + " is no directory"
		case at.Dev != etc.Dev:
			return above + " is on another file system than /etc"
		}
	}
	return ""
}
