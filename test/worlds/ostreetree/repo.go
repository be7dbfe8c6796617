package ostreetree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing/fstest"
)

// Branch and Version are the branch and version of every commit made by Commit.
const (
	Branch  = "test/os"
	Version = "1.2.3"
)

// Ostree runs the real ostree and returns its standard output. The error includes its standard
// error; without an error that is ignored, since libraries may print warnings there.
func Ostree(args ...string) (string, error) {
	cmd := exec.Command("ostree", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // otherwise it escapes non-ASCII names
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("ostree %s: %w\n%s\n%s", strings.Join(args, " "), err, text, bytes.TrimSpace(complaints.Bytes()))
	}
	return text, nil
}

// Init makes an empty repository; mode is "bare" or "archive". The real ostree makes a template
// once per process, and Init copies it.
func Init(repo, mode string) error {
	made := emptyBare
	if mode == "archive" {
		made = emptyArchive
	}
	empty, err := made()
	if err != nil {
		return err
	}
	return os.CopyFS(repo, empty)
}

var (
	emptyBare    = sync.OnceValues(func() (fs.FS, error) { return emptyRepo("bare") })
	emptyArchive = sync.OnceValues(func() (fs.FS, error) { return emptyRepo("archive") })
)

// emptyRepo returns an empty repository made by the real ostree.
func emptyRepo(mode string) (fs.FS, error) {
	return inMemory(func(dir string) error {
		_, err := Ostree("init", "--repo="+dir, "--mode="+mode)
		return err
	})
}

// Archive makes an archive repository with one commit, of a tree with big files. The real ostree
// makes a template once per process, and Archive copies it.
func Archive(repo string) (commit string, err error) {
	made, err := bigArchive()
	if err != nil {
		return "", err
	}
	return made.commit, os.CopyFS(repo, made.repo)
}

// archive is a repository with one commit.
type archive struct {
	repo   fs.FS
	commit string
}

var bigArchive = sync.OnceValues(func() (a archive, err error) {
	a.repo, err = inMemory(func(repo string) (err error) {
		tree, err := os.MkdirTemp("", "ostreetree-*")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
		if err := errors.Join(Write(tree, Contents{Big: true}), Init(repo, "archive")); err != nil {
			return err
		}
		a.commit, err = Commit(repo, tree)
		return err
	})
	return a, err
})

// inMemory calls make with the path of a directory to create, and returns the contents of the
// directory, held in memory. Only regular files and directories are supported.
func inMemory(make func(dir string) error) (_ fs.FS, err error) {
	parent, err := os.MkdirTemp("", "ostreetree-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(parent)) }()
	dir := filepath.Join(parent, "made")
	if err := make(dir); err != nil {
		return nil, err
	}
	all := fstest.MapFS{}
	return all, fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		file := &fstest.MapFile{Mode: info.Mode()}
		if !d.IsDir() {
			file.Data, err = os.ReadFile(filepath.Join(dir, path))
		}
		all[path] = file
		return err
	})
}

// Commit commits a tree to Branch with the real ostree and returns the checksum. The
// commit is bootable and has detached metadata and a fixed timestamp.
func Commit(repo, tree string, args ...string) (checksum string, err error) {
	return CommitUnchecked(repo, tree, append([]string{"--bootable"}, args...)...)
}

// CommitUnchecked is Commit for a tree that ostree does not call bootable: it has no kernel in
// usr/lib/modules, or several.
func CommitUnchecked(repo, tree string, args ...string) (checksum string, err error) {
	return Ostree(append([]string{
		"commit", "--repo=" + repo, "--branch=" + Branch, "--subject=a test", "--timestamp=@1700000000",
		"--add-metadata-string=version=" + Version, "--add-detached-metadata-string=test.signature=none", "--tree=dir=" + tree,
	}, args...)...)
}
