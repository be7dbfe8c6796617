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

// Branch and Version are of every commit made here.
const (
	Branch  = "test/os"
	Version = "1.2.3"
)

// Ostree runs the real ostree and returns what it prints. An error has its complaints;
// what a library of it complains of otherwise is left out.
func Ostree(args ...string) (string, error) {
	cmd := exec.Command("ostree", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // else it does not print names as they are
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("ostree %s: %w\n%s\n%s", strings.Join(args, " "), err, text, bytes.TrimSpace(complaints.Bytes()))
	}
	return text, nil
}

// Init makes a repository; mode is "bare" or "archive". The real ostree makes the first one of
// a process, of which later ones are copies.
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

// emptyRepo is a repository without anything in it.
func emptyRepo(mode string) (fs.FS, error) {
	return held(func(dir string) error {
		_, err := Ostree("init", "--repo="+dir, "--mode="+mode)
		return err
	})
}

// Archive makes an archive repository with one commit, of a tree with something big in it.
// The real ostree makes the first one of a process, of which later ones are copies.
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
	a.repo, err = held(func(repo string) (err error) {
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

// held is what a function makes in a new directory, held in memory: regular files and
// directories.
func held(make func(dir string) error) (_ fs.FS, err error) {
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

// Commit commits a tree as the next one of Branch and returns its checksum. The
// commit is that of an OS, with detached metadata and a fixed time.
func Commit(repo, tree string, args ...string) (checksum string, err error) {
	return Ostree(append([]string{
		"commit", "--repo=" + repo, "--branch=" + Branch, "--subject=a test", "--timestamp=@1700000000", "--bootable",
		"--add-metadata-string=version=" + Version, "--add-detached-metadata-string=test.signature=none", "--tree=dir=" + tree,
	}, args...)...)
}
