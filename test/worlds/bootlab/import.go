package bootlab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Import imports an image from the registry into a new bare repository on the host, with the
// installed program. It returns the directory of the commit's tree, checked out with owners, modes
// and labels.
func (l *Lab) Import(ctx context.Context, image string) (tree string, err error) {
	dir, err := os.MkdirTemp(l.dir, "import-*")
	if err != nil {
		return "", err
	}
	repo := filepath.Join(dir, "repo")
	if out, err := exec.CommandContext(ctx, "ostree", "init", "--repo="+repo, "--mode=bare").CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot make a repository: %w\n%s", err, out)
	}
	if _, err := l.onImage(ctx, dir, "import", image, "--repo", repo); err != nil {
		return "", err
	}
	ref, err := exec.CommandContext(ctx, "ostree", "refs", "--repo="+repo, "--list", "ostree/container/image").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find what was imported: %w", err)
	}
	tree = filepath.Join(dir, "tree")
	if out, err := exec.CommandContext(ctx, "ostree", "checkout", "--repo="+repo, strings.TrimSpace(string(ref)), tree).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot check out what was imported: %w\n%s", err, out)
	}
	return tree, nil
}
