// Package powercut counts what power cuts leave of a recorded disk, for the benchmarks.
package powercut

import (
	"context"
	"errors"
	"fmt"
	"os"

	"machine-pivot/test/worlds/vm"
)

// Result is what power cuts left of the repositories on a disk.
type Result struct {
	Tried   int `json:"tried"`
	Partial int `json:"partial"` // with a commit that is marked as partial, and nothing worse
	// Broken counts those in which ostree fsck finds a commit with a missing or damaged object. A later pull
	// takes an object for complete that has its name.
	Broken int    `json:"broken"`
	First  string `json:"first,omitempty"` // the first problem
}

// Judge makes the disk after a power cut as a file, and calls look with it. unusable counts disks that cannot be
// opened.
func (r *Result) Judge(ctx context.Context, recording *vm.Recording, cut vm.Cut, file string, unusable *int, look func(disk *vm.Contents)) (err error) {
	if err := recording.Rebuild(ctx, cut, file); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	r.Tried++
	disk, err := (&vm.Machine{Disk: file}).Open(ctx)
	if err != nil {
		r.Note(unusable, cut, err)
		return ctx.Err()
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	look(disk)
	return ctx.Err()
}

// Fsck counts what ostree fsck finds in the repository of a disk, and reports whether that is nothing.
func (r *Result) Fsck(ctx context.Context, cut vm.Cut, disk *vm.Contents) (clean bool) {
	switch err := disk.Fsck(ctx); {
	case errors.Is(err, vm.ErrPartial):
		r.Partial++
	case err != nil:
		r.Note(&r.Broken, cut, err)
	default:
		return true
	}
	return false
}

// Note counts a problem after a power cut.
func (r *Result) Note(count *int, cut vm.Cut, problem error) {
	*count++
	if r.First == "" {
		r.First = fmt.Sprintf("power cut %s: %v", cut, problem)
	}
}
