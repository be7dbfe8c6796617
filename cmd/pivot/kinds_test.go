package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/projection"
	"machine-pivot/kargs"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it hangs
		defer cancel()
		cmd := exec.CommandContext(ctx, program, append(args, "--root", h.Root)...)
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

// TestStrangeNames: a name that no file system can have, or with a NUL, is refused with a kind
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

// TestDamagedState: each file in which pivot keeps its state is read as a regular file of a bounded size. In place of
// each come damage, a FIFO, a link to a device, a directory and a file that is too large. Each command that reads it
// ends within the budget, with a kind and a hint.
func TestDamagedState(t *testing.T) {
	h := hostdir.New(t)
	run := runner(t, h)
	set := filepath.Join(t.TempDir(), "mc.yaml")
	if err := os.WriteFile(set, []byte("metadata: {name: a}\nspec: {kernelArguments: [a=1]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	huge := fmt.Sprintf(`{"format":1,"x":"%s"}`, strings.Repeat("x", 33<<20))
	for file, commands := range map[string][]string{
		"/var/lib/pivot/journal.json":  {"status", "verify", "plot", "rollback", "apply " + set, "rebase --append-karg a", "confirm", "trial", "release-slot --retry-for 0s"},
		"/run/pivot/status.json":       {"status", "wait --timeout 1s"},
		machineconfig.RecordPath:       {"apply " + set, "apply --repair", "apply --dry-run " + set},
		"/etc/pivot/live.json":         {"apply --finish", "apply " + set, "rollback"},
		projection.ManifestPath:        {"apply " + set, "project"},
		projection.RecordPath:          {"project"},
		machineconfig.LeftOutPath:      {"status"},
		disruption.RulesPath:           {"apply --dry-run " + set},
		kargs.PolicyPath:               {"apply --dry-run " + set, "rebase --append-karg a"},
		kargs.LegacyPath:               {"rebase --append-karg a"},
		machineconfig.EncapsulatedPath: {"plan", "firstboot"},
		machineconfig.CommittedPath:    {"plan", "firstboot"},
	} {
		path := h.Path(file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		there := err == nil
		for name, put := range map[string]func() error{
			"damage":             func() error { return os.WriteFile(path, []byte("{\"format\": \x1b[2J\n"), 0o644) },
			"another format":     func() error { return os.WriteFile(path, []byte(`{"format":99}`), 0o644) },
			"a FIFO":             func() error { return syscall.Mkfifo(path, 0o644) },
			"a link to a device": func() error { return os.Symlink("/dev/zero", path) },
			"a directory":        func() error { return os.Mkdir(path, 0o755) },
			"too large":          func() error { return os.WriteFile(path, []byte(huge), 0o644) },
		} {
			if err := errors.Join(os.RemoveAll(path), put()); err != nil {
				t.Fatal(err)
			}
			for _, command := range commands {
				got := run(strings.Fields(command)...)
				if got.status == 0 && name == "another format" {
					continue // the file has no format, and all fields are optional
				}
				if file == machineconfig.LeftOutPath && strings.Contains(got.stdout, "cannot tell what was left out") {
					continue // the rest of the status is useful without
				}
				expectKind(t, fmt.Sprintf("%s with %s as %s", command, name, file), got)
				if strings.Contains(got.stdout+got.stderr, "\x1b") {
					t.Errorf("%s with %s as %s prints %q", command, name, file, got.stdout+got.stderr)
				}
			}
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if there {
			h.Write(file, before)
		}
	}
}

// TestPrintedState: nothing of a file controls the terminal, whichever command shows it.
func TestPrintedState(t *testing.T) {
	h := hostdir.New(t)
	run := runner(t, h)
	const evil = `\u001b[2J\u009b31m\u202e\r`
	failure := `{"message":"E","hint":"E","permanent":true,"exitStatus":65}`
	steps := `[{"name":"E","seconds":1,"bootID":"E","at":1,"failed":1,"tries":[{"at":1,"message":"E","last":true}]}]`
	boots := `[{"id":"E","kernel":"2026-01-02T03:04:05Z","system":1}]`
	image := `{"reference":"E","digest":"E","commit":"E","version":"E"}`
	target := `{"image":` + image + `,"kargs":{"Old":null,"New":["E"],"Delete":null},"entries":[{"kind":"file","path":"E","mode":420,"digest":"E","user":"E","group":"E"}],` +
		`"units":{"wishes":[{"name":"E","state":"enabled"}]}}`
	record := `"format":4,"phase":"PHASE","bootID":"E","attempt":1,"target":` + target + `,"started":"2026-01-02T03:04:05Z","error":` + failure + `,"phases":` + steps + `,"boots":` + boots +
		`,"history":[{"phase":"E","attempt":1,"image":` + image + `,"error":` + failure + `,"started":"2026-01-02T03:04:05Z","ended":"2026-01-02T03:09:05Z","phases":` + steps + `,"boots":` + boots + `}]` +
		`,"features":{"downloaded":{"data":{"image":` + image + `,"file":"E","machineConfig":"E","at":"2026-01-02T03:04:05Z","left":[` + image + `]},"keeps":["E"],"images":[` + image + `]},"slot":{"data":{"url":"E","group":"E","id":"E"}},"E":{"data":{"E":"E"}},"first-boot":{"data":{"deployment":"E","request":"E"}}MORE}`
	trial := `,"trial":{"data":{"old":"E","new":"E","seconds":1,"confirm":"E","checks":["E"]},"holds":true}`
	other := filepath.Join(t.TempDir(), "other.json")
	for _, phase := range []string{"E", "failed", "done", "committed", "undone", "trial"} {
		for name, more := range map[string]string{"": "", " on trial": trial} {
			written := strings.ReplaceAll(record, "MORE", more)
			text := []byte(strings.ReplaceAll(strings.ReplaceAll("{"+written+"}", "PHASE", phase), `E"`, evil+`"`))
			h.Write("/var/lib/pivot/journal.json", text)
			if err := os.WriteFile(other, text, 0o644); err != nil {
				t.Fatal(err)
			}
			for status := range 2 {
				if err := os.RemoveAll(h.Path("/run/pivot/status.json")); err != nil {
					t.Fatal(err)
				}
				if status == 1 {
					s := `{"step":"E","notes":["E"],"leftOut":["E"],"lastCommand":{"name":"E","result":"E"},` + written + `}`
					h.Write("/run/pivot/status.json", []byte(strings.ReplaceAll(strings.ReplaceAll(s, "PHASE", phase), `E"`, evil+`"`)))
				}
				for _, command := range []string{
					"status", "status -o json", "status -o yaml", "plot", "plot --before 1", "plot --before 9", "plot --journal " + other, "plot --journal " + other + " --before 9", "verify",
					"wait --timeout 1ms", "confirm", "release-slot --retry-for 0s", "rollback", "rebase --append-karg a --from-downloaded", "apply --from-downloaded", "apply --repair", "trial",
				} {
					got := run(strings.Fields(command)...)
					for _, text := range []string{got.stdout, got.stderr} {
						if i := strings.IndexAny(text, "\x1b\u009b\u202e\r"); i >= 0 {
							t.Errorf("%s, phase %s%s: prints %q", command, phase, name, text[max(0, i-40):min(len(text), i+40)])
						}
					}
				}
			}
		}
	}
}
