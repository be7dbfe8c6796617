package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Machine is a virtual machine with one disk. The guest reaches the host's 127.0.0.1 as 10.0.2.2.
type Machine struct {
	Disk      string
	MemoryMiB int       // 0: 1024
	Log       io.Writer // receives the serial console, line by line; may be nil
	Accel     string    // QEMU's -accel; "": the first boot detects what works here
	Extra     []string  // further arguments for QEMU
	Forward   string    // what of the host leads to the guest, as QEMU's hostfwd, such as "tcp:127.0.0.1:8080-:80"; "": nothing
	// DiskDevice and NetworkDevice are QEMU's names of the disk's device and of the network card, such as "ide-hd" and
	// "e1000e"; "": virtio's.
	DiskDevice, NetworkDevice string
	// Multipath is whether the disk is a SCSI disk at the end of two paths, instead.
	Multipath bool
	// Power runs the machine instead of QEMU; nil: QEMU does. MemoryMiB, Accel, Extra, Forward, the devices
	// and BootOptions.Types are QEMU's.
	Power Power
}

// BootOptions are the options of one boot.
type BootOptions struct {
	Entry     int                    // index of the boot entry to boot; 0: the default
	Limits    Limits                 // when to kill a guest that makes no progress
	ExtraArgs []string               // kernel arguments to append to the boot entry's
	OnLine    func(line string)      // called with each line on the console; may be nil
	StopWhen  func(line string) bool // called with each line; true kills the machine; may be nil
	Cut       <-chan struct{}        // kills the machine when it is closed; may be nil
	// Types returns what an operator types at the console after a text, such as a prompt: the line
	// so far. "" types nothing. With an operator, emergency mode is not the end of a boot. It may be nil.
	Types     func(text string) string
	PastPanic bool   // a panic of the kernel is not the end: what happens after it is waited for
	Record    string // an existing directory for a recording of all disk writes: see OpenRecording
	// Measure is called with each line. If it returns true, the line has the machine's usage until then. With
	// it, the result has the usage of the whole boot. It may be nil.
	Measure func(line string) bool
}

// Reason is why a boot ended.
type Reason string

// Each reason completes a sentence that begins with "the guest".
const (
	Rebooted   Reason = "rebooted"
	PoweredOff Reason = "powered off"
	Stopped    Reason = "was stopped" // by StopWhen or Cut
	Hung       Reason = "hung"        // idle or spinning: see Limits
	TimedOut   Reason = "timed out"
	Emergency  Reason = "fell into emergency mode"
	Panicked   Reason = "panicked"
	WatchedOut Reason = "was reset by its watchdog"
)

// BootResult is the result of one boot, from power-on to its end.
type BootResult struct {
	Entry    BootEntry // what was booted
	Exit     Reason    // "": it could not be booted, or ctx was cancelled
	Duration time.Duration
	Serial   []SerialLine
	Usage    Usage // of the whole boot; zero without BootOptions.Measure, or if the machine was killed
	// Reported are the lines on the second serial port, which each machine has. Only what a guest
	// reports is written there, because on the console messages of the kernel and of systemd
	// interrupt lines.
	Reported []string
}

// SerialLine is a line on the serial console, without control sequences.
type SerialLine struct {
	At    time.Duration // since power-on
	Text  string
	Usage *Usage // until this line, if BootOptions.Measure wants it; else nil
}

// Usage is what a machine has used since power-on.
type Usage struct {
	CPU           time.Duration // processor time of the host, user and system
	Read, Written int64         // bytes read from and written to its disk
}

func (l SerialLine) String() string { return fmt.Sprintf("%7.2f %s", l.At.Seconds(), l.Text) }

// tailLines is how many lines of the console an error contains.
const tailLines = 30

// Boot powers the machine on and waits until it reboots, powers off or is stopped. For any other
// end it returns an error with an excerpt of the console. The result is never nil and contains
// what is known.
func (m *Machine) Boot(ctx context.Context, o BootOptions) (*BootResult, error) {
	result := &BootResult{}
	if m.Power != nil {
		return result, m.drive(ctx, o, result)
	}
	dir, err := os.MkdirTemp("", "vm-boot-*")
	if err != nil {
		return result, fmt.Errorf("cannot boot: %w", err)
	}
	if m.Accel == "" {
		m.Accel, err = accelerator(ctx)
	}
	var k loaded
	if err == nil {
		k, err = withContents(ctx, m, func(c *Contents) (loaded, error) { return c.load(o.Entry, dir) })
	}
	if err == nil {
		result.Entry = k.entry
		err = m.power(ctx, k, o, result)
	}
	return result, errors.Join(err, os.RemoveAll(dir))
}

// power powers the machine on once and fills in r.
func (m *Machine) power(ctx context.Context, k loaded, o BootOptions, r *BootResult) error {
	writeLog, err := StartRecording(ctx, o.Record, m.Disk)
	if err != nil {
		return err
	}
	q := qemu{
		accel: m.Accel, disk: m.Disk, kernel: k.kernel, initramfs: k.initramfs, memoryMiB: m.MemoryMiB, extra: m.Extra, forward: m.Forward, writeLog: writeLog,
		diskDevice: m.DiskDevice, networkDevice: m.NetworkDevice, multipath: m.Multipath,
		limits: o.Limits.orDefault(), cut: o.Cut, measured: o.Measure != nil,
		cmdline: strings.Join(append([]string{r.Entry.Options}, o.ExtraArgs...), " "),
	}
	return q.powerOn(ctx, m.Log, o, r)
}

// powerOn runs the machine until it ends and fills in the result of the boot.
func (q qemu) powerOn(ctx context.Context, log io.Writer, o BootOptions, r *BootResult) (err error) {
	report, err := os.CreateTemp("", "vm-report-*")
	if err != nil {
		return fmt.Errorf("cannot boot %s: %w", q.disk, err)
	}
	defer func() {
		said, readErr := io.ReadAll(report)
		r.Reported = strings.Split(strings.ReplaceAll(string(said), "\r\n", "\n"), "\n")
		err = errors.Join(err, readErr, report.Close(), os.Remove(report.Name()))
	}()
	q.report = report.Name()
	start := time.Now()
	c := &console{log: log, onLine: o.OnLine, stopWhen: o.StopWhen, types: o.Types, pastPanic: o.PastPanic, measure: o.Measure, start: start}
	r.Exit, r.Usage, err = q.run(ctx, c)
	r.Duration, r.Serial = time.Since(start), c.lines
	if err != nil {
		return fmt.Errorf("cannot boot %s (%s): %w; %s", q.disk, cmp.Or(r.Entry.Title, "by its own boot loader"), err, c.excerpt())
	}
	return nil
}

// Keep writes the console and the second serial port's lines to a temporary file and returns its
// name.
func (b *BootResult) Keep() (string, error) {
	f, err := os.CreateTemp("", "console-*.log")
	if err != nil {
		return "", fmt.Errorf("cannot keep console: %w", err)
	}
	_, err = f.WriteString(text(b.Serial) + strings.Join(b.Reported, "\n"))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("cannot keep console: %w", err)
	}
	return f.Name(), nil
}

// Said reports whether a line of the console contains text.
func (b *BootResult) Said(text string) bool {
	return slices.ContainsFunc(b.Serial, func(l SerialLine) bool { return strings.Contains(l.Text, text) })
}
