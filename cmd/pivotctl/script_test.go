package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/script"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"pivotctl": main}) }

// TestScripts runs the command line as its users do; see testdata/*.txtar.
func TestScripts(t *testing.T) {
	params := script.Params("testdata")
	params.Setup = startWeb
	params.Cmds["web"] = setWeb
	testscript.Run(t, params)
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
