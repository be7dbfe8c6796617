package osimage

import (
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// CheckMountPoints returns an error unless a commit has, as real directories, what its boot mounts onto. It
// is called for images of all formats, before a ref to the commit is set (importer.accept) and again before
// an image that was downloaded earlier is used.
func CheckMountPoints(commit ostree.Checksum, setup ostree.PrepareRoot, in ostree.Objects) error {
	var missing []string
	for _, name := range setup.MountPoints() {
		has, err := in.HasDir(commit, name)
		if err != nil {
			return err
		}
		if !has {
			missing = append(missing, "/"+name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.New(fault.Refused, "the image would not boot: it lacks %s, as a directory: the boot mounts onto it, and cannot make it", strings.Join(missing, ", ")).
		WithHint("make it in the image's build, and let no layer remove or replace it: mkdir %s", strings.Join(missing, " "))
}

// CheckBootFiles returns an error unless libostree can make a boot entry of a commit that starts it. There is one
// kernel with an initramfs, what it copies to /boot are regular files of the commit with content, and the os-release
// has a name. It is called where CheckMountPoints is, and for a plan of an image that is in the repository.
func CheckBootFiles(commit ostree.Checksum, in ostree.Objects) error {
	files, err := in.BootFiles(commit)
	if err == nil {
		err = checkKernel(files)
	}
	if err == nil {
		err = checkContent(files)
	}
	if err == nil {
		err = checkRelease(commit, in)
	}
	return err
}

// checkKernel requires one kernel, of which libostree copies no link to /boot. If there are several, libostree
// takes the first that it finds.
func checkKernel(files []ostree.BootFile) error {
	var kernels []string
	for _, f := range files {
		if f.IsKernel() {
			kernels = append(kernels, path.Base(f.Dir))
		}
		if f.Target != "" && !staysInDeviceTrees(f) {
			return fault.New(fault.Refused, "the image would not boot: /%s is a symbolic link, to %s: libostree copies it to /boot as a link", f.Path(), f.Target).
				WithHint("let the image's build put the file itself at /%s", f.Path())
		}
	}
	slices.Sort(kernels)
	switch len(kernels) {
	case 1:
		return nil
	case 0:
		return fault.New(fault.Refused, "the image has no kernel: there is no /usr/lib/modules/*/vmlinuz").
			WithHint("use an image that is made for hosts (see pivot image check); one for containers has no kernel")
	}
	return fault.New(fault.Refused, "the image has %d kernels (%s), and nothing names the one to boot", len(kernels), strings.Join(kernels, ", ")).
		WithHint("remove the others in the image's build, as dnf remove kernel-core-VERSION does")
}

// checkContent requires an initramfs beside the kernel, and content in each file that libostree copies to /boot. Without
// an initramfs, libostree would have the kernel mount the root and run ostree-prepare-root as its init
// (ostree-sysroot-deploy.c, install_deployment_kernel), with an argument that nobody asked for. Device trees in a
// directory are many, of which the machine uses one.
func checkContent(files []ostree.BootFile) error {
	if !slices.ContainsFunc(files, ostree.BootFile.IsInitramfs) {
		kernel := files[slices.IndexFunc(files, ostree.BootFile.IsKernel)]
		return fault.New(fault.Refused, "the image has no initramfs beside its kernel, /%s: the new system would not find its root", kernel.Path()).
			WithHint("let the image's build make it, as dracut does: %s", path.Join(kernel.Dir, "initramfs.img"))
	}
	for _, f := range files {
		unused := f.Name == "initramfs" && slices.ContainsFunc(files, func(other ostree.BootFile) bool { return other.Name == "initramfs.img" })
		if f.Size == 0 && !unused && !strings.HasPrefix(f.Name, "dtb/") {
			return fault.New(fault.Refused, "the image would not boot: /%s is empty", f.Path()).
				WithHint("build the image again, with room on the disk of its builder, and try it with pivot image check")
		}
	}
	return nil
}

// staysInDeviceTrees reports whether a link is in the directory of device trees and leads to a path in it.
// The whole directory is copied, so that the link leads there in /boot, too.
func staysInDeviceTrees(f ostree.BootFile) bool {
	return !path.IsAbs(f.Target) && strings.HasPrefix(f.Name, "dtb/") && strings.HasPrefix(path.Join(path.Dir(f.Name), f.Target), "dtb/")
}

// checkRelease requires an os-release file with the name that libostree gives to the boot
// entry (ostree-sysroot-deploy.c, install_deployment_kernel). Only the first of the two files
// that can be read counts, and a key must be at the start of its line.
func checkRelease(commit ostree.Checksum, in ostree.Objects) error {
	for _, at := range []string{"usr/lib/os-release", "usr/etc/os-release"} {
		text, found, err := readLinked(commit, at, in)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if key, _, ok := strings.Cut(line, "="); ok && (key == "PRETTY_NAME" || key == "ID") {
				return nil
			}
		}
		break
	}
	return fault.New(fault.Refused, "the image has no PRETTY_NAME or ID in /usr/lib/os-release, from which its boot entry gets its name").
		WithHint("let the image's build keep or make /usr/lib/os-release")
}

// maxLinks is how many symbolic links are followed for one file; Linux has the same limit.
const maxLinks = 40

// readLinked reads a regular file of a commit. It follows symbolic links within the commit, but an absolute
// one counts as a missing file: libostree would follow it into the running system.
func readLinked(commit ostree.Checksum, at string, in ostree.Objects) (text []byte, found bool, err error) {
	for range maxLinks {
		f, found, err := in.Look(commit, at)
		switch {
		case err != nil || !found || f.IsDir:
			return nil, false, err
		case f.Target == "":
			return f.File, true, nil
		case path.IsAbs(f.Target):
			return nil, false, nil
		}
		at = path.Join(path.Dir(at), f.Target)
	}
	return nil, false, nil
}
