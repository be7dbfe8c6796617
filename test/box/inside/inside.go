// Package inside is what both sides of a new box tell each other: the process that starts it (package box), and its PID
// 1 until that is systemd (command enter).
package inside

// File descriptors of the PID 1.
const (
	Status = 3 + iota // receives why it cannot become systemd; closed when it is
	Begin             // at its end, the box has its network namespace's listeners
	Disk              // the disk
)

// Config describes a box.
type Config struct {
	Root            string       // an empty directory for what the box has as its initramfs
	FileSystems     []FileSystem // on the disk, the root first
	Cmdline         string       // the kernel command line
	Console, Report string       // terminals of this host
	HostAddress     string       // IPv4
}

// FileSystem is a file system on the disk.
type FileSystem struct {
	Kind         string // as mount(2) names it
	Boot         bool   // it is /boot; else the root
	Offset, Size int64  // in bytes
}
