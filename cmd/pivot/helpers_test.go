package main

import (
	"errors"
	"os/exec"
	"strconv"
)

// statusOf is the exit status in the error of a command that ran.
func statusOf(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return strconv.Itoa(e.ExitCode())
	}
	return err.Error()
}
