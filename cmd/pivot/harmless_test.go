package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/internal/printable"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
)

// hostileText is an attempt to forge a message of this program: terminal sequences, C1
// controls, bidirectional text, invalid UTF-8, and an additional line.
const hostileText = "no\x1b[2J\u009b31m\u202e\x7f\xff\r\npivot: prove: the machine is what was asked for"

// TestHostileScripts runs commands with hostile input, in testdata/hostile. Their output must
// do no harm to a terminal or a log.
func TestHostileScripts(t *testing.T) {
	need.Ostree(t)
	params := scripts("testdata/hostile")
	params.Setup = prepareHostile
	params.Cmds["harmless"] = harmless
	testscript.Run(t, params)
}

// harmless requires that the last command printed something, to stdout or stderr, that is
// neither harmful nor has a forged line: harmless stdout|stderr
func harmless(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: harmless stdout|stderr")
	}
	shown := ts.ReadFile(args[0])
	if shown == "" {
		ts.Fatalf("%s is empty", args[0])
	}
	for line := range strings.Lines(shown) {
		if text := strings.TrimSuffix(line, "\n"); printable.Line(text) != text {
			ts.Fatalf("not printable: %q", line)
		}
		if strings.HasPrefix(line, "pivot: prove: ") {
			ts.Fatalf("a line that is not ours: %q", line)
		}
	}
}

// prepareHostile sets up the scripts: a registry at $HOSTILE, trusted by the root directory
// net, OCI layouts, and a machine's journal and files in the root directory machine.
func prepareHostile(env *testscript.Env) error {
	server := httptest.NewServer(http.HandlerFunc(answerHostile))
	env.Defer(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	env.Setenv("HOSTILE", host)
	img, err := legacyImage(env)
	if err != nil {
		return err
	}
	registries := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n"+
		"[[registry]]\nlocation = \"os.example/test\"\n[[registry.mirror]]\nlocation = \"%s/json\"\ninsecure = true\n[[registry.mirror]]\nlocation = \"%s/text\"\ninsecure = true\n",
		host, host, host)
	record, err := json.Marshal(map[string]any{
		"format": 4, "phase": "failed", "attempt": 1, "error": map[string]any{"message": "cannot: " + hostileText + "\n  a list", "hint": hostileText, "permanent": true},
		"phases": []any{map[string]any{"name": "pull", "seconds": 1, "tries": []any{map[string]any{"message": hostileText}}}},
	})
	if err != nil {
		return err
	}
	return errors.Join(
		writeFile(env, "net/etc/containers/registries.conf", []byte(registries)),
		writeFile(env, "net/etc/containers/policy.json", []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`)),
		writeFile(env, "machine/var/lib/pivot/journal.json", record),
		hostileLayouts(env, img),
	)
}

func writeFile(env *testscript.Env, name string, content []byte) error {
	file := filepath.Join(env.WorkDir, name)
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o600))
}

// hostileLayouts writes images with hostile label, refs and object names.
func hostileLayouts(env *testscript.Env, img v1.Image) error {
	derive := func(base v1.Image, entries ...oscontainer.Entry) (v1.Image, error) {
		dir, err := os.MkdirTemp(env.WorkDir, ".derived-*")
		if err != nil {
			return nil, err
		}
		return oscontainer.Derive(base, oscontainer.WithWorkDir(dir), oscontainer.WithDerived(entries...))
	}
	const heads = "srv/repo/refs/heads/"
	refs, err := derive(img, oscontainer.File(heads+hostileText, "x"), oscontainer.File(heads+"other", "x"))
	if err != nil {
		return err
	}
	object, err := derive(inOCI(empty.Image), oscontainer.File("sysroot/ostree/repo/objects/00/"+hostileText+".file", "x"))
	if err != nil {
		return err
	}
	for name, made := range map[string]struct {
		img    v1.Image
		labels map[string]string
	}{
		"label":  {img, map[string]string{"com.coreos.ostree-commit": env.Getenv("COMMIT"), "version": hostileText}},
		"refs":   {refs, nil},
		"object": {object, map[string]string{"ostree.commit": strings.Repeat("a", 64)}},
	} {
		config, err := made.img.ConfigFile()
		if err != nil {
			return err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture, config.Config.Labels = "linux", runtime.GOARCH, made.labels
		if name == "object" {
			config.Config.Labels["ostree.final-diffid"] = config.RootFS.DiffIDs[len(config.RootFS.DiffIDs)-1].String()
		}
		img, err := mutate.ConfigFile(made.img, config)
		if err != nil {
			return err
		}
		if err := oscontainer.WriteLayout(filepath.Join(env.WorkDir, name), img); err != nil {
			return err
		}
	}
	return nil
}

// answerHostile is a registry that refuses requests in several ways, depending on the
// repository's name.
func answerHostile(w http.ResponseWriter, req *http.Request) {
	switch name := path.Base(path.Dir(path.Dir(req.URL.Path))); {
	case req.URL.Path == "/token":
		http.Error(w, hostileText, http.StatusForbidden)
	case name == "json":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]any{
			{"code": "DENIED", "message": hostileText, "detail": hostileText}, {"code": hostileText, "message": hostileText},
		}})
	case name == "text":
		http.Error(w, hostileText, http.StatusBadRequest)
	case name == "busy":
		http.Error(w, hostileText, http.StatusServiceUnavailable)
	case name == "status":
		answerRaw(w, "HTTP/1.1 418 "+strings.ReplaceAll(hostileText, "\r\n", " ")+"\r\nContent-Length: 0\r\n\r\n")
	case name == "redirect":
		answerRaw(w, "HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\xff\u202e\u009b?x\r\nContent-Length: 0\r\n\r\n")
	case name == "file":
		http.Redirect(w, req, "file:///etc/passwd", http.StatusFound)
	case name == "token":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x\x1b[2J"`, req.Host))
		w.WriteHeader(http.StatusUnauthorized)
	case name == "type":
		w.Header().Set("Content-Type", "application/\u009b31m\u202e")
		fmt.Fprint(w, hostileText)
	case req.URL.Path == "/v2/":
	default:
		http.NotFound(w, req)
	}
}

// answerRaw sends bytes that net/http would not send.
func answerRaw(w http.ResponseWriter, answer string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err) // HTTP/1 connections support it
	}
	defer conn.Close()
	fmt.Fprint(conn, answer)
}
