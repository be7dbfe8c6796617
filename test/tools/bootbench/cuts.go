package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"machine-pivot/test/worlds/vm"
)

// cutResult is what power cuts at random moments of a first boot leave.
type cutResult struct {
	Tried      int `json:"tried"`
	Unbootable int `json:"unbootable"` // the next boot would not start a system: see vm.Contents.State
	Partial    int `json:"partial"`    // repositories with a commit that is marked as partial, and nothing worse
	// Broken counts repositories in which ostree fsck finds a commit with a missing or damaged object. A later pull
	// takes an object for complete that has its name.
	Broken int    `json:"broken"`
	First  string `json:"first,omitempty"` // the first problem
}

// cutPower records the first power-on of a way, and cuts the power before count random writes of it. A random half
// of what was not flushed is lost.
func (w *world) cutPower(ctx context.Context, way way, count int) (result cutResult, err error) {
	m, err := w.machine(ctx, way)
	if err != nil {
		return result, err
	}
	dir := filepath.Join(w.dir, "recording")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), os.Remove(m.Disk)) }()
	if _, err := m.Boot(ctx, vm.BootOptions{ExtraArgs: way.arguments(), Record: dir}); err != nil {
		return result, fmt.Errorf("%s: %w", way.name, err)
	}
	recording, err := vm.OpenRecording(dir)
	if err != nil {
		return result, err
	}
	random := rand.New(rand.NewPCG(1, 0))
	for range count {
		cut := vm.Cut{Before: 1 + random.IntN(recording.Len()), Drop: true, Seed: random.Uint64()}
		if err := w.judge(ctx, recording, cut, &result); err != nil {
			return result, err
		}
	}
	w.say("%s: power cuts: %+v", way.name, result)
	return result, nil
}

// judge makes the disk after a power cut and adds what it finds to the result.
func (w *world) judge(ctx context.Context, recording *vm.Recording, cut vm.Cut, result *cutResult) (err error) {
	m := vm.Machine{Disk: filepath.Join(w.dir, "cut.img")}
	defer func() { err = errors.Join(err, os.Remove(m.Disk)) }()
	if err := recording.Rebuild(ctx, cut, m.Disk); err != nil {
		return err
	}
	result.Tried++
	disk, err := m.Open(ctx)
	if err != nil {
		result.note(&result.Unbootable, cut, err)
		return ctx.Err()
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	if _, err := disk.State(ctx); err != nil {
		result.note(&result.Unbootable, cut, err)
	}
	switch err := disk.Fsck(ctx); {
	case errors.Is(err, vm.ErrPartial):
		result.Partial++
	case err != nil:
		result.note(&result.Broken, cut, err)
	}
	return ctx.Err()
}

// note counts a problem after a power cut.
func (r *cutResult) note(count *int, cut vm.Cut, problem error) {
	*count++
	if r.First == "" {
		r.First = fmt.Sprintf("power cut %s: %v", cut, problem)
	}
}
