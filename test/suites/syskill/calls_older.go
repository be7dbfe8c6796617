//go:build !arm64

package syskill

import "golang.org/x/sys/unix"

// effectsWithoutDirectory returns the calls that take a path without a directory descriptor. Newer
// architectures lack them.
func effectsWithoutDirectory() map[uint32]call {
	return map[uint32]call{
		unix.SYS_RENAME: {effect: "rename"}, unix.SYS_LINK: {effect: "link"}, unix.SYS_SYMLINK: {effect: "symlink"},
		unix.SYS_UNLINK: {effect: "unlink"}, unix.SYS_RMDIR: {effect: "unlink"}, unix.SYS_MKDIR: {effect: "mkdir"}, unix.SYS_MKNOD: {effect: "mknod"},
		unix.SYS_CHMOD: {effect: "chmod"}, unix.SYS_CHOWN: {effect: "chown"}, unix.SYS_LCHOWN: {effect: "chown"},
		unix.SYS_CREAT: {effect: "create"}, unix.SYS_OPEN: {effect: "create", flags: creates, flagsIn: 1},
	}
}
