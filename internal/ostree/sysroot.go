package ostree

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// Sysroot reads the deployments of a host. It never writes; libostree does.
type Sysroot struct {
	root     string // the host's "/"
	physical string // the root of the file system that holds /ostree
}

// ErrNotBooted is returned on a system that is not booted from an ostree deployment.
var ErrNotBooted = errors.New("not booted from an ostree deployment")

// OpenSysroot returns the sysroot of the host with the given root directory. On a booted host
// the physical root is ROOT/sysroot; otherwise it is the root directory itself.
func OpenSysroot(root string) *Sysroot {
	s := &Sysroot{root: root, physical: root}
	if _, err := os.Stat(filepath.Join(root, "sysroot/ostree/deploy")); err == nil {
		s.physical = filepath.Join(root, "sysroot")
	}
	return s
}

// Root returns the directory that is the host's "/".
func (s *Sysroot) Root() string { return s.root }

// Physical returns the root of the file system that holds /ostree. On a booted host it is a
// mount point.
func (s *Sysroot) Physical() string { return s.physical }

// RepoPath returns the path of the host's repository.
func (s *Sysroot) RepoPath() string { return filepath.Join(s.physical, "ostree/repo") }

// Deployment is one deployed commit.
type Deployment struct {
	DeploymentRef
	Path   string    // the root directory of the deployment
	Origin Origin    // zero if there is no .origin file
	Entry  BootEntry // zero if the deployment has none or it was not read
	Base   Checksum  // the commit without layered packages; the deployed one if there are none
}

// DeploymentRef names a deployment.
type DeploymentRef struct {
	Stateroot string
	Checksum  Checksum // of the commit
	Serial    int      // distinguishes deployments of the same commit
}

// ID returns STATEROOT-CHECKSUM.SERIAL, the ID that rpm-ostree uses.
func (d DeploymentRef) ID() string { return fmt.Sprintf("%s-%s.%d", d.Stateroot, d.Checksum, d.Serial) }

// Booted returns the booted deployment: the one with a directory that has the device and inode of the root directory
// (ostree-sysroot.c), or those that are recorded for it.
func (s *Sysroot) Booted() (Deployment, error) {
	_, err := os.Stat(filepath.Join(s.root, bootedRecord))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Deployment{}, fmt.Errorf("cannot find the booted deployment: %w", err)
	case err != nil:
		return Deployment{}, ErrNotBooted
	}
	booted, err := s.bootedInode()
	if err != nil {
		return Deployment{}, err
	}
	dir, err := s.dirOf(booted)
	if err != nil {
		return Deployment{}, err
	}
	if dir == "" {
		return Deployment{}, fmt.Errorf("cannot find the booted deployment: none below %s/ostree/deploy is the root directory", s.physical)
	}
	ref, err := refOf(dir)
	if err != nil {
		return Deployment{}, err
	}
	return s.Deployment(ref)
}

// deployments is the pattern of the directories of deployments; an .origin file matches, too.
const deployments = "ostree/deploy/*/deploy/*.[0-9]*"

// dirOf returns the directory of the deployment with a device and inode; "" if there is none.
func (s *Sysroot) dirOf(d inode) (string, error) {
	dirs, err := filepath.Glob(filepath.Join(s.physical, deployments))
	if err != nil {
		return "", fmt.Errorf("cannot find the booted deployment: %w", err)
	}
	for _, dir := range dirs {
		if st, err := statInode(dir); err != nil || st != d {
			continue
		}
		if _, err := refOf(dir); err == nil { // else it is not a deployment
			return dir, nil
		}
	}
	return "", nil
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

// refOf parses a deployment's path …/STATEROOT/deploy/CHECKSUM.SERIAL.
func refOf(dir string) (ref DeploymentRef, err error) {
	ref.Stateroot = filepath.Base(filepath.Dir(filepath.Dir(dir)))
	ref.Checksum, ref.Serial, err = parseTargetName(filepath.Base(dir))
	return ref, err
}

// parseTargetName parses CHECKSUM.SERIAL.
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

// base returns the base of a commit with layered packages, or the commit itself if it has
// none: an origin may request changes that need no new commit.
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

// Default returns the deployment of the default boot entry.
func (s *Sysroot) Default() (Deployment, error) {
	all, err := s.Deployments()
	if err == nil && len(all) == 0 {
		err = errors.New("there is no boot entry")
	}
	if err != nil {
		return Deployment{}, err
	}
	return all[0], nil
}

// Deployments returns the deployments that have boot entries, the default
// deployment first.
func (s *Sysroot) Deployments() ([]Deployment, error) {
	entries, err := s.BootEntries()
	if err != nil {
		return nil, err
	}
	var all []Deployment
	for _, e := range entries {
		ref, err := s.linked(e)
		if err != nil {
			return nil, fault.New(fault.Refused, "cannot follow boot entry %s: %w", e.File, err).WithHint("%s", s.linkRemedy(e))
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

// bootLink is what libostree accepts as ostree= in a boot entry (_ostree_sysroot_parse_bootlink).
const bootLink = `^/ostree/boot\.[01]/[^/]+/[^/]+/[0-9]+$`

// linked returns the deployment of a boot entry.
func (s *Sysroot) linked(e BootEntry) (DeploymentRef, error) {
	link := e.Ostree()
	if ok, err := regexp.MatchString(bootLink, link); !ok || err != nil {
		return DeploymentRef{}, cmp.Or(err, fmt.Errorf("its kernel argument ostree=%s names no deployment", link))
	}
	return s.Linked(link)
}

// linkRemedy returns what helps where a boot entry's link leads nowhere. All entries lead through the link /ostree/boot.N, and
// the running system's is one of them: where that link is broken, no entry is wrong.
func (s *Sysroot) linkRemedy(e BootEntry) string {
	boot, _, _ := strings.Cut(strings.TrimPrefix(e.Ostree(), "/ostree/"), "/")
	link := filepath.Join(s.physical, "ostree", boot)
	made, err := filepath.Glob(link + ".[01]")
	if _, broken := os.Stat(link); broken != nil && err == nil && len(made) == 1 {
		return fmt.Sprintf("the link that all boot entries lead through is broken, which libostree cannot mend either; where %s is read-only, mount -o remount,rw %s first: ln -sfn %s %s",
			s.physical, s.physical, filepath.Base(made[0]), link)
	}
	return "libostree cannot either, and changes no deployment as long as the entry is there: rename it, so that it does not begin with ostree-, or remove it"
}

// Left returns the deployments that have a directory but no boot entry, and do not run: what is staged, and what libostree
// removes at its next step.
func (s *Sysroot) Left() (left []Deployment, err error) {
	all, err := s.Deployments()
	if err != nil {
		return nil, err
	}
	booted, err := s.Booted()
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob(filepath.Join(s.physical, deployments))
	for _, dir := range dirs {
		ref, rerr := refOf(dir)
		has := func(d Deployment) bool { return d.DeploymentRef == ref }
		if rerr == nil && !has(booted) && !slices.ContainsFunc(all, has) {
			left = append(left, Deployment{DeploymentRef: ref, Path: dir})
		}
	}
	return left, err
}

// Linked returns the deployment to which a link of a boot entry or a kernel command line leads: the value of ostree=.
func (s *Sysroot) Linked(link string) (DeploymentRef, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(s.physical, link))
	if err != nil {
		return DeploymentRef{}, err
	}
	return refOf(dir)
}

// HasAboot reports whether a boot entry is for an Android boot image, that is, whether the file that it names exists
// below the physical root or /boot.
func (s *Sysroot) HasAboot(e BootEntry) bool {
	if e.Aboot == "" {
		return false
	}
	for _, path := range []string{filepath.Join(s.physical, e.Aboot), s.BootPath(e.Aboot)} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
