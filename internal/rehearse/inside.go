package rehearse

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// aside is the work of a rehearsal.
func aside() Aside { return Aside{Role: "rehearsal"} }

// What a program may use, besides its time. It is an error of the program to need more: it is asked for its version, or
// for less.
const (
	maxMemory = 256 << 20 // bytes that it writes to. The address space is not limited: runtimes of languages reserve gigabytes
	maxTasks  = 64
	maxSaid   = 64 << 10 // bytes of output
	maxFiles  = "16m"    // of /tmp and of /run
)

// nobody is the user and the group of the programs: no other process of a machine has it, so that no other one counts for
// maxTasks.
const nobody = 1<<31 - 2

// asked is what the process inside is told.
type asked struct {
	Repo     string
	Commit   ostree.Checksum
	Files    map[string]File
	Programs [][]string
	Limit    time.Duration
}

// Inside performs a rehearsal, if this program's arguments say so, and returns the exit status. It writes how the
// programs ended, or to complaints why they could not run. The main function calls it first: Stage starts the same
// program again, as the first process of namespaces.
func Inside(args []string, to, complaints io.Writer) (status int, inside bool) {
	var a asked
	return aside().Inside(args, &a, complaints, func() error { return perform(a, to) })
}

// perform performs a rehearsal.
func perform(a asked, to io.Writer) error {
	err := a.build()
	if err == nil {
		err = confine()
	}
	if err == nil && hostfiles.RunningPolicyIn("/").Loaded() {
		err = keepLabel()
	}
	if err != nil {
		return err
	}
	return tryAll(a, json.NewEncoder(to))
}

// tryAll runs the programs, and says of each how it ended. It stops after one that takes too long, or has left processes
// behind: with this process, the kernel ends all in the namespace. To kill them would need a capability that pivot's units do not have.
func tryAll(a asked, to *json.Encoder) error {
	for _, argv := range a.Programs {
		e := ending{Missing: true}
		if _, err := hostfiles.ResolveIn(root, argv[0]); err == nil {
			e = try(argv, a.Limit)
		}
		if err := to.Encode(e); err != nil {
			return err
		}
		if processes, err := filepath.Glob(root + "/proc/[0-9]*"); err != nil || len(processes) > 1 || e.Late {
			return err
		}
	}
	return nil
}

// try runs a program, as nobody and without capabilities. Set-user-ID bits have no effect on the mounts that it sees.
func try(argv []string, limit time.Duration) ending {
	said, ended := &words{}, make(chan error, 1)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/usr/sbin", "HOME=/", "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Setsid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.WaitDelay = time.Second // for what it has left behind, and holds its output open
	if err := cmd.Start(); err != nil {
		errno, _ := errors.AsType[syscall.Errno](err)
		return ending{Errno: cmp.Or(errno, unix.EIO)}
	}
	go func() { ended <- cmd.Wait() }()
	select {
	case <-time.After(limit):
		return ending{Late: true}
	case <-ended:
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	e := ending{Status: status.ExitStatus(), Loud: said.full, Said: string(said.first)}
	if status.Signaled() {
		e.Signal = status.Signal()
	}
	return e
}

// confine limits what this process starts, and itself: it is root, which may have any number of tasks, and it takes less
// memory. With a limit of one byte nobody dumps a core, not even a program that the kernel would give it to.
func confine() error {
	for resource, most := range map[int]uint64{unix.RLIMIT_DATA: maxMemory, unix.RLIMIT_NPROC: maxTasks, unix.RLIMIT_CORE: 1} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("cannot limit what programs may use: %w", err)
		}
	}
	return nil
}

// keepLabel has programs run under the label of this thread. SELinux denies other ones on mounts where set-user-ID bits have
// no effect, runs the program under this label, too, and puts each such denial into the audit log.
func keepLabel() error {
	label, err := os.ReadFile("/proc/thread-self/attr/current")
	if err != nil {
		return fmt.Errorf("cannot keep SELinux's label: %w", err)
	}
	// Without O_CREATE, which SELinux may deny, and puts into the audit log, though the file is there.
	next, err := os.OpenFile("/proc/thread-self/attr/exec", os.O_WRONLY, 0)
	if err == nil {
		_, err = next.Write(label)
		err = errors.Join(err, next.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot keep SELinux's label: %w", err)
	}
	return nil
}

// words keeps the first bytes that are written to it, and accepts maxSaid.
type words struct {
	first []byte
	all   int
	full  bool
}

// Write implements io.Writer. With an error the program's output is closed, so that it is not read to its end.
func (w *words) Write(p []byte) (int, error) {
	const kept = 8 << 10 // udevadm reports each file that it does not find
	w.first = append(w.first, p[:min(len(p), kept-min(len(w.first), kept))]...)
	if w.all += len(p); w.all > maxSaid {
		w.full = true
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}
