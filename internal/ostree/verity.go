package ostree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// verity says whether the objects of a repository get fs-verity.
type verity uint8

const (
	verityNo    verity = iota
	verityMaybe        // if the file system supports it
	verityYes          // required
)

// wantedVerity reads what a repository's configuration wants, as libostree does (_ostree_repo_parse_fsverity_config):
// ex-integrity.fsverity (by default "maybe" for a repository with composefs), and the older ex-fsverity.required and
// ex-fsverity.opportunistic.
func wantedVerity(f KeyFile) (verity, error) {
	composefs, err := verityValue(f, "ex-integrity", "composefs", verityNo)
	if err != nil {
		return verityNo, err
	}
	wanted, err := verityValue(f, "ex-integrity", "fsverity", min(composefs, verityMaybe))
	if err != nil || wanted != verityNo {
		return wanted, err
	}
	required, err := verityValue(f, "ex-fsverity", "required", verityNo)
	if err != nil || required == verityYes {
		return required, err
	}
	opportunistic, err := verityValue(f, "ex-fsverity", "opportunistic", verityNo)
	return min(opportunistic, verityMaybe), err
}

// verityValue reads one setting: a boolean or "maybe".
func verityValue(f KeyFile, group, key string, otherwise verity) (verity, error) {
	text, found := f.Value(group, key)
	switch {
	case !found:
		return otherwise, nil
	case text == "maybe":
		return verityMaybe, nil
	}
	on, err := parseBool(text)
	if err != nil {
		return verityNo, fmt.Errorf("%s.%s: %w", group, key, err)
	}
	return map[bool]verity{true: verityYes}[on], nil
}

// NoVerityError is the error for a repository that requires fs-verity by its configuration, on a file system that does
// not support it.
type NoVerityError struct{ Path string }

func (e *NoVerityError) Error() string {
	return "repository " + e.Path + " requires fs-verity (ex-integrity.fsverity), which its file system does not support"
}

// GivesVerity reports whether the objects that an import publishes get fs-verity: the
// repository's configuration wants it, and its file system supports it. If it is required but
// not supported, the error is a NoVerityError. Nothing is written.
func (r *Repo) GivesVerity() (bool, error) {
	if r.config.verity == verityNo {
		return false, nil
	}
	supported, err := supportsVerity(filepath.Join(r.path, "config"))
	if err != nil {
		return false, fmt.Errorf("cannot tell whether repository %s can have fs-verity: %w", r.path, err)
	}
	if !supported && r.config.verity == verityYes {
		return false, &NoVerityError{r.path}
	}
	return supported, nil
}

// supportsVerity reports whether the file system of a file supports fs-verity: one that does
// can say whether this file has it.
func supportsVerity(path string) (bool, error) {
	_, supported, err := measureVerity(path)
	return supported, err
}

// VerityDigest returns the fs-verity digest of a file, which must be by SHA-256. found is false if the file has
// no fs-verity.
func VerityDigest(path string) (digest Checksum, found bool, err error) {
	measured, _, err := measureVerity(path)
	if err != nil || measured == nil {
		return digest, false, err
	}
	if len(measured) != len(digest) {
		return digest, false, fmt.Errorf("cannot use the fs-verity digest of %s: it has %d bytes, that of SHA-256 has %d", path, len(measured), len(digest))
	}
	return Checksum(measured), true, nil
}

// measureVerity returns the fs-verity digest of a file, or nil if it has none, and whether its file system
// supports fs-verity.
func measureVerity(path string) (digest []byte, supported bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	measured := struct {
		unix.FsverityDigest
		digest [64]byte // room for the longest digest
	}{FsverityDigest: unix.FsverityDigest{Size: 64}}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.FS_IOC_MEASURE_VERITY, uintptr(unsafe.Pointer(&measured)))
	switch errno {
	case 0:
		return measured.digest[:min(int(measured.Size), len(measured.digest))], true, nil
	case unix.ENODATA:
		return nil, true, nil
	case unix.ENOTTY, unix.EOPNOTSUPP:
		return nil, false, nil
	}
	return nil, false, os.NewSyscallError("ioctl(FS_IOC_MEASURE_VERITY)", errno)
}

// HasVerity reports whether a regular file has fs-verity. It does not follow a symbolic link.
func HasVerity(path string) (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st); err != nil {
		return false, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	return st.Attributes&unix.STATX_ATTR_VERITY != 0, nil
}

// How often and how long enableVerity waits for the end of another program's copy of a file
// descriptor: a child process has one between fork and exec.
const (
	busyTries = 200
	busyPause = 5 * time.Millisecond
)

// enableVerity gives an open file fs-verity in the format that libostree uses: SHA-256, blocks of
// 4096 bytes, no salt. The file must be open for reading, and no process may have it open for
// writing. From then on its content cannot be changed, and what is read is verified; owner, mode
// and attributes can still be changed.
func enableVerity(f *os.File) error {
	arg := unix.FsverityEnableArg{Version: 1, Hash_algorithm: 1, Block_size: 4096}
	for try := 0; ; try++ {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.FS_IOC_ENABLE_VERITY, uintptr(unsafe.Pointer(&arg)))
		switch {
		case errno == 0, errno == unix.EEXIST:
			return nil
		case errno == unix.EINTR:
		case errno == unix.ETXTBSY && try < busyTries:
			time.Sleep(busyPause)
		default:
			return os.NewSyscallError("ioctl(FS_IOC_ENABLE_VERITY)", errno)
		}
	}
}

// verityBytes returns how many bytes the kernel uses for the fs-verity of a file of a size. They are a block for the
// descriptor, and a tree of hashes over its blocks: each level has one hash of 32 bytes per block of the level below. A
// file of one block has no tree.
func verityBytes(size int64) uint64 {
	const block, hashes = 4096, 4096 / 32
	var blocks int64 = 1
	for level := (size + block - 1) / block; level > 1; {
		level = (level + hashes - 1) / hashes
		blocks += level
	}
	return uint64(blocks * block)
}

// lacksSupport reports whether an error of enableVerity means that the file system has no
// fs-verity.
func lacksSupport(err error) bool {
	return errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP)
}
