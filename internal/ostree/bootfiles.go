package ostree

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// BootFile is a file that libostree copies to /boot when it deploys a commit.
type BootFile struct {
	Dir    string // path in the commit: the kernel's directory in modulesDir, or one of oldBootDirs
	Name   string // path relative to Dir
	Object Checksum
	Size   int64  // in bytes
	Target string // of a symbolic link, which libostree does not follow when it copies; otherwise ""
}

// Path returns the path of the file in the commit.
func (f BootFile) Path() string { return path.Join(f.Dir, f.Name) }

// IsKernel reports whether the file is a kernel.
func (f BootFile) IsKernel() bool {
	return f.Name == "vmlinuz" || strings.HasPrefix(f.Name, "vmlinuz-")
}

// IsInitramfs reports whether the file is an initramfs.
func (f BootFile) IsInitramfs() bool { return strings.HasPrefix(f.Name, "initramfs") }

// modulesDir is the directory in a commit that contains its kernel (ostree's adapting
// guide, "Kernel and initramfs").
const modulesDir = "usr/lib/modules"

// oldBootDirs returns the directories that have the kernel of old commits, of which the first that exists
// counts.
func oldBootDirs() []string { return []string{"usr/lib/ostree-boot", "boot"} }

// BootFiles returns the kernel, initramfs and device trees of a commit, from where libostree
// takes them (ostree-sysroot-deploy.c, get_kernel_from_tree), or none if it would find no kernel.
// libostree keeps one copy on /boot for all commits with the same files. If modulesDir has several
// kernels, of which libostree takes any, the files of all are returned.
func (at Objects) BootFiles(c Checksum) ([]BootFile, error) {
	files, err := at.moduleBootFiles(c)
	if err != nil || slices.ContainsFunc(files, BootFile.IsInitramfs) {
		return files, err
	}
	old, err := at.oldBootFiles(c)
	if err == nil && slices.ContainsFunc(old, BootFile.IsKernel) && (len(files) == 0 || slices.ContainsFunc(old, BootFile.IsInitramfs)) {
		files = old
	}
	return files, err
}

// moduleBootFiles returns the files of the directories in modulesDir that have a kernel.
func (at Objects) moduleBootFiles(c Checksum) ([]BootFile, error) {
	tree, found, err := at.directory(c, modulesDir)
	if err != nil || !found {
		return nil, err
	}
	var files []BootFile
	for kernel := range tree.allDirs() {
		found, err := at.kernelFiles(kernel.tree, path.Join(modulesDir, string(kernel.name)), "")
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(found, BootFile.IsKernel) {
			files = append(files, found...)
		}
	}
	return files, nil
}

// copied reports whether libostree copies a file of a kernel's directory to /boot.
func copied(name string) bool {
	return slices.Contains([]string{"vmlinuz", ".vmlinuz.hmac", "initramfs.img", "initramfs", "aboot.img", "devicetree"}, name)
}

// kernelFiles returns the files in a kernel's directory that libostree copies to /boot. below
// is the path of the directory relative to the kernel's: "", or one in the device tree
// directory.
func (at Objects) kernelFiles(c Checksum, kernel, below string) ([]BootFile, error) {
	tree, err := at.loadTree(c)
	if err != nil {
		return nil, err
	}
	var files []BootFile
	for f := range tree.allFiles() {
		name := path.Join(below, string(f.name))
		if below == "" && !copied(name) {
			continue
		}
		file, err := at.bootFile(kernel, name, f.file)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	for d := range tree.allDirs() {
		if below == "" && string(d.name) != "dtb" {
			continue
		}
		found, err := at.kernelFiles(d.tree, kernel, path.Join(below, string(d.name)))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// oldBootFiles returns the files of the first of oldBootDirs that exists, as libostree names them: each has
// a checksum as suffix.
func (at Objects) oldBootFiles(c Checksum) (files []BootFile, err error) {
	for _, dir := range oldBootDirs() {
		tree, found, err := at.directory(c, dir)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		for f := range tree.allFiles() {
			name := string(f.name)
			kind, _, _ := strings.Cut(name, "-")
			_, noSum := ParseChecksum(name[strings.LastIndexByte(name, '-')+1:])
			if noSum != nil || !slices.Contains([]string{"vmlinuz", "initramfs", "devicetree"}, kind) {
				continue
			}
			file, err := at.bootFile(dir, name, f.file)
			if err != nil {
				return nil, err
			}
			files = append(files, file)
		}
		return files, nil
	}
	return nil, nil
}

func (at Objects) bootFile(dir, name string, object Checksum) (BootFile, error) {
	file := at(ObjectName{object, File})
	info, err := os.Lstat(file)
	if err != nil {
		return BootFile{}, fmt.Errorf("cannot look at %s: %w", path.Join(dir, name), err)
	}
	target, _ := os.Readlink(file) // an error for a regular file
	return BootFile{dir, name, object, info.Size(), target}, nil
}
