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

// qemu is one power-on of a machine.
type qemu struct {
	accel, disk, kernel, initramfs, cmdline string // without a kernel the disk's boot loader starts
	format                                  string // of the disk's file, as QEMU names it; "": the disk itself
	memoryMiB                               int    // 0: 1024
	writeLog                                string // a file that gets each write to the disk; "": none
	report                                  string // a file that gets what the second serial port says; "": there is none
	extra                                   []string
	limits                                  Limits
}

// lookEvery is how often a machine's progress is looked at.
const lookEvery = time.Second

// processor has all that can be emulated, but for what is slow when it is: copying and clearing
// by one string instruction (erms, fsrm), which Linux prefers and which goes byte by byte, and
// AES (aes, pclmulqdq), without which TLS takes ChaCha20: a pull takes a tenth less of the
// host's processor.
const processor = "max,-erms,-fsrm,-aes,-pclmulqdq"

// processors is how many the guest has. Emulated, a boot with one takes a quarter less of the
// host's processor than with two, which would share a thread anyway: see software.
func (q qemu) processors() string {
	if q.accel == hardware {
		return "2"
	}
	return "1"
}

func (q qemu) command(ctx context.Context) *exec.Cmd {
	// A virtio disk and its cache: what the guest does not flush may be lost.
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
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control", // 3: the first of ExtraFiles
		"-blockdev", drive,
		"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net",
		"-device", "virtio-rng-pci",
	}
	if q.report != "" {
		args = append(args, "-serial", "file:"+escape(q.report))
	}
	if q.format != "" {
		args = append(args, "-blockdev", "driver="+q.format+",node-name="+node+",file=disk")
	}
	args = append(args, "-device", "virtio-blk-pci,drive="+node)
	if q.kernel != "" {
		args = append(args, "-kernel", q.kernel, "-initrd", q.initramfs, "-append", q.cmdline)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(args, q.extra...)...)
	// Not even a killed test leaves machines behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// escape makes a file name a value in a list of QEMU options.
func escape(name string) string { return strings.ReplaceAll(name, ",", ",,") }

// run starts QEMU, feeds the console and waits for the end.
func (q qemu) run(ctx context.Context, c *console) (Reason, error) {
	// Pdeathsig is about the thread that started QEMU.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mon, err := newMonitor()
	if err != nil {
		return "", err
	}
	defer mon.conn.Close()
	cmd := q.command(ctx)
	cmd.ExtraFiles = []*os.File{mon.peer}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	serial, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err = errors.Join(err, mon.peer.Close()); err != nil {
		return "", fmt.Errorf("cannot start QEMU: %w", err)
	}
	reason := make(chan string, 1)
	go func() { reason <- mon.shutdownReason() }()
	go watch(ctx, cancel, cmd.Process.Pid, c.said, q.limits, lookEvery)
	if _, err := io.Copy(c, serial); err != nil {
		cancel(err) // kills it: it is broken, or the caller wants a power cut
	}
	waitErr := cmd.Wait()
	c.end()
	switch {
	case ctx.Err() != nil:
		return killed(context.Cause(ctx))
	case waitErr != nil:
		return "", fmt.Errorf("QEMU failed: %w: %s", waitErr, strings.TrimSpace(stderr.String()))
	}
	return guestEnd(<-reason, stderr.String())
}

// killed is the end of a machine that was killed for a cause.
func killed(cause error) (Reason, error) {
	o, ok := errors.AsType[over](cause)
	if ok && o.reason == Stopped {
		return Stopped, nil
	}
	return o.reason, cause
}

// guestEnd is the end of a machine by the guest's own wish.
func guestEnd(reason, stderr string) (Reason, error) {
	switch reason {
	case "guest-reset":
		return Rebooted, nil
	case "guest-shutdown":
		return PoweredOff, nil
	}
	return "", fmt.Errorf("QEMU ended for the reason %q: %s", reason, strings.TrimSpace(stderr))
}
