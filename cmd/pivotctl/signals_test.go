package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"machine-pivot/test/tools/script"
)

// TestSignals: a signal ends a command that waits for the standard input or a pipe, for each way to
// name a file.
func TestSignals(t *testing.T) {
	caught := make(chan os.Signal, 1) // a signal that this process ignored, the programs would ignore, too
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT)
	defer signal.Stop(caught)
	conf := writeConf(t)
	for _, argv := range readers(conf) {
		script.StopsReading(t, argv...)
	}
}

// TestNamedFiles: no command reads without a limit from a file that it is given, and each says what
// is wrong with it.
func TestNamedFiles(t *testing.T) {
	conf := writeConf(t)
	for _, argv := range readers(conf) {
		if slices.Contains(argv, "PIPE") {
			script.RefusesFiles(t, argv...)
		}
	}
}

func writeConf(t *testing.T) (path string) {
	path = filepath.Join(t.TempDir(), "conf.yaml")
	put(t, path, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
"metadata":{"name":"a","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":{}}`)
	return path
}

// readers returns commands that read the standard input or the file PIPE: one for each way to name a file.
// conf is the path of a valid MachineConfig.
func readers(conf string) (all [][]string) {
	const server = "https://server.example:22623/config/worker"
	for _, argv := range [][]string{
		{"config", "validate", "-"},
		{"config", "validate", "PIPE"},
		{"config", "validate", "--encapsulated", "-"},
		{"config", "merge", "--role", "worker", "-"},
		{"config", "render", "--role", "worker", "-"},
		{"config", "render", "--role", "worker", "--lock", "PIPE", conf},
		{"config", "render", "--role", "worker", "--ca", "PIPE", conf},
		{"config", "ignition", "--role", "worker", "-"},
		{"config", "ignition", "--role", "worker", "--embed-pivot", "PIPE", conf},
		{"config", "serve", "PIPE"},
		{"config", "serve", "--listen", "127.0.0.1:0", "--tls-cert", "PIPE", "--tls-key", conf, conf},
		{"config", "diff", "-", conf},
		{"config", "diff", "--disruption-policy", "PIPE", conf, conf},
		{"config", "from-install-config", "-"},
		{"config", "pointer", "--url", server, "--token-file", "-"},
		{"config", "pointer", "--url", server, "--server-ca", "PIPE"},
		{"kargs", "check", "--karg-policy", "PIPE", "quiet"},
		{"kargs", "diff", "--booted", "quiet", "--legacy", "PIPE"},
		{"cluster", "plan", "-"},
		{"ctrcfg", "render", "--role", "worker", "PIPE"},
		{"ctrcfg", "render", "--role", "worker", "--rendered", "PIPE", "/dev/null"},
		{"pinning", "check", "PIPE"},
		{"pinning", "mutate", "PIPE"},
		{"pinning", "mutate", "--namespaces", "PIPE", conf},
	} {
		all = append(all, append([]string{"pivotctl"}, argv...))
	}
	return all
}
