package rpmostree

import (
	"context"

	"machine-pivot/pivot"
)

// UpdateAtOnce asks the daemon for another image and other packages. It is for TestAtOnceKilled, which kills its process.
func UpdateAtOnce(ctx context.Context, root, commit string, changes []pivot.PackageChange, show func(line string)) error {
	image := &rebase{request: pivot.Spec{Commit: commit, Image: pivot.Image{Native: true}}}
	return update{image: image, changes: changes}.do(ctx, root, "os", show)
}
