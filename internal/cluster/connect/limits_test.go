package connect_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"machine-pivot/internal/cluster/connect"
)

// TestLimits: what --kubeconfig names has a limit, and waiting for it ends with the program.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	large, pipe, relative := filepath.Join(dir, "large"), filepath.Join(dir, "pipe"), filepath.Join(dir, "relative")
	if err := errors.Join(os.WriteFile(large, make([]byte, 9<<20), 0o600), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/zero": "it is a device", large: "more than 8388608 bytes", dir: "it is a directory", dir + "/none": "no such file",
	} {
		_, err := connect.Read(t.Context(), path, "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("stopped"))
	defer cancel()
	if _, err := connect.Read(ctx, pipe, ""); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("a pipe that nobody writes: %v", err)
	}
	pipe += "2"
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(pipe, []byte(kubeconfig("piped")), 0o600) }()
	if config, err := connect.Read(t.Context(), pipe, ""); err != nil || config.Host != "https://piped:6443" {
		t.Errorf("a pipe: %v, %v", config, err)
	}
	text := strings.Replace(kubeconfig("a"), `6443'`, `6443', certificate-authority: ca.crt`, 1)
	if err := os.WriteFile(relative, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := connect.Read(t.Context(), relative, ""); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "ca.crt")) {
		t.Errorf("a path is relative to the file: %v\n%s", err, text)
	}
	for _, named := range []string{"cluster: {certificate-authority: PATH, server", "user: {tokenFile: PATH}}, {name: x, user: {", "user: {client-certificate: PATH, client-key: PATH}}, {name: x, user: {"} {
		for path, want := range map[string]string{"/dev/zero": "it is no regular file", large: "more than 8388608 bytes", pipe: "it is no regular file"} {
			before := named[:strings.Index(named, "{")+1]
			if strings.HasPrefix(named, "cluster") {
				before += "server"
			}
			text := strings.Replace(kubeconfig("a"), before, strings.ReplaceAll(named, "PATH", path), 1)
			if err := os.WriteFile(relative, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := connect.Read(t.Context(), relative, ""); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
}

// TestNoLimitOfRequests: the API server limits what a program sends, and the program itself does not. client-go would send
// five requests in a second.
func TestNoLimitOfRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(strings.Replace(kubeconfig(""), "https://:6443", server.URL, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	var flags connect.Flags
	cmd := &cobra.Command{}
	flags.Add(cmd, "none")
	if err := cmd.Flags().Set("kubeconfig", file); err != nil {
		t.Fatal(err)
	}
	config, err := flags.Config(t.Context(), "test/1")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 200 {
		if err := client.CoreV1().RESTClient().Get().AbsPath("/").Do(ctx).Error(); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}
