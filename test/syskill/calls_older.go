//go:build !arm64

package syskill

import "golang.org/x/sys/unix"

// effectsWithoutDirectory are the calls that take a path without a directory's
// descriptor. Younger architectures do not have them.
func effectsWithoutDirectory() map[uint32]string {
	return map[uint32]string{
		unix.SYS_RENAME: "rename", unix.SYS_LINK: "link", unix.SYS_SYMLINK: "symlink",
		unix.SYS_UNLINK: "unlink", unix.SYS_MKDIR: "mkdir",
	}
}
