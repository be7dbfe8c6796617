package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// qemu holds the parameters of one power-on of a machine.
type qemu struct {
	accel, disk, kernel, initramfs, cmdline string // without a kernel, the disk's boot loader starts
	format                                  string // QEMU's name for the format of the disk's file; "": raw
	memoryMiB                               int    // 0: 1024
	writeLog                                string // a file to log each write to the disk in; "": none
	report                                  string // a file for the output of the second serial port
	extra                                   []string
	diskDevice, networkDevice               string // see Machine.DiskDevice
	multipath                               bool   // see Machine.Multipath
	forward                                 string // see Machine.Forward
	limits                                  Limits
	cut                                     <-chan struct{} // closed to kill the machine; may be nil
	measured                                bool            // QEMU waits at the end until it is told to quit: see monitor.follow
}

// sampleInterval is the interval between two samples of a machine's progress.
const sampleInterval = time.Second

// processor is the guest's CPU model: all features that QEMU can emulate, except for two that are
// slow under emulation. Linux prefers to copy and clear memory with one string instruction (erms,
// fsrm), which QEMU executes byte by byte. Without AES (aes, pclmulqdq), TLS uses ChaCha20 instead,
// and a pull takes a tenth less CPU time on the host.
const processor = "max,-erms,-fsrm,-aes,-pclmulqdq"

// processors returns how many processors the guest has. Under emulation, a boot with one takes a
// quarter less CPU time than with two, which would share a thread anyway: see software.
func (q qemu) processors() string {
	if q.accel == hardware {
		return "2"
	}
	return "1"
}

func (q qemu) command(ctx context.Context) *exec.Cmd {
	// A disk with a write cache: writes that the guest does not flush may be lost.
	drive := "driver=file,node-name=disk,filename=" + escape(q.disk)
	if q.writeLog != "" {
		drive = "driver=blklogwrites,node-name=disk,file.driver=file,file.filename=" + escape(q.disk) +
			",log.driver=file,log.filename=" + escape(q.writeLog) + ",log-sector-size=" + strconv.Itoa(logSector)
	}
	node := "disk"
	if q.format != "" {
		node = "image"
	}
	args := []string{
		"-accel", q.accel, "-machine", "q35", "-cpu", processor, "-smp", q.processors(), "-m", strconv.Itoa(cmp.Or(q.memoryMiB, 1024)),
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-serial", "file:" + escape(q.report),
		"-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control", // fd 3 is the first of ExtraFiles
		"-blockdev", drive,
		"-netdev", q.network(), "-device", cmp.Or(q.networkDevice, "virtio-net-pci") + ",netdev=net",
		"-device", "virtio-rng-pci",
	}
	if q.format != "" {
		args = append(args, "-blockdev", "driver="+q.format+",node-name="+node+",file=disk")
	}
	args = append(args, q.devices(node)...)
	if q.measured {
		args = append(args, "-no-shutdown")
	}
	if q.kernel != "" {
		args = append(args, "-kernel", q.kernel, "-initrd", q.initramfs, "-append", q.cmdline)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(args, q.extra...)...)
	// Even a killed test must not leave machines behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// devices returns what leads to the disk.
func (q qemu) devices(node string) []string {
	if !q.multipath {
		return []string{"-device", cmp.Or(q.diskDevice, "virtio-blk-pci") + ",drive=" + node}
	}
	var all []string
	for _, path := range []string{"a", "b"} {
		all = append(all, "-device", "virtio-scsi-pci,id="+path, "-device", "scsi-hd,share-rw=on,wwn=0x5000c50015ea71aa,bus="+path+".0,drive="+node)
	}
	return all
}

// network returns the guest's network, in which the host is 10.0.2.2.
func (q qemu) network() string {
	if q.forward == "" {
		return "user,id=net"
	}
	return "user,id=net,hostfwd=" + q.forward
}

// escape quotes a file name for use as a value in a QEMU option list.
func escape(name string) string { return strings.ReplaceAll(name, ",", ",,") }

// run starts QEMU, copies the serial port's output to the console and waits for QEMU's end. It returns why the
// boot ended, and what the machine has used until then.
func (q qemu) run(ctx context.Context, c *console) (_ Reason, use Usage, _ error) {
	// Pdeathsig is sent when the thread that started QEMU ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mon, err := newMonitor()
	if err != nil {
		return "", use, err
	}
	defer mon.conn.Close()
	cmd := q.command(ctx)
	cmd.ExtraFiles = []*os.File{mon.peer}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	serial, err := cmd.StdoutPipe()
	if err == nil && c.types != nil {
		c.keyboard, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err = errors.Join(err, mon.peer.Close()); err != nil {
		return "", use, fmt.Errorf("cannot start QEMU: %w", err)
	}
	reason := make(chan string, 1)
	var end diskUse
	go func() {
		var why string
		why, end = mon.follow(q.measured)
		reason <- why
	}()
	c.usage = func() Usage { return usage(cpuTime(cmd.Process.Pid), mon.diskUse()) }
	go cutOff(ctx, cancel, q.cut)
	go watch(ctx, cancel, processProgress(cmd.Process.Pid), c.state, q.limits, sampleInterval)
	if _, err := io.Copy(c, serial); err != nil {
		cancel(err) // kills the machine: it is broken, or the caller wants to stop it
	}
	waitErr := cmd.Wait()
	c.end()
	switch {
	case ctx.Err() != nil:
		why, err := killed(context.Cause(ctx))
		return why, use, err
	case waitErr != nil:
		return "", use, fmt.Errorf("QEMU failed: %w: %s", waitErr, strings.TrimSpace(stderr.String()))
	}
	why, err := guestEnd(<-reason, stderr.String())
	if q.measured {
		use = usage(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), end)
	}
	return why, use, err
}

func usage(cpu time.Duration, disk diskUse) Usage {
	return Usage{CPU: cpu, Read: disk.read, Written: disk.written}
}

// killed returns the result of a machine that was killed for the given cause.
func killed(cause error) (Reason, error) {
	o, ok := errors.AsType[endError](cause)
	if ok && o.reason == Stopped {
		return Stopped, nil
	}
	return o.reason, cause
}

// guestEnd returns the result of a machine that the guest itself shut down or reset.
func guestEnd(reason, stderr string) (Reason, error) {
	switch reason {
	case "guest-reset":
		return Rebooted, nil
	case "guest-shutdown":
		return PoweredOff, nil
	case watchdogReset:
		return WatchedOut, nil
	}
	return "", fmt.Errorf("QEMU ended for the reason %q: %s", reason, strings.TrimSpace(stderr))
}
