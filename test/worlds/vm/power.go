package vm

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Power runs a machine for one boot by something other than QEMU: see Machine.Power. It returns when the machine
// has ended, with what it has used. When ctx is done it ends the machine like a power cut, and returns the error of
// ctx.
type Power func(ctx context.Context, p PowerOn) (Reason, Progress, error)

// PowerOn is one power-on of a machine.
type PowerOn struct {
	Disk        string
	FileSystems []DiskFileSystem // on the disk, the root first
	Cmdline     string           // the kernel command line
	Record      string           // an existing directory for a recording of all disk writes; "": none
	MayBeCut    bool             // a power cut is part of the boot's plan
	// Console and Report receive what the machine writes to its console and to its second serial port. A failed
	// write to the console ends the machine: it cancels the context.
	Console, Report io.Writer
	// Running must be called as soon as the machine runs. Its limits are about what use returns.
	Running func(use func() Progress)
}

// Progress is what a running machine has used so far.
type Progress struct {
	CPU    time.Duration // processor time of the host
	Active bool          // it uses or waits for a processor or a disk now
}

// DiskFileSystem is a file system on a disk.
type DiskFileSystem struct {
	Kind         FileSystem
	Boot         bool  // it is /boot; else the root
	Offset, Size int64 // in bytes
}

// drive boots a machine by m.Power and fills in the result.
func (m *Machine) drive(ctx context.Context, o BootOptions, r *BootResult) error {
	parts, err := fileSystemsOn(ctx, m.Disk)
	if err != nil {
		return err
	}
	r.Entry, err = withContents(ctx, m, func(c *Contents) (BootEntry, error) { return c.entry(o.Entry) })
	if err != nil {
		return err
	}
	var reported strings.Builder
	start := time.Now()
	c := &console{log: m.Log, onLine: o.OnLine, stopWhen: o.StopWhen, measure: o.Measure, start: start}
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := PowerOn{
		Disk: m.Disk, Cmdline: strings.Join(append([]string{r.Entry.Options}, o.ExtraArgs...), " "), Record: o.Record,
		MayBeCut: o.StopWhen != nil || o.Cut != nil, Console: cancelling{c, cancel}, Report: &reported,
		Running: func(use func() Progress) {
			c.usage = func() Usage { return Usage{CPU: use().CPU} }
			go watch(running, cancel, use, c.state, o.Limits.orDefault(), sampleInterval)
			go cutOff(running, cancel, o.Cut)
		},
	}
	for _, f := range parts {
		p.FileSystems = append(p.FileSystems, DiskFileSystem{f.kind, f.name == bootPartition, f.offset, f.size})
	}
	reason, use, err := m.Power(running, p)
	c.end()
	r.Usage = Usage{CPU: use.CPU}
	r.Exit, r.Duration, r.Serial = reason, time.Since(start), c.lines
	r.Reported = strings.Split(strings.ReplaceAll(reported.String(), "\r\n", "\n"), "\n")
	if err != nil && running.Err() != nil && context.Cause(running) != nil {
		r.Exit, err = killed(context.Cause(running))
	}
	if err != nil {
		return fmt.Errorf("cannot boot %s (%s): %w; %s", m.Disk, r.Entry.Title, err, c.excerpt())
	}
	return nil
}

// cutOff cancels ctx as soon as cut is closed. cut may be nil.
func cutOff(ctx context.Context, cancel context.CancelCauseFunc, cut <-chan struct{}) {
	select {
	case <-cut:
		cancel(endError{Stopped, "its power was cut"})
	case <-ctx.Done():
	}
}

// cancelling is a console. Its failed writes cancel the boot.
type cancelling struct {
	*console
	cancel context.CancelCauseFunc
}

func (c cancelling) Write(p []byte) (int, error) {
	n, err := c.console.Write(p)
	if err != nil {
		c.cancel(err)
	}
	return n, err
}
