package ostree

import (
	"fmt"
	"os"
	"path"
	"slices"
)

// BootFile is a file that libostree copies to /boot when it deploys a commit.
type BootFile struct {
	Name   string // path relative to usr/lib/modules/KERNEL
	Object Checksum
	Size   int64 // in bytes
}

// modulesDir is the directory in a commit that contains its kernel (ostree's adapting
// guide, "Kernel and initramfs").
const modulesDir = "usr/lib/modules"

// BootFiles returns the kernel, initramfs and device trees of a complete commit, or none if
// they are not in modulesDir, as in old commits. libostree keeps one copy on /boot for all
// commits with the same files.
func (r *Repo) BootFiles(c Checksum) ([]BootFile, error) {
	tree, found, err := locator(r.objectPath).directory(c, modulesDir)
	if err != nil || !found {
		return nil, err
	}
	var files []BootFile
	for kernel := range tree.allDirs() {
		found, err := r.kernelFiles(kernel.tree, "")
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// kernelFiles returns the files in a kernel's directory that libostree copies to /boot. below
// is the path of the directory relative to the kernel's: "", or one in the device tree
// directory.
func (r *Repo) kernelFiles(c Checksum, below string) ([]BootFile, error) {
	tree, err := r.loadTree(c)
	if err != nil {
		return nil, err
	}
	var files []BootFile
	for f := range tree.allFiles() {
		name := path.Join(below, string(f.name))
		if below == "" && !slices.Contains([]string{"vmlinuz", "initramfs.img", "initramfs", "devicetree"}, name) {
			continue
		}
		info, err := os.Lstat(r.objectPath(ObjectName{f.file, File}))
		if err != nil {
			return nil, fmt.Errorf("cannot look at %s: %w", name, err)
		}
		files = append(files, BootFile{name, f.file, info.Size()})
	}
	for d := range tree.allDirs() {
		if below == "" && string(d.name) != "dtb" {
			continue
		}
		found, err := r.kernelFiles(d.tree, path.Join(below, string(d.name)))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}
