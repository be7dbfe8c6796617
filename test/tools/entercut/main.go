// Command entercut enters a committed deployment as "pivot enter" does, in a guest's initramfs, and ends that before a
// call. The kernel argument entercut=N:HOW says before which call, counted from 0, and how. "kill" kills the program,
// "fail" lets it fail, "power" waits for the power cut, "hang" for systemd, and ignores its first signal. Each first
// writes "@@cut N: CALL" to the console.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"machine-pivot/internal/initramfs"
	"machine-pivot/kargs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	at, how, err := asked()
	if err != nil {
		return err
	}
	request, err := initramfs.ReadEnterRequest("/run")
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	way := initramfs.NewWay(request)
	n := 0
	way.Before = func(call string) {
		if n == at {
			say("@@cut %d: %s", n, call)
			end(how, fail)
		}
		n++
	}
	err = way.Go(ctx)
	if err == nil {
		err = context.Cause(ctx) // it fails after the last call
	}
	if err != nil {
		return err
	}
	say("@@way of %d calls", n)
	return nil
}

// asked returns what the kernel command line asks for; -1 if nothing.
func asked() (at int, how string, err error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return -1, "", err
	}
	for _, value := range kargs.Split(string(line)).Values("entercut") {
		number, how, _ := strings.Cut(value, ":")
		at, err := strconv.Atoi(number)
		return at, how, err
	}
	return -1, "", nil
}

func end(how string, fail context.CancelCauseFunc) {
	switch how {
	case "fail":
		fail(errors.New("cut"))
		return
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "hang":
		signal.Ignore(syscall.SIGTERM)
	}
	time.Sleep(time.Hour) // until a signal, or the harness, ends it
}

// say writes a line to the console at once.
func say(format string, args ...any) {
	if console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0); err == nil {
		fmt.Fprintf(console, "\n"+format+"\n", args...)
		console.Close()
	}
}
