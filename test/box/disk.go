package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"machine-pivot/test/worlds/recorded"
	"machine-pivot/test/worlds/vm"
)

// disk is the disk of a running box.
type disk struct {
	path   string
	file   *os.File         // what the loop devices are made of
	export *recorded.Export // nil: nothing is recorded
	record string           // the directory of the recording
	end    int64            // of the recording's log, in bytes, if the power was cut; else 0
}

// openDisk opens the disk for one boot. It is recorded if the caller wants that or may cut the power.
func openDisk(ctx context.Context, dir string, p vm.PowerOn) (_ *disk, err error) {
	d := &disk{path: p.Disk, record: p.Record}
	if p.Record == "" && !p.MayBeCut {
		d.file, err = os.OpenFile(p.Disk, os.O_RDWR, 0)
		return d, err
	}
	if missing := recorded.MissingToExport(); len(missing) > 0 {
		return nil, fmt.Errorf("cannot record a box's disk: lacking %s", strings.Join(missing, ", "))
	}
	if d.record == "" {
		d.record = filepath.Join(dir, "record")
		if err := os.Mkdir(d.record, 0o700); err != nil {
			return nil, fmt.Errorf("cannot record a box's disk: %w", err)
		}
	}
	if d.export, err = recorded.StartExport(ctx, d.record, p.Disk); err != nil {
		return nil, err
	}
	if d.file, err = d.export.Open(ctx); err != nil {
		return nil, errors.Join(err, d.export.Close())
	}
	return d, nil
}

// cut notes the moment of a power cut. The box is killed after it.
func (d *disk) cut() (err error) {
	if d.export != nil {
		d.end, err = d.export.Size()
	}
	return err
}

// close waits until nothing uses the disk, and ends its recording. After a power cut the disk is what had been
// flushed.
func (d *disk) close(ctx context.Context) error {
	backing := d.file.Name()
	if d.export != nil {
		backing = d.export.Name()
	}
	// Not the caller's context, which may have ended: the disk must be free anyway.
	err := errors.Join(unused(backing), d.file.Close())
	if d.export == nil {
		return err
	}
	if err = errors.Join(err, d.export.Close()); err != nil || d.end == 0 {
		return err
	}
	if err := vm.EndRecording(d.record, d.end); err != nil {
		return err
	}
	r, err := vm.OpenRecording(d.record)
	if err != nil {
		return err
	}
	return r.RebuildFlushed(context.WithoutCancel(ctx), d.path)
}

// The kernel unmounts a box's file systems when its last process ends, and then frees their loop devices.
const (
	freeInterval = 10 * time.Millisecond
	freeTimeout  = 2 * time.Minute // four times what writing a whole disk takes
)

// unused waits until no loop device has a file.
func unused(file string) error {
	for deadline := time.Now().Add(freeTimeout); ; time.Sleep(freeInterval) {
		devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return err
		}
		used := false
		for _, device := range devices {
			backing, err := os.ReadFile(device)
			used = used || err == nil && strings.TrimSpace(string(backing)) == file
		}
		if !used {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("disk %s is still in use %s after the end of its box", file, freeTimeout)
		}
	}
}
