package machine

import (
	"bytes"
	"os"
	"path"
	"path/filepath"

	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/rehearse"
)

// OwnOf returns what a new system has of a machine without a MachineConfig for it: files of the running /etc which the running
// image does not have. What cannot be read is left out: a rehearsal only warns about it.
func OwnOf(h *host.Host) *rehearse.Own {
	own := &rehearse.Own{}
	for _, pattern := range rehearse.Patterns() {
		files, _ := filepath.Glob(h.Path(pattern))
		for _, file := range files {
			name, _ := filepath.Rel(h.Path("/"), file)
			addOwn(own, h, "/"+name)
		}
	}
	links, _ := filepath.Glob(h.Path("/etc/systemd/system/*.*/*.service"))
	for _, link := range links {
		own.Enabled = append(own.Enabled, filepath.Base(link))
	}
	return own
}

// addOwn adds a file of the running /etc, unless it is the image's.
func addOwn(own *rehearse.Own, h *host.Host, name string) {
	content, err := hostfiles.ReadDropIn(h.Root, name)
	shipped, _ := os.ReadFile(h.Path(path.Join("/usr", name)))
	if err != nil || bytes.Equal(content, shipped) {
		return
	}
	f := rehearse.File{Content: content, Mode: 0o644}
	if at, ok, err := hostfiles.Look(h.Root, name); ok && err == nil && at.Kind == hostfiles.KindFile {
		f.Mode, f.GID = uint32(at.Mode.Perm()), at.GID
	}
	own.Add(name, f)
}
