package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/registry"
)

// serve serves content to machines at url until close is called.
func serve(content []byte) (url string, close func() error, err error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("cannot serve the Ignition config: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "config.ign", time.Time{}, bytes.NewReader(content))
	})}
	go func() { _ = server.Serve(listener) }() // ends with close
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return "http://" + net.JoinHostPort(bootlab.GuestHost, port) + "/config.ign", server.Close, err
}

// copyImage copies an image into a registry with skopeo. It returns the reference by digest for
// machines.
func copyImage(ctx context.Context, dir, image string, to *registry.Registry) (string, error) {
	certs, digest := filepath.Join(dir, "certs"), filepath.Join(dir, "digest")
	auth := filepath.Join(dir, "auth.json")
	err := errors.Join(os.Mkdir(certs, 0o755), os.WriteFile(filepath.Join(certs, "ca.crt"), to.CA(), 0o644),
		os.WriteFile(auth, to.PullSecret(to.Host()), 0o600))
	if err != nil {
		return "", err
	}
	const name = "/hosttest/os"
	out, err := exec.CommandContext(ctx, "skopeo", "copy", "--quiet", "--preserve-digests", "--dest-cert-dir", certs, "--dest-authfile", auth,
		"--digestfile", digest, image, "docker://"+to.Host()+name+":copy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot copy %s into a registry of its own: %w\n%s", image, err, out)
	}
	text, err := os.ReadFile(digest)
	return to.HostAs(bootlab.GuestHost) + name + "@" + strings.TrimSpace(string(text)), err
}
