package main

import (
	"net"
	"os"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/tools/script"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pivot": main, "measure": script.Measure})
}

// TestScripts runs the command line as users do; see testdata/*.txtar.
func TestScripts(t *testing.T) { testscript.Run(t, scripts("testdata")) }

// scripts returns the parameters for the scripts in a directory.
func scripts(dir string) testscript.Params {
	params := script.Params(dir)
	params.Setup = startSilent
	params.Cmds["unasked"] = unasked
	params.Cmds["awaits"] = awaits
	return params
}

// startSilent starts a registry for a script, at $SILENT, that accepts connections and never
// responds.
func startSilent(env *testscript.Env) error {
	registry, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var connections atomic.Int64
	go func() {
		for {
			conn, err := registry.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			connections.Add(1)
		}
	}()
	env.Defer(func() { _ = registry.Close() })
	env.Values["connections"] = &connections
	env.Setenv("SILENT", registry.Addr().String())
	return nil
}

// awaits waits until a file has a line that matches: awaits FILE REGEXP
func awaits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: awaits FILE REGEXP")
	}
	wanted := regexp.MustCompile("(?m)" + args[1])
	var text []byte
	for range 1200 {
		text, _ = os.ReadFile(ts.MkAbs(args[0])) // it may not exist yet
		if wanted.Match(text) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s has no %q: %s", args[0], args[1], text)
}

// unasked requires that there were no connections to the silent registry: unasked
func unasked(ts *testscript.TestScript, neg bool, args []string) {
	if n := ts.Value("connections").(*atomic.Int64).Load(); neg || len(args) > 0 || n != 0 {
		ts.Fatalf("%d connections to the registry", n)
	}
}
