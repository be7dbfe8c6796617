package ignition_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/kargs"
	realignition "machine-pivot/test/suites/ignition"
	"machine-pivot/test/tools/need"
)

// TestAlone: the config of a machine without a cluster, carried out by the real Ignition, which fetches pivot by its hash.
func TestAlone(t *testing.T) {
	need.Ignition(t)
	program := []byte("#!/bin/sh\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(program) }))
	defer server.Close()
	config := func(hashed []byte) []byte {
		fetch, err := provision.Fetch(server.URL+"/pivot", fmt.Sprintf("sha256-%x", sha256.Sum256(hashed)))
		if err != nil {
			t.Fatal(err)
		}
		file, err := provision.NewFile("/etc/motd", []byte("hello\n"))
		if err != nil {
			t.Fatal(err)
		}
		machine := provision.Alone{Image: "quay.io/os@sha256:" + fmt.Sprintf("%064d", 1), Arguments: []string{"nosmt"}, Files: []ignition.File{file}}
		raw, report := machine.Config(authored.Rules{KernelArguments: kargs.DefaultPolicy()}, "3.3.0", fetch) // as Debian's Ignition
		if len(report) > 0 {
			t.Fatal(report)
		}
		return raw
	}
	root := t.TempDir()
	if err := realignition.Apply(t.Context(), config(program), root); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"usr/local/bin/pivot": string(program), "etc/motd": "hello\n"} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	encapsulated, err := os.ReadFile(filepath.Join(root, machineconfig.EncapsulatedPath))
	if err != nil {
		t.Fatal(err)
	}
	mc, report := machineconfig.Parse(encapsulated, authored.Rules{KernelArguments: kargs.DefaultPolicy()}.Host())
	if len(report) > 0 || len(mc.Spec.KernelArguments) != 1 || mc.Spec.OSImageURL.IsZero() {
		t.Errorf("the machine reads %+v: %s", mc, report)
	}
	if entries, err := os.ReadDir(filepath.Join(root, "etc/machine-config-daemon")); err == nil {
		t.Errorf("something of a node was written: %v", entries)
	}
	if err := realignition.Apply(t.Context(), config([]byte("another")), t.TempDir()); err == nil {
		t.Error("a program with another hash was written")
	}
}
