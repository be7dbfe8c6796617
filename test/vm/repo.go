package vm

import (
	"context"
	"fmt"
	"strings"
)

// LackingToMount names what this machine lacks to mount a disk, as Refs and Fsck do,
// beside what all need; none if it can.
func LackingToMount() []string { return Layout{SeparateBoot: true}.Missing() }

// Refs names the refs in the ostree repository on a powered-off machine's disk, sorted.
func (m *Machine) Refs(ctx context.Context) ([]string, error) {
	const script = `cd "$1/ostree/repo/refs/heads"; find . -type f -printf '%P\n' | LC_ALL=C sort; cd /`
	out, err := m.onRoot(ctx, script)
	if err != nil {
		return nil, fmt.Errorf("cannot list refs: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// Fsck says what of the ostree repository on a powered-off machine's disk is not whole:
// an object that is not what its name says, a commit that lacks one or is marked as
// partial, a ref to no commit.
func (m *Machine) Fsck(ctx context.Context) error {
	const script = `ostree fsck --quiet --repo="$1/ostree/repo"; find "$1/ostree/repo/state" -name '*.commitpartial' | sed 's/$/ is there/;q1'`
	if _, err := m.onRoot(ctx, script); err != nil {
		return fmt.Errorf("the repository is not whole: %w", err)
	}
	return nil
}

// onRoot runs a script with the root file system mounted read-only at "$1", and returns
// what it prints.
func (m *Machine) onRoot(ctx context.Context, script string) ([]byte, error) {
	c, err := m.contents(ctx)
	if err != nil {
		return nil, err
	}
	return c.root.mounted(ctx, "ro", script)
}
