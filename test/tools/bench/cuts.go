package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"machine-pivot/test/tools/powercut"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/recorded"
	"machine-pivot/test/worlds/vm"
)

// afterImport is how long after an import the power can be cut, too. By then the kernel has written what nobody made
// durable, and a machine that shuts down has synced its disk.
const afterImport = 40 * time.Second

// cutResult is what power cuts at random moments leave of a contender's repository.
type cutResult struct {
	Contender string `json:"contender"`
	Image     string `json:"image"`
	powercut.Result
	During     int `json:"during"`     // how many of them were during the import; the others within afterImport
	Complete   int `json:"complete"`   // the image has its ref, and all of it is there
	Unreadable int `json:"unreadable"` // the file system cannot be mounted
}

// cutPower records an import of each contender that can be cut, and cuts the power at random moments.
func (w *world) cutPower(ctx context.Context, contenders []*contender) (all []cutResult, err error) {
	if missing := recorded.Missing(); len(missing) > 0 {
		return nil, fmt.Errorf("cannot cut the power here: lacking %s", strings.Join(missing, ", "))
	}
	for _, c := range contenders {
		s := c.steps[0]
		if s.output == floorDir || c.unavailable != "" {
			continue
		}
		w.say("%d power cuts: %s, %s", w.cuts, c.name, s.image.Name)
		result := cutResult{Contender: c.name, Image: s.image.Name}
		err := w.inTrial(func() error { return w.cutStep(ctx, s, &result) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, result)
	}
	return all, nil
}

// cutStep records one import, and judges what power cuts leave.
func (w *world) cutStep(ctx context.Context, s step, result *cutResult) (err error) {
	dir := filepath.Join(w.trial(), "recorded")
	moments, recording, err := w.record(ctx, s, dir, result)
	if err != nil {
		return err
	}
	for n, before := range moments {
		cut := vm.Cut{Before: before, Drop: true, Seed: uint64(n)}
		if err := result.judge(ctx, recording, cut, filepath.Join(w.trial(), "cut")); err != nil {
			return err
		}
	}
	return nil
}

// record imports an image into an empty repository on a recorded disk. It returns the recording, and how many of
// its entries had been written at random moments.
func (w *world) record(ctx context.Context, s step, dir string, result *cutResult) (_ []int, _ *vm.Recording, err error) {
	contents := filepath.Join(w.trial(), "contents")
	if err := errors.Join(os.MkdirAll(filepath.Join(contents, "ostree"), 0o755), os.Mkdir(dir, 0o755)); err != nil {
		return nil, nil, err
	}
	if err := ostreetree.Init(filepath.Join(contents, "ostree/repo"), "bare"); err != nil {
		return nil, nil, err
	}
	disk, err := recorded.Mount(ctx, dir, contents, int(3*w.bytes>>20)+512)
	if err != nil {
		return nil, nil, err
	}
	start := time.Now()
	err = os.Symlink(disk.Path("ostree/repo"), filepath.Join(w.trial(), repoDir))
	if err == nil {
		_, err = launch(ctx, w.job(s))
	}
	end := time.Now()
	if err == nil {
		select {
		case <-time.After(afterImport):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err = errors.Join(err, disk.Close()); err != nil {
		return nil, nil, err
	}
	random := rand.New(rand.NewPCG(w.seed, 0))
	within := func(from time.Time, length time.Duration) time.Time {
		return from.Add(time.Duration(random.Int64N(int64(length))))
	}
	moments := make([]time.Time, w.cuts)
	for n := range moments {
		if moments[n] = within(end, afterImport); n%2 == 0 {
			moments[n] = within(start, end.Sub(start))
			result.During++
		}
	}
	recording, counts, err := disk.Recording(moments)
	return counts, recording, err
}

// judge rebuilds the disk after a power cut as file and counts what it finds.
func (r *cutResult) judge(ctx context.Context, recording *vm.Recording, cut vm.Cut, file string) error {
	return r.Judge(ctx, recording, cut, file, &r.Unreadable, func(disk *vm.Contents) {
		refs, err := disk.Refs()
		if err != nil {
			r.Note(&r.Broken, cut, err)
			return
		}
		if r.Fsck(ctx, cut, disk) && slices.ContainsFunc(refs, func(ref string) bool { return strings.HasPrefix(ref, imageRefs) }) {
			r.Complete++
		}
	})
}

// imageRefs is where pivot and ostree-ext keep the refs of whole images. Those of layers, which come earlier, are
// elsewhere.
const imageRefs = "ostree/container/image/"
