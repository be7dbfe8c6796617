package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestDocuments runs the commands of documents and compares what they print. A
// block with a file's name is that file. UPDATE_GOLDEN=1 writes into the documents
// what the commands print.
func TestDocuments(t *testing.T) {
	for _, name := range []string{"machineconfig.md", "pinning.md", "containerruntime.md", "recipes/openshift.md"} {
		t.Run(path.Base(name), func(t *testing.T) { playDocument(t, "../../docs/"+name) })
	}
}

func playDocument(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The document's server, which is asked as a proxy.
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "Welcome")
	}))
	defer web.Close()
	dir := t.TempDir()
	var document strings.Builder
	var block []string
	language, file := "", ""
	for line := range strings.Lines(string(text)) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case !isFence && language == "":
			document.WriteString(line)
		case !isFence:
			block = append(block, line)
		case language == "":
			language, file, _ = strings.Cut(fence, " ")
			document.WriteString(line)
		default:
			if file != "" {
				put(t, filepath.Join(dir, file), strings.Join(block, ""))
			}
			if language == "console" {
				block = session(t, dir, web.URL, block)
			}
			document.WriteString(strings.Join(block, "") + line)
			language, block = "", nil
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(document.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if document.String() != string(text) {
		t.Errorf("the document is not what happens; that is\n%s", &document)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// session runs the commands of a block and puts behind each what it prints.
func session(t *testing.T, dir, proxy string, block []string) []string {
	t.Helper()
	var lines []string
	for _, line := range block {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		cmd := exec.Command("sh", "-c", "exec 2>&1; "+command)
		if strings.Contains(command, "config serve") {
			cmd = exec.Command("sh", "-c", "exec 2>&1; exec "+strings.Replace(command, ":22624", ":0", 1))
		}
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "http_proxy="+proxy)
		lines = append(lines, line, untilItServes(t, cmd))
	}
	return lines
}

// untilItServes is what a command prints, until it ends or serves.
func untilItServes(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		fmt.Fprintln(&printed, lines.Text())
		if strings.HasPrefix(lines.Text(), "serving on ") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // what it ends with is for other tests
	text := regexp.MustCompile(`"fetched": "[^"]*"`).ReplaceAllString(printed.String(), `"fetched": "2026-01-01T00:00:00Z"`)
	return regexp.MustCompile(`serving on 127\.0\.0\.1:\d+`).ReplaceAllString(text, "serving on 127.0.0.1:22624")
}
