package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/hostdir"
	"machine-pivot/test/script"
)

// ran is the end of a program.
type ran struct {
	status         int
	stdout, stderr string
}

// runner returns a function that runs pivot on a machine.
func runner(t *testing.T, h *hostdir.Host) func(args ...string) ran {
	program := filepath.Join(script.Programs(t), "pivot")
	return func(args ...string) ran {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append(args, "--root", h.Root)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Fatal(err)
		}
		return ran{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}
}

// expectKind requires that a failure has a kind and a hint.
func expectKind(t *testing.T, what string, got ran) {
	t.Helper()
	if got.status <= 2 || !strings.Contains(got.stderr, "hint: ") {
		t.Errorf("%s: status %d: %s", what, got.status, got.stderr)
	}
}

// TestStrangeNames (D113): a name that no file system can have, or with a NUL, is refused with a kind
// and a hint wherever it is given.
func TestStrangeNames(t *testing.T) {
	h := hostdir.New(t)
	run := runner(t, h)
	long := strings.Repeat("a", 256)
	for _, args := range []string{
		"plan --machineconfig-file /LONG", "firstboot --machineconfig-file /LONG", "apply LONG", "apply /etc/LONG", "diff LONG LONG",
		"plot --journal LONG", "image inspect oci:LONG", "image inspect oci:/LONG", "image inspect dir:LONG", "image inspect oci-archive:/LONG",
		"image inspect docker-archive:/LONG", "image inspect --repo LONG IMAGE", "image import --repo LONG IMAGE", "image inspect --authfile LONG IMAGE",
		"rebase --authfile LONG IMAGE", "plan oci:LONG", "rebase oci:/LONG", "rebase --try --check LONG --authfile /LONG IMAGE",
	} {
		list := strings.Fields(strings.NewReplacer("LONG", long, "IMAGE", h.Image).Replace(args))
		got := run(list...)
		if got.status == 0 && strings.Contains(args, "--repo LONG IMAGE") {
			continue
		}
		expectKind(t, args, got)
	}
	possible := map[string]bool{"key": true} // it is text
	for name, spec := range map[string]string{
		"path":        `"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/%s","contents":{"source":"data:,x"}}]}}`,
		"directory":   `"config":{"ignition":{"version":"3.4.0"},"storage":{"directories":[{"path":"/etc/%s"}]}}`,
		"path in var": `"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/var/lib/%s","contents":{"source":"data:,x"}}]}}`,
		"link":        `"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/%s","target":"x"}]}}`,
		"target":      `"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/x","target":"%s\u0000"}]}}`,
		"unit":        `"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"%s.service","enabled":true,"contents":"[Install]\nWantedBy=multi-user.target\n"}]}}`,
		"dropin":      `"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"x.service","dropins":[{"name":"%s.conf","contents":"x"}]}]}}`,
		"wanted":      `"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Install]\nWantedBy=%s.target\n"}]}}`,
		"alias":       `"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Install]\nAlias=%s.service\nWantedBy=multi-user.target\n"}]}}`,
		"owner":       `"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/x","user":{"name":"%s"},"contents":{"source":"data:,x"}}]}}`,
		"source":      `"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/x","contents":{"source":"http://%s/x"}}]}}`,
		"argument":    `"kernelArguments":["a=%s\u0000"]`,
		"image":       `"osImageURL":"%s"`,
		"extension":   `"extensions":["%s"]`,
		"key":         `"config":{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["%s"]}]}}`,
		"password":    `"config":{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core","passwordHash":"%s\u0000"}]}}`,
	} {
		for _, part := range []string{long, `a\u0000b`} {
			file := filepath.Join(t.TempDir(), "mc.json")
			text := fmt.Sprintf(`{"metadata":{"name":"x"},"spec":{`+spec+`}}`, part)
			if !json.Valid([]byte(text)) {
				t.Fatal(text)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			what := name + " with " + part[:3]
			if got := run("apply", "--dry-run", file); got.status != 0 {
				expectKind(t, what, got)
			} else if name != "owner" && (!possible[name] || part != long) { // owners are looked up in the new system
				t.Errorf("%s is accepted", what)
			}
		}
	}
}
