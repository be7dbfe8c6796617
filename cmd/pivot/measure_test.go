package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// cost is the resource usage of a program. It is measured by a parent with small memory,
// because a child starts with the peak memory of its parent.
type cost struct {
	Exit   int
	Peak   int64         // bytes of memory
	CPU    time.Duration // user and system
	Stderr string
}

// measure is the program "measure": it runs the program in its arguments and prints its cost.
func measure() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		panic(err)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	c := cost{cmd.ProcessState.ExitCode(), usage.Maxrss << 10, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), stderr.String()}
	if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
		panic(err)
	}
}
