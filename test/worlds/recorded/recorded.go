// Package recorded mounts a file system of this host on a disk that records all writes. So the disk can be rebuilt as
// after a power cut at any moment (vm.Recording). A program that works there runs on the host itself, at full speed.
//
// The disk is a file that qemu-storage-daemon exports by FUSE, through its driver blklogwrites. A loop device on
// it has the file system. What the file system flushes reaches the log as a flush.
package recorded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"machine-pivot/test/worlds/loop"
	"machine-pivot/test/worlds/vm"
)

// Missing returns what this host lacks to record a file system; nothing if it can.
func Missing() []string {
	missing := vm.Layout{Root: vm.XFS}.Missing()
	return append(missing, MissingToExport()...)
}

// Disk is a mounted file system (XFS) with recorded writes. It is mounted in the mount namespace of a helper process,
// and vanishes with it.
type Disk struct {
	dir     string
	export  *Export
	holder  *exec.Cmd
	release io.Closer // the holder's standard input; closing it makes the holder unmount
	stderr  bytes.Buffer

	sizes []size // of the log, in order of time; only watch changes them
	stop  chan struct{}
	done  chan struct{}
}

// size is the size of the log at a moment, in bytes.
type size struct {
	at    time.Time
	bytes int64
}

// holdScript is called with a loop device and a directory. It mounts the device there, prints "mounted", and
// unmounts it at the end of its input.
const holdScript = `mount "$1" "$2"
echo mounted
read -r _ || :
umount "$2"`

// Mount makes a file system with the contents of a directory and mounts it. dir is an empty directory for its
// files. The caller must call Close.
func Mount(ctx context.Context, dir, contents string, sizeMiB int) (_ *Disk, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	disk := filepath.Join(dir, "disk")
	if err := vm.MakeXFS(ctx, disk, contents, sizeMiB); err != nil {
		return nil, err
	}
	d := &Disk{dir: dir, stop: make(chan struct{}), done: make(chan struct{})}
	if d.export, err = StartExport(ctx, dir, disk); err != nil {
		return nil, err
	}
	if err := d.mount(ctx); err != nil {
		return nil, fmt.Errorf("cannot mount a recorded disk: %w: %s", errors.Join(err, d.export.Close()), strings.TrimSpace(d.stderr.String()))
	}
	go d.watch()
	return d, nil
}

// mount starts the holder and waits until it has mounted the file system.
func (d *Disk) mount(ctx context.Context) error {
	file, err := d.export.Open(ctx)
	if err != nil {
		return err
	}
	defer file.Close()
	device, err := loop.Attach(file, 0, 0, "/dev")
	if err != nil {
		return err
	}
	defer device.Close()
	point := filepath.Join(d.dir, "mount")
	if err := os.Mkdir(point, 0o755); err != nil {
		return err
	}
	d.holder = exec.CommandContext(ctx, "bash", "-ec", holdScript, "hold", device.Name(), point)
	d.holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	d.holder.Stderr = &d.stderr
	if d.release, err = d.holder.StdinPipe(); err != nil {
		return err
	}
	out, err := d.holder.StdoutPipe()
	if err == nil {
		err = d.holder.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, len("mounted\n")))
	}
	return err
}

// Path returns the path of a file on the disk, as programs of this host can open it.
func (d *Disk) Path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(d.holder.Process.Pid), "root", d.dir, "mount", name)
}

// watchInterval is how exactly a moment is known.
const watchInterval = 20 * time.Millisecond

// watch notes the size of the log until stop is closed.
func (d *Disk) watch() {
	defer close(d.done)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		d.look()
		select {
		case <-d.stop:
			d.look()
			return
		case <-ticker.C:
		}
	}
}

// look notes the size of the log now. An entry that is in the log was there before.
func (d *Disk) look() {
	bytes, err := d.export.Size()
	if err != nil {
		return // then OpenRecording fails, too
	}
	d.sizes = append(d.sizes, size{time.Now(), bytes})
}

// Close unmounts the file system. What is written then is not part of any moment before.
func (d *Disk) Close() error {
	close(d.stop)
	<-d.done
	err := d.release.Close()
	if waitErr := d.holder.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("cannot unmount a recorded disk: %w: %s", waitErr, strings.TrimSpace(d.stderr.String())))
	}
	return errors.Join(err, d.export.Close())
}

// Recording returns the recording of a closed disk, and for each of the moments how many of its entries had
// been written.
func (d *Disk) Recording(moments []time.Time) (*vm.Recording, []int, error) {
	r, err := vm.OpenRecording(d.dir)
	if err != nil {
		return nil, nil, err
	}
	counts := make([]int, len(moments))
	for i, moment := range moments {
		counts[i] = r.EntriesIn(d.sizeAt(moment))
	}
	return r, counts, nil
}

// sizeAt returns the size of the log at a moment.
func (d *Disk) sizeAt(moment time.Time) (bytes int64) {
	for _, s := range d.sizes {
		if s.at.After(moment) {
			break
		}
		bytes = s.bytes
	}
	return bytes
}
