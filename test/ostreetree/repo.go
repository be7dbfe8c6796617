package ostreetree

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
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

// Init makes a repository; mode is "bare" or "archive".
func Init(repo, mode string) error {
	_, err := Ostree("init", "--repo="+repo, "--mode="+mode)
	return err
}

// Commit commits a tree as the next one of Branch and returns its checksum. The
// commit is that of an OS, with detached metadata and a fixed time.
func Commit(repo, tree string, args ...string) (checksum string, err error) {
	return Ostree(append([]string{
		"commit", "--repo=" + repo, "--branch=" + Branch, "--subject=a test", "--timestamp=@1700000000", "--bootable",
		"--add-metadata-string=version=" + Version, "--add-detached-metadata-string=test.signature=none", "--tree=dir=" + tree,
	}, args...)...)
}
