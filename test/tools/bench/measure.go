package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/test/worlds/ostreetree"
)

// sample is the measurement of one step.
type sample struct {
	Wall    float64 `json:"wall_seconds"`
	CPU     float64 `json:"cpu_seconds"`
	Peak    int64   `json:"peak_bytes"`
	Written int64   `json:"written_bytes"`    // see usage
	Handed  int64   `json:"write_call_bytes"` // see usage
	Device  int64   `json:"device_bytes"`     // written to the block device by all processes; 0 if it has no counter
	Fetched int64   `json:"fetched_bytes"`    // sent by the registry
	Objects sizes   `json:"new_objects"`
	Serving float64 `json:"registry_cpu_seconds"` // CPU time of this process meanwhile, not in the other figures
	Phases  []usage `json:"phases"`
}

// measure runs the contenders in turn.
func (w *world) measure(ctx context.Context) (*report, error) {
	contenders := w.contenders(ctx)
	for round := range w.rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			if c.unavailable != "" {
				continue
			}
			w.say("round %d of %d: %s, %s", round+1, w.rounds, c.name, c.steps[0].image.Name)
			err := w.inTrial(func() error { return w.run(ctx, c) })
			if err != nil && c.rival && ctx.Err() == nil {
				w.say("%s: %v", c.name, err)
				c.unavailable = err.Error()
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	r := w.report(contenders)
	if w.cuts > 0 {
		var err error
		if r.Cuts, err = w.cutPower(ctx, contenders); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// inTrial calls f with an empty trial directory and removes it afterwards.
func (w *world) inTrial(f func() error) (err error) {
	if err := os.Mkdir(w.trial(), 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(w.trial())) }()
	return f()
}

// run runs a contender once. The result of each step's first run is verified.
func (w *world) run(ctx context.Context, c *contender) error {
	if err := ostreetree.Init(filepath.Join(w.trial(), repoDir), "bare"); err != nil {
		return err
	}
	for n := range c.steps {
		s := &c.steps[n]
		got, err := w.step(ctx, *s)
		if err == nil && len(s.samples) == 0 {
			err = w.verify(c, *s)
		}
		if err != nil {
			return fmt.Errorf("%s image: %w", s.image.Name, err)
		}
		s.samples = append(s.samples, got)
	}
	return nil
}

func (w *world) step(ctx context.Context, s step) (sample, error) {
	if s.deployed != "" {
		if err := w.deploy(s.deployed); err != nil {
			return sample{}, err
		}
	}
	output := filepath.Join(w.trial(), s.output)
	before, err := sizesOf(output)
	if err != nil {
		return sample{}, err
	}
	if err := w.cool(s.image); err != nil {
		return sample{}, err
	}
	device, served, serving := deviceWritten(w.dir), w.registry.BytesServed(), ownCPU()
	usages, err := launch(ctx, w.job(s))
	if err != nil {
		return sample{}, err
	}
	got := sample{Phases: usages, Fetched: w.registry.BytesServed() - served, Serving: ownCPU() - serving}
	syncAll()
	got.Device = deviceWritten(w.dir) - device
	for _, u := range usages {
		got.Wall += u.Wall
		got.CPU += u.CPU
		got.Peak = max(got.Peak, u.Peak)
		got.Written += u.Written
		got.Handed += u.Handed
	}
	after, err := sizesOf(output)
	got.Objects = after.minus(before)
	return got, err
}

// ownCPU returns the CPU time used so far by this process, which includes the registry.
func ownCPU() float64 {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

// cool drops the page cache. It then reads the registry's files into the cache again, because they
// stand for the network: the registry's disk is not to be measured.
func (w *world) cool(i image) error {
	syncAll()
	if err := dropCaches(); err != nil {
		w.coldCache = false
	}
	inputs, err := w.inputs(i)
	if err != nil {
		return err
	}
	for _, path := range inputs {
		if err := readThrough(path); err != nil {
			return err
		}
	}
	return nil
}

// inputs returns the files of an image; for the floor, the packs.
func (w *world) inputs(i image) (paths []string, err error) {
	for _, layer := range i.Layers {
		paths = append(paths, filepath.Join(w.blobs(), "sha256", layer))
	}
	if len(paths) == 0 {
		return filepath.Glob(filepath.Join(w.packs(), "*"))
	}
	return paths, nil
}

func readThrough(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}
