package ostree

import (
	"fmt"
	"path"
	"strings"
)

// maxLinks is the number of symbolic links that a path may lead through, as in the kernel.
const maxLinks = 40

// Resolved is what is at a path after symbolic links were followed.
type Resolved struct {
	Found
	Path  string // of the entry in the commit, or where it is missing; no part of it is a link
	Links int    // the number of links that were followed
}

// UnresolvedError is the error for a path that the deployed system could not open: it leads in a circle, or
// through a file.
type UnresolvedError struct{ Reason string }

func (e *UnresolvedError) Error() string { return e.Reason }

// Resolve finds the entry at a path of a commit in the deployed system. It follows links in each part of the path; an
// absolute one begins at the root of the commit, and /etc is usr/etc. look finds an entry without following links.
// exists is false if there is no entry. The error is an UnresolvedError if the deployed system could not open the path
// either.
func Resolve(name string, look func(name string) (Found, bool, error)) (r Resolved, exists bool, err error) {
	at, rest := "", InCommit(name)
	for {
		r.Path = at
		if r.Found, exists = (Found{IsDir: true}), true; at != "" {
			r.Found, exists, err = look(at)
		}
		switch {
		case err != nil:
			return r, false, err
		case !exists:
			r.Path = path.Join(at, rest)
			return r, false, nil
		case r.Target != "":
			if r.Links++; r.Links > maxLinks {
				return r, false, &UnresolvedError{"it leads through too many links"}
			}
			at, rest = "", path.Join(linkTarget(at, r.Target), rest)
		case rest == "":
			return r, true, nil
		case !r.IsDir:
			return r, false, &UnresolvedError{fmt.Sprintf("it leads through /%s, which is a file", at)}
		default:
			var next string
			next, rest, _ = strings.Cut(rest, "/")
			at = path.Join(at, next)
		}
	}
}

// linkTarget returns the path, from the root of the commit, to which a link at a path leads.
func linkTarget(at, to string) string {
	if !path.IsAbs(to) {
		to = path.Join("/", path.Dir(at), to)
	}
	return InCommit(to)
}

// Resolve finds the entry to which a path of a commit leads; see the function Resolve.
func (at Objects) Resolve(c Checksum, name string) (Resolved, bool, error) {
	return Resolve(name, func(name string) (Found, bool, error) { return at.Look(c, name) })
}

// ResolveDir returns the path of the directory to which a path of a commit leads, or false if there is
// none. If something else is there, the error is an UnresolvedError.
func (at Objects) ResolveDir(c Checksum, name string) (string, bool, error) {
	dir, exists, err := at.Resolve(c, name)
	if err == nil && exists && !dir.IsDir {
		err = &UnresolvedError{"it is not a directory"}
	}
	return dir.Path, exists && err == nil, err
}

// PrepareRoot reads the prepare-root.conf of a commit; see ReadPrepareRoot.
func (at Objects) PrepareRoot(c Checksum) (PrepareRoot, error) {
	return ReadPrepareRoot(func(name string) (Found, bool, error) { return at.Look(c, name) })
}
