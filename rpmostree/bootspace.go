package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
)

// bootSpace is what a commit needs in the file system of /boot, and what that has, in bytes. libostree writes a directory
// with the kernel's files, and one with all boot entries, before it removes those of before. Since 2023.7 it removes the
// kernels of deployments that it drops first, where that helps (ostree-sysroot-deploy.c, auto_early_prune_old_deployments).
type bootSpace struct {
	files   int64 // the new directory of the kernel's files; 0 if a deployment has it
	entries int64 // the new directory of boot entries
	inodes  int64 // of both
	has     host.Space
	left    int64 // of kernels without a boot entry, which libostree removes before anything else
	prunes  bool  // libostree can remove kernels first
	dropped int64 // the kernels that it would remove
}

// pruneMargin is what libostree wants to be free, besides what it writes, or else removes kernels first.
const pruneMargin = 1 << 20

// fits reports whether there is room without removing anything that has a boot entry.
func (s bootSpace) fits() bool {
	return s.has.Free+s.left >= s.files+s.entries && s.has.Inodes >= s.inodes
}

// fitsPruned reports whether there is room if libostree removes kernels first: it does so only where it finds that enough,
// and writes boot entries without them before.
func (s bootSpace) fitsPruned() bool {
	free := s.has.Free + s.left
	return s.prunes && s.dropped > 0 && s.has.Inodes >= s.inodes && free >= s.entries &&
		(s.files <= s.dropped || free >= s.files-s.dropped+pruneMargin) && free+s.dropped >= s.files+2*s.entries
}

// CheckSpace implements pivot.Engine: it counts what libostree of this host's version writes and removes, in blocks and
// directories.
func (e *Ostree) CheckSpace(ctx context.Context, commit string) error {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return err
	}
	s, err := e.bootSpace(ctx, c)
	if err != nil || s.fits() || s.fitsPruned() {
		return err
	}
	if free := s.has.Free + s.left; free < s.files+s.entries {
		need := s.files + s.entries
		return fault.New(fault.CannotWrite, "cannot deploy commit %s: its kernel, initramfs and boot entry need %s, /boot has %s free", commit, printable.Size(need, free), printable.Size(free, need)).
			WithHint("remove a deployment that is no longer wanted (ostree admin undeploy, or rpm-ostree cleanup), and files of others in /boot")
	}
	return fault.New(fault.CannotWrite, "cannot deploy commit %s: it needs %d files and directories in /boot, which has room for %d", commit, s.inodes, s.has.Inodes).
		WithHint("remove files of others in /boot")
}

// bootSpace looks at /boot, for a commit in the repository.
func (e *Ostree) bootSpace(ctx context.Context, commit ostree.Checksum) (s bootSpace, err error) {
	look := e.Space
	if look == nil {
		look = host.SpaceAt
	}
	boot := e.Sysroot.BootPath("")
	if s.has, err = look(boot); err != nil {
		return s, err
	}
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return s, err
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return s, err
	}
	if err := s.count(e.Sysroot, commit, all, booted); err != nil {
		return s, err
	}
	tool, err := e.queryTool(ctx, "ostree")
	if err != nil {
		return s, err
	}
	same, err := host.SameFileSystem(e.Sysroot.RepoPath(), boot)
	s.prunes = tool.since(2023, 7) && !same
	return s, err
}

// count counts what libostree writes to /boot for a commit, and what it removes.
func (s *bootSpace) count(sysroot *ostree.Sysroot, commit ostree.Checksum, all []ostree.Deployment, booted ostree.Deployment) error {
	repo, err := ostree.OpenRepo(sysroot.RepoPath())
	if err != nil {
		return err
	}
	files, err := repo.BootFiles(commit)
	if err != nil {
		return err
	}
	s.writes(files)
	drops := dropped(all, booted)
	kept := map[string]bool{}
	for _, d := range all {
		have, err := repo.BootFiles(d.Checksum)
		if err == nil && d.Stateroot == booted.Stateroot && slices.Equal(have, files) {
			s.files = 0 // libostree names the directory by the stateroot and the checksum of the files
		}
		if !slices.ContainsFunc(drops, func(o ostree.Deployment) bool { return o.ID() == d.ID() }) {
			kept[path.Base(path.Dir(d.Entry.Linux))] = true
		}
		s.entry(int64(len(d.Entry.Options)) + entryText)
	}
	s.entry(entryText + maxOptions)
	return s.removes(sysroot.BootPath("ostree"), all, kept)
}

// entryText is the length of a boot entry without its options, and maxOptions what those of a new one may have; in bytes.
const (
	entryText  = 1024
	maxOptions = 2048
)

// writes counts the directory with the kernel's files, and the directories of the boot entries. Two blocks more are for
// directories that grow, and for the map of a file that is in pieces.
func (s *bootSpace) writes(files []ostree.BootFile) {
	dirs := map[string]bool{}
	for _, f := range files {
		s.files += s.blocks(f.Size)
		s.inodes++
		dirs[path.Dir(f.Path())] = true
	}
	s.files += int64(len(dirs)) * s.has.Block
	s.entries, s.inodes = 4*s.has.Block, s.inodes+int64(len(dirs))+4
}

func (s *bootSpace) entry(size int64) {
	s.entries += s.blocks(size)
	s.inodes++
}

func (s *bootSpace) blocks(size int64) int64 {
	return (size + s.has.Block - 1) / s.has.Block * s.has.Block
}

// removes counts the directories of kernels that no deployment has (left), and that only dropped deployments have.
func (s *bootSpace) removes(dir string, all []ostree.Deployment, kept map[string]bool) error {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot look at /boot: %w", err)
	}
	for _, name := range names {
		if _, err := ostree.ParseChecksum(name.Name()[strings.LastIndexByte(name.Name(), '-')+1:]); err != nil || !name.IsDir() || kept[name.Name()] {
			continue
		}
		size, err := allocated(filepath.Join(dir, name.Name()))
		if err != nil {
			return err
		}
		used := func(d ostree.Deployment) bool { return path.Base(path.Dir(d.Entry.Linux)) == name.Name() }
		if slices.ContainsFunc(all, used) {
			s.dropped += size
		} else {
			s.left += size
		}
	}
	return nil
}

// allocated returns what a directory and all that is in it take, in bytes.
func allocated(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(file, &st)
		}
		size += st.Blocks * 512
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cannot look at /boot: %w", err)
	}
	return size, nil
}
