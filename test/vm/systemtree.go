package vm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// SystemTree makes a guest of a directory with a whole system, as "ostree checkout" or the
// unpacked file system of a container gives it. It is A; there is no B. Nothing is added to
// it: its kernel and its initramfs are those in /usr/lib/modules, where ostree wants them.
// dir becomes the directory of the repository.
func SystemTree(ctx context.Context, tree, dir string) (*Guest, error) {
	for _, file := range []string{"vmlinuz", "initramfs.img"} {
		found, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*", file))
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("it has %d files usr/lib/modules/VERSION/%s, and ostree boots a system with just one", len(found), file)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot make a guest of %s: %w", tree, err)
		}
	}
	if missing := lackingPrivilege(); len(missing) > 0 {
		return nil, fmt.Errorf("cannot make a guest of %s: lacking %s", tree, strings.Join(missing, ", "))
	}
	if _, err := run(ctx, "ostree", "init", "--repo="+dir, "--mode=bare"); err != nil {
		return nil, err
	}
	commit, err := run(ctx, "ostree", "commit", "--repo="+dir, "--branch=os/a", "--disable-fsync", "--tree=dir="+tree)
	if err != nil {
		return nil, fmt.Errorf("cannot make a guest of %s: %w", tree, err)
	}
	return &Guest{CommitA: strings.TrimSpace(string(commit)), repoA: dir}, nil
}
