package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysroot reads the deployments of a host. It never writes; libostree does.
type Sysroot struct {
	root     string // what the host sees as "/"
	physical string // the root of the file system that holds /ostree
}

// ErrNotBooted is the error on a system that is not booted from an ostree deployment.
var ErrNotBooted = errors.New("not booted from an ostree deployment")

// OpenSysroot is the sysroot of the host with a root directory. On a booted host the
// physical root is /sysroot below it; otherwise the directory is itself the physical root.
func OpenSysroot(root string) *Sysroot {
	s := &Sysroot{root: root, physical: root}
	if _, err := os.Stat(filepath.Join(root, "sysroot/ostree/deploy")); err == nil {
		s.physical = filepath.Join(root, "sysroot")
	}
	return s
}

// Root is what the host sees as "/".
func (s *Sysroot) Root() string { return s.root }

// Physical is the root of the file system that holds /ostree; on a booted host a mount point.
func (s *Sysroot) Physical() string { return s.physical }

// RepoPath is where the host's repository is.
func (s *Sysroot) RepoPath() string { return filepath.Join(s.physical, "ostree/repo") }

// Deployment is one deployed commit.
type Deployment struct {
	DeploymentRef
	Path   string    // its root directory
	Origin Origin    // where it came from
	Entry  BootEntry // its boot entry; zero if it has none
	Base   Checksum  // the commit below layered packages; the deployed one if there are none
}

// DeploymentRef names a deployment.
type DeploymentRef struct {
	Stateroot string
	Checksum  Checksum // of the commit
	Serial    int      // counts the deployments of the same commit
}

// ID is STATEROOT-CHECKSUM.SERIAL, as rpm-ostree names it.
func (d DeploymentRef) ID() string { return fmt.Sprintf("%s-%s.%d", d.Stateroot, d.Checksum, d.Serial) }

// Booted is the booted deployment: the one whose directory is the root directory, by device
// and inode (ostree-sysroot.c).
func (s *Sysroot) Booted() (Deployment, error) {
	if _, err := os.Stat(filepath.Join(s.root, "run/ostree-booted")); err != nil {
		return Deployment{}, ErrNotBooted
	}
	booted, err := s.bootedInode()
	if err != nil {
		return Deployment{}, err
	}
	dirs, err := filepath.Glob(filepath.Join(s.physical, "ostree/deploy/*/deploy/*.[0-9]*"))
	if err != nil {
		return Deployment{}, fmt.Errorf("cannot find the booted deployment: %w", err)
	}
	for _, dir := range dirs {
		if st, err := statInode(dir); err != nil || st != booted {
			continue
		}
		ref, err := refOf(dir)
		if err != nil {
			continue // an .origin file, or not ostree's
		}
		return s.Deployment(ref)
	}
	return Deployment{}, fmt.Errorf("cannot find the booted deployment: none below %s/ostree/deploy is the root directory", s.physical)
}

// inode identifies a directory.
type inode struct{ dev, ino uint64 }

func statInode(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	return inode{st.Dev, st.Ino}, nil
}

// refOf reads a deployment's name from its path …/STATEROOT/deploy/CHECKSUM.SERIAL.
func refOf(dir string) (ref DeploymentRef, err error) {
	ref.Stateroot = filepath.Base(filepath.Dir(filepath.Dir(dir)))
	checksum, serial, err := parseTargetName(filepath.Base(dir))
	ref.Checksum, ref.Serial = checksum, serial
	return ref, err
}

// parseTargetName reads CHECKSUM.SERIAL.
func parseTargetName(name string) (Checksum, int, error) {
	text, number, _ := strings.Cut(name, ".")
	c, err := ParseChecksum(text)
	if err != nil {
		return c, 0, err
	}
	serial, err := strconv.Atoi(number)
	return c, serial, err
}

// Deployment reads a deployment's origin and base. Its boot entry is not read.
func (s *Sysroot) Deployment(ref DeploymentRef) (Deployment, error) {
	dir := filepath.Join(s.physical, "ostree/deploy", ref.Stateroot, "deploy", fmt.Sprintf("%s.%d", ref.Checksum, ref.Serial))
	d := Deployment{DeploymentRef: ref, Path: dir, Base: ref.Checksum}
	text, err := os.ReadFile(dir + ".origin")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Deployment{}, fmt.Errorf("cannot read deployment: %w", err)
	}
	if d.Origin, err = ParseOrigin(text); err != nil {
		return Deployment{}, fmt.Errorf("cannot read deployment %s: %w", ref.ID(), err)
	}
	if d.Origin.Layered() {
		if d.Base, err = s.base(ref.Checksum); err != nil {
			return Deployment{}, fmt.Errorf("cannot read deployment %s: %w", ref.ID(), err)
		}
	}
	return d, nil
}

// base is the commit to which packages were added to make another commit, or that commit
// itself: an origin may ask for changes that need no new commit.
func (s *Sysroot) base(commit Checksum) (Checksum, error) {
	repo, err := OpenRepo(s.RepoPath())
	if err != nil {
		return commit, err
	}
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return commit, err
	}
	if base := info.Base(); base != (Checksum{}) {
		return base, nil
	}
	return commit, nil
}

// Deployments lists the deployments that have boot entries; the first is the
// one that the next boot starts.
func (s *Sysroot) Deployments() ([]Deployment, error) {
	entries, err := s.BootEntries()
	if err != nil {
		return nil, err
	}
	var all []Deployment
	for _, e := range entries {
		link := e.Ostree()
		if link == "" {
			continue // not ostree's
		}
		dir, err := filepath.EvalSymlinks(filepath.Join(s.physical, link))
		if err != nil {
			return nil, fmt.Errorf("cannot follow boot entry %s: %w", e.File, err)
		}
		ref, err := refOf(dir)
		if err != nil {
			return nil, fmt.Errorf("cannot follow boot entry %s: %w", e.File, err)
		}
		d, err := s.Deployment(ref)
		if err != nil {
			return nil, err
		}
		d.Entry = e
		all = append(all, d)
	}
	return all, nil
}
