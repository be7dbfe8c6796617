// Package script runs the commands in test scripts (txtar files of testscript) as users do. It adds
// these commands and conditions to testscript's:
//
//	exits STATUS COMMAND ARG…   runs a command and requires its exit status
//	envsubst FILE…              replaces variables in files
//	document KIND FILE          requires that the file is a valid document of this kind
//	documents KIND FILE         requires that each line is a valid document of this kind
//	[root]                      is true if the script runs as root
package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/internal/api"
	"machine-pivot/test/tools/schema"
)

// Params returns the parameters for the scripts in a directory. With UPDATE_SCRIPTS set, the
// scripts are updated with the actual output.
func Params(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Condition:           condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     exits,
			"envsubst":  envsubst,
			"document":  document,
			"documents": documents,
		},
	}
}

func condition(name string) (bool, error) {
	if name != "root" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return os.Geteuid() == 0, nil
}

func document(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: document KIND FILE")
	}
	ts.Check(schema.Validate(api.Kind(args[0]), []byte(ts.ReadFile(args[1]))))
}

func documents(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: documents KIND FILE")
	}
	ts.Check(schema.ValidateLines(api.Kind(args[0]), []byte(ts.ReadFile(args[1]))))
}

func envsubst(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		text := os.Expand(ts.ReadFile(file), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o644))
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND ARG...")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = statusOf(err)
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

// statusOf returns the exit status in the error of a command.
func statusOf(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return strconv.Itoa(e.ExitCode())
	}
	return err.Error()
}
