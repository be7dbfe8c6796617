package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pivot": main, "measure": measure})
}

// TestScripts runs the command line as its users do; see testdata/*.txtar.
func TestScripts(t *testing.T) { testscript.Run(t, scripts("testdata")) }

// scripts are the parameters for the scripts in a directory.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup:               startWeb,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"web":      setWeb,
			"envsubst": envsubst,
		},
	}
}

// web is a web server whose pages a script can change.
type web struct {
	mu    sync.Mutex
	pages map[string]string
}

func (w *web) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	page, ok := w.pages[in.URL.Path]
	if !ok {
		http.NotFound(out, in)
		return
	}
	fmt.Fprint(out, page)
}

// startWeb starts a script's web server, at $WEB.
func startWeb(env *testscript.Env) error {
	w := &web{pages: map[string]string{"/motd": "first"}}
	server := httptest.NewServer(w)
	env.Defer(server.Close)
	env.Values["web"] = w
	env.Setenv("WEB", server.URL)
	return nil
}

// setWeb changes a page: web PATH CONTENT
func setWeb(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: web PATH CONTENT")
	}
	w := ts.Value("web").(*web)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[args[0]] = args[1]
}

// envsubst replaces variables in files: envsubst FILE…
func envsubst(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		text := os.Expand(ts.ReadFile(file), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o644))
	}
}

// exits runs a command and requires its exit status: exits STATUS COMMAND ARG…
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
