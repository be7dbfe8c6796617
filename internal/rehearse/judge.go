package rehearse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/kargs"
)

const (
	truth   = "/usr/bin/true" // which rpm-ostree runs, too: each system has it, and it needs only libc
	systemd = "/usr/lib/systemd/systemd"
)

// Judge runs programs of the commit next, and returns an error of kind fault.Refused if this machine cannot start that
// system, and notes about what could not be judged. running is the commit of the running system, and line the next one's
// kernel arguments. devices are what the machine needs to start.
func (s Stage) Judge(ctx context.Context, next, running ostree.Checksum, line kargs.Line, devices []Device) (notes []string, err error) {
	programs := [][]string{{truth}, {systemd, "--version"}}
	ended, err := s.run(ctx, next, programs...)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return []string{notJudged(fmt.Sprintf("its programs cannot be run from here: %v", err))}, nil
	}
	for i, argv := range programs {
		note, err := s.judge(ctx, argv, ended[i], running)
		if err != nil {
			return nil, err
		}
		if note != "" {
			notes = append(notes, notJudged(note))
		}
	}
	if warning := legacyCgroups(line, ended[1]); warning != "" {
		notes = append(notes, "warning: "+warning)
	}
	more, err := s.judgeDrivers(ctx, next, devices)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		more = []string{notJudged(fmt.Sprintf("its drivers are not known: %v", err))}
	}
	return append(notes, more...), nil
}

func notJudged(why string) string {
	return "whether this machine can start the new system is not judged in full: " + why
}

// judge returns an error if a program of the new system does not start on this machine, and a note if that is not known.
// What the loader says about the processor is certain. Other reasons count only if the running system's program, which is
// known to start, does so in the same place: a limit of this rehearsal, or a policy of the machine, must not be taken for a
// defect of the image.
func (s Stage) judge(ctx context.Context, argv []string, e ending, running ostree.Checksum) (note string, err error) {
	if e.Missing {
		return "it has no " + argv[0], nil
	}
	if words := e.aboutProcessor(); words != "" {
		return "", cannotStart(argv, fmt.Sprintf("needs another processor (%s)", words), otherProcessor)
	}
	why, certain := e.failure()
	if why == "" {
		return "", nil
	}
	if !certain {
		return argv[0] + " " + why, nil
	}
	control, err := s.run(ctx, running, argv)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil || control[0].Missing {
		return argv[0] + " " + why + ", and the running system has none to compare with", nil
	}
	if failed, _ := control[0].failure(); failed != "" {
		return argv[0] + " " + why + ", and the running system's, in the same place, " + failed, nil
	}
	if e.Signal == unix.SIGILL {
		return "", cannotStart(argv, why, otherProcessor)
	}
	return "", cannotStart(argv, why, "find out what the image's build left out: podman run --rm IMAGE "+strings.Join(argv, " "))
}

const otherProcessor = "use an image that is built for this processor, or give a virtual machine a newer model of processor; the levels that this one has: ld.so --help"

func cannotStart(argv []string, why, hint string) error {
	return fault.New(fault.Refused, "cannot start the image on this machine: its %s %s", argv[0], why).WithHint("%s", hint)
}

// failure returns how a program failed; "" if it did not. It is certain unless the reason may be this rehearsal, or a
// policy of the machine.
func (e ending) failure() (how string, certain bool) {
	switch {
	case e.Late:
		return "takes too long", false
	case e.Loud:
		return "says too much", false
	case e.Errno == unix.ENOENT:
		return "needs a loader or an interpreter that the image does not have", true
	case e.Errno != 0:
		return fmt.Sprintf("cannot be executed: %v", e.Errno), e.Errno == unix.ENOEXEC || e.Errno == unix.ELIBBAD
	case e.Signal != 0:
		return fmt.Sprintf("is killed by a signal (%v)%s", e.Signal, e.words()), e.Signal != unix.SIGKILL && e.Signal != unix.SIGSYS
	case e.Status != 0:
		return fmt.Sprintf("ends with exit status %d%s", e.Status, e.words()), !e.hindered()
	}
	return "", true
}

// hindered reports whether a program says that something was denied to it.
func (e ending) hindered() bool {
	return slices.ContainsFunc([]syscall.Errno{unix.EACCES, unix.EPERM, unix.ENOMEM, unix.EAGAIN}, func(errno syscall.Errno) bool {
		return strings.Contains(strings.ToLower(e.Said), errno.Error())
	})
}

// aboutProcessor returns what the loader says about a processor that it does not support; "" if it does not. glibc's own
// check has the first words on each architecture, and names the level (sysdeps/*/dl-get-cpu-features.c,
// dl-hwcap-check.h); the second ones are about a note in a library (sysdeps/x86/dl-prop.h).
func (e ending) aboutProcessor() string {
	for line := range strings.Lines(e.Said) {
		for _, words := range []string{"Fatal glibc error: CPU ", "CPU ISA level is lower than required"} {
			if e.Status == 127 && strings.Contains(line, words) {
				return printable.Line(strings.TrimSpace(line))
			}
		}
	}
	return ""
}

// words returns the first line of what a program said, after a colon.
func (e ending) words() string {
	line, _, _ := strings.Cut(strings.TrimSpace(e.Said), "\n")
	if line == "" {
		return ""
	}
	return ": " + printable.Line(line[:min(len(line), 300)])
}
