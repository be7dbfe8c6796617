package bound

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"machine-pivot/internal/ostree"
)

// maxLinks is the number of symbolic links that a path may lead through, as in the kernel.
const maxLinks = 40

// follow reads the file that a link of a commit leads to, as the deployed system would see it: an
// absolute target begins at the root of the commit, and /etc is usr/etc.
func follow(repo Repository, commit ostree.Checksum, link string) (string, error) {
	at, links := link, 0
	rest := ""
	for {
		found, exists, err := repo.Look(commit, at)
		switch {
		case err != nil:
			return "", err
		case !exists:
			return "", fmt.Errorf("it leads to /%s, which is not in the image", path.Join(at, rest))
		case found.Target != "":
			if links++; links > maxLinks {
				return "", errors.New("it leads through too many links")
			}
			at, rest = split(path.Join(target(at, found.Target), rest))
		case found.IsDir && rest != "":
			var next string
			next, rest = split(rest)
			at = path.Join(at, next)
		case found.IsDir:
			return "", errors.New("it leads to a directory")
		case links == 0:
			return "", errors.New("it is not a symbolic link")
		case rest != "":
			return "", fmt.Errorf("it leads through /%s, which is a file", at)
		case len(found.File) > MaxSize:
			return "", fmt.Errorf("it has %d bytes, more than %d", len(found.File), MaxSize)
		default:
			return string(found.File), nil
		}
	}
}

// target returns the path, from the root of the commit, to which a link at a path leads.
func target(at, to string) string {
	if !path.IsAbs(to) {
		to = path.Join("/", path.Dir(at), to)
	}
	return ostree.InCommit(to)
}

// split splits a path into its first name and the rest.
func split(name string) (first, rest string) {
	first, rest, _ = strings.Cut(name, "/")
	return first, rest
}
