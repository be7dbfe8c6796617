package rpmostree

import (
	"fmt"
	"path"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// overlaysPath is where libostree keeps further initramfs files.
const overlaysPath = "/boot/ostree/initramfs-overlays"

// overlays returns the options that keep the initramfs files which the booted deployment has beside that of its image,
// such as those of "rpm-ostree initramfs-etc". "ostree admin deploy" gives a deployment only those that it is told, and
// a machine may need them to find its root. Another image gets them from rpm-ostree, which makes them anew.
func (e *Ostree) overlays(r pivot.Spec, booted ostree.Deployment) (options []string, err error) {
	if !r.Image.IsZero() {
		return nil, nil
	}
	entry, err := e.entryOf(booted)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the initramfs files of the boot entry: %w", err)
	}
	for _, name := range entry.Initrds {
		if file := path.Join("/boot", strings.TrimPrefix(name, "/boot/")); path.Dir(file) == overlaysPath {
			options = append(options, "--overlay-initrd="+file)
		}
	}
	return options, nil
}
