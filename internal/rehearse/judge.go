package rehearse

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
)

const (
	truth   = "/usr/bin/true" // which rpm-ostree runs, too: each system has it, and it needs only libc
	systemd = "/usr/lib/systemd/systemd"
)

// Change is a change to a system that is to be judged.
type Change struct {
	Next, Running ostree.Checksum // their commits; Running is zero if that system is on another machine
	Line          kargs.Line      // the next kernel arguments
	Own           Own
	Rebuilt       bool // packages are layered, and so the initramfs that starts may be another than the image's
	BootLoader    bool // the image's is installed, too
}

// Judge runs programs of the next system, and returns what speaks against that system on a machine with these facts, and
// what could not be judged. The error is that of the context.
func (s Stage) Judge(ctx context.Context, c Change, facts Facts) ([]verdict.Finding, error) {
	next, unknown := s.open(c.Next)
	return s.judgeAll(ctx, c.Next, unknown, s.onMachine(c, facts, next, unknown == nil))
}

// JudgeImage is Judge for an image that a builder has made: it also returns what is forgotten in it, whatever the machine.
// boot is the size of the machines' /boot in bytes; 0 if it is not known. facts is nil if no machine is known.
func (s Stage) JudgeImage(ctx context.Context, c Change, facts *Facts, boot int64) ([]verdict.Finding, error) {
	next, unknown := s.open(c.Next)
	var subjects []subject
	if unknown == nil {
		subjects = append(subjects, next.contents(boot), runsPivot())
	}
	if facts != nil {
		subjects = append(subjects, s.onMachine(c, *facts, next, unknown == nil)...)
	}
	return s.judgeAll(ctx, c.Next, unknown, subjects)
}

// onMachine returns what is judged of a system on a machine with these facts. known says that the next system's boot files
// are.
func (s Stage) onMachine(c Change, facts Facts, next image, known bool) []subject {
	subjects := []subject{s.starts(c), legacyCgroups(c.Line)}
	if known && next.release != "" {
		subjects = append(subjects, s.drivers(c, next, facts))
	}
	if known {
		subjects = append(subjects, next.runtimes(c.Own), s.ifcfg(c, next))
	}
	return append(subjects, s.fileSystems(c, facts), sealed(facts, changedPCRs(c.BootLoader)), units(c.Own), s.logins(c), s.interfaces(c, facts))
}

// judgeAll runs the programs of all subjects in one tree, and judges how they ended. unknown is why the kernel is not known.
func (s Stage) judgeAll(ctx context.Context, commit ostree.Checksum, unknown error, subjects []subject) (found []verdict.Finding, err error) {
	var programs [][]string
	files := map[string]File{}
	for _, subject := range subjects {
		programs = append(programs, subject.programs...)
		maps.Copy(files, subject.files)
	}
	ended, err := s.run(ctx, commit, files, programs...)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil { // what needs no program is judged all the same
		found = append(found, notJudged("its programs cannot be run from here: %v", err))
		subjects = slices.DeleteFunc(subjects, func(s subject) bool { return len(s.programs) > 0 })
	} else if unknown != nil {
		found = append(found, notJudged("its kernel is not known: %v", unknown))
	}
	for _, subject := range subjects {
		more, err := subject.judge(ctx, ended[:len(subject.programs)])
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			more = append(more, notJudged("%v", err))
		}
		found, ended = append(found, more...), ended[len(subject.programs):]
	}
	return found, nil
}

// starts judges whether programs of the new system start at all.
func (s Stage) starts(c Change) subject {
	programs := [][]string{{truth}, {systemd, "--version"}}
	return subject{programs: programs, judge: func(ctx context.Context, ended []ending) (found []verdict.Finding, err error) {
		for i, argv := range programs {
			failed, err := s.judge(ctx, argv, ended[i], c.Running)
			if err != nil {
				return nil, err
			}
			found = append(found, failed...)
		}
		return found, nil
	}}
}

func notJudged(format string, args ...any) verdict.Finding {
	return verdict.Finding{Weight: verdict.Unknown, Text: fmt.Sprintf(format, args...)}
}

// judge returns a finding if a program of the new system does not start on this machine, or if that is not known. What
// the loader says about the processor is certain. Other reasons count only if the running system's program, which is
// known to start, does so in the same place. A limit of this rehearsal, or a policy of the machine, is no defect of the
// image.
func (s Stage) judge(ctx context.Context, argv []string, e ending, running ostree.Checksum) (found []verdict.Finding, err error) {
	unknown := func(why string) ([]verdict.Finding, error) { return []verdict.Finding{notJudged("%s", why)}, nil }
	if e.Missing {
		return unknown("it has no " + argv[0])
	}
	if words := e.aboutProcessor(); words != "" {
		return cannotStart(verdict.Processor, argv, fmt.Sprintf("needs another processor (%s)", words), otherProcessor), nil
	}
	why, certain := e.failure()
	if why == "" {
		return nil, nil
	}
	if !certain {
		return unknown(argv[0] + " " + why)
	}
	control, err := s.run(ctx, running, nil, argv)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil || control[0].Missing {
		return unknown(argv[0] + " " + why + ", and the running system has none to compare with")
	}
	if failed, _ := control[0].failure(); failed != "" {
		return unknown(argv[0] + " " + why + ", and the running system's, in the same place, " + failed)
	}
	if e.Signal == unix.SIGILL {
		return cannotStart(verdict.Processor, argv, why, otherProcessor), nil
	}
	return cannotStart(verdict.Programs, argv, why, "find out what the image's build left out: podman run --rm IMAGE "+strings.Join(argv, " ")), nil
}

const otherProcessor = "use an image that is built for this processor, or give a virtual machine a newer model of processor; the levels that this one has: ld.so --help"

func cannotStart(name verdict.Name, argv []string, why, remedy string) []verdict.Finding {
	return []verdict.Finding{{Name: name, Weight: verdict.Refused, Text: fmt.Sprintf("its %s %s", argv[0], why), Remedy: remedy}}
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
