package main

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/tools/script"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pivotctl": main, "measure": script.Measure})
}

// TestScripts runs the command line as users do; see testdata/*.txtar.
func TestScripts(t *testing.T) {
	params := script.Params("testdata")
	params.Setup = func(env *testscript.Env) error { return errors.Join(startWeb(env), startAPI(env), writeProgram(env)) }
	params.Cmds["web"] = setWeb
	testscript.Run(t, params)
}

// web is a web server with pages that a script can change.
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

// startWeb starts a web server for a script, at $WEB.
func startWeb(env *testscript.Env) error {
	w := &web{pages: map[string]string{"/motd": "first"}}
	server := httptest.NewServer(w)
	env.Defer(server.Close)
	env.Values["web"] = w
	env.Setenv("WEB", server.URL)
	return nil
}

// startAPI starts an API server for a script, and a kubeconfig for it at $KUBECONFIG. It answers with the files
// below api/: that of a path with .json at its end.
func startAPI(env *testscript.Env) error {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := os.ReadFile(filepath.Join(env.WorkDir, "api", filepath.FromSlash(r.URL.Path)+".json"))
		if err != nil {
			http.Error(w, `{"kind":"Status","message":"the server could not find the requested resource"}`, http.StatusNotFound)
			return
		}
		_, _ = w.Write(text)
	}))
	env.Defer(server.Close)
	file := filepath.Join(env.WorkDir, "kubeconfig")
	env.Setenv("KUBECONFIG", file)
	return os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
  users: [{name: u, user: {token: t}}], clusters: [{name: c, cluster: {server: %q}}]}`, server.URL), 0o600)
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

// writeProgram writes the smallest static program for Linux to $PROGRAM, for scripts to embed.
// A real one takes seconds to compress; test/suites/ignition has Ignition write one.
func writeProgram(env *testscript.Env) error {
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
	}
	header.Ehsize = uint16(binary.Size(header))
	program, err := binary.Append(nil, binary.LittleEndian, header)
	if err != nil {
		return err
	}
	file := filepath.Join(env.WorkDir, "program")
	env.Setenv("PROGRAM", file)
	return os.WriteFile(file, program, 0o755)
}
