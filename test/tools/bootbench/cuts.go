package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"machine-pivot/test/tools/powercut"
	"machine-pivot/test/worlds/vm"
)

// cutResult is what power cuts at random moments of a first boot leave.
type cutResult struct {
	powercut.Result
	Unbootable int `json:"unbootable"` // the next boot would not start a system: see vm.Contents.State
}

// cutPower records the first power-on of a way, and cuts the power before count random writes. A random half of what
// was not flushed is lost.
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

// judge adds what a power cut leaves to the result.
func (w *world) judge(ctx context.Context, recording *vm.Recording, cut vm.Cut, result *cutResult) error {
	return result.Judge(ctx, recording, cut, filepath.Join(w.dir, "cut.img"), &result.Unbootable, func(disk *vm.Contents) {
		if _, err := disk.State(ctx); err != nil {
			result.Note(&result.Unbootable, cut, err)
		}
		result.Fsck(ctx, cut, disk)
	})
}
