package osimage

import (
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// CheckMountPoints returns an error unless a commit has, as real directories, what its boot mounts onto. It
// is called for images of all formats, before a ref to the commit is set (importer.accept) and again before
// an image that was downloaded earlier is used.
func CheckMountPoints(commit ostree.Checksum, setup ostree.PrepareRoot, hasDir func(ostree.Checksum, string) (bool, error)) error {
	var missing []string
	for _, name := range setup.MountPoints() {
		has, err := hasDir(commit, name)
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
