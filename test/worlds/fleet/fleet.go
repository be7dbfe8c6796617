// Package fleet runs pivot-fleet for tests: replicas of its controller as processes of the host, at the real API
// server, with the rights of deploy/fleet.
package fleet

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/testenv"
)

// Account is the user that the controllers are.
const Account = "system:serviceaccount:pivot-fleet:pivot-fleet-controller"

// Fleet is a cluster with the objects and the rights of a fleet.
type Fleet struct {
	t       testenv.T
	program string   // pivot-fleet
	config  string   // file with the credentials of the controller
	Env     []string // more of the environment of the controllers
}

// New deploys what deploy/fleet has for the controller, with the objects below it, from a checkout of the source.
// program is pivot-fleet.
func New(t testenv.T, plane *controlplane.ControlPlane, source, program string) *Fleet {
	t.Helper()
	plane.Deploy(filepath.Join(source, "deploy/base"))
	for _, file := range []string{"controller", "rbac-admission", "rbac-render", "rbac-rollout", "rbac-follow", "rbac-readers"} {
		plane.ApplyFile(filepath.Join(source, "deploy/fleet", file+".yaml"))
	}
	return Deployed(t, plane, program)
}

// Deployed is New for a cluster in which all of that is deployed already.
func Deployed(t testenv.T, plane *controlplane.ControlPlane, program string) *Fleet {
	t.Helper()
	account := plane.User(Account, "system:serviceaccounts", "system:serviceaccounts:pivot-fleet")
	f := &Fleet{t: t, program: program, config: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(f.config, plane.Kubeconfig(account), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// Replica is a running controller.
type Replica struct {
	*exec.Cmd
	log     *bytes.Buffer
	metrics string // address
}

// Start starts a replica, which ends with the test. The log of a failed test has its log.
func (f *Fleet) Start() *Replica {
	f.t.Helper()
	r := &Replica{log: &bytes.Buffer{}, metrics: controlplane.FreeAddress(f.t)}
	r.Cmd = f.command(r.metrics)
	r.Stderr = r.log
	if err := r.Cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		f.Stop(r)
		if f.t.Failed() {
			f.t.Logf("a replica:\n%s", r.log)
		}
	})
	return r
}

// command returns what a replica is, with its metrics at an address. It ends with the test.
func (f *Fleet) command(metrics string) *exec.Cmd {
	cmd := exec.Command(f.program, "controller", "--kubeconfig", f.config, "--listen-health", "127.0.0.1:0", "--listen-metrics", metrics, "--listen-webhooks", "")
	cmd.Env = append(os.Environ(), f.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Stop ends a replica as kubelet does, if it runs.
func (f *Fleet) Stop(r *Replica) {
	f.t.Helper()
	if r.ProcessState != nil {
		return
	}
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Error(err)
	}
	if err := r.Wait(); err != nil {
		f.t.Errorf("a replica ends with %v", err)
	}
}

// Kill ends a replica in the middle of what it does.
func (f *Fleet) Kill(r *Replica) {
	f.t.Helper()
	if err := r.Process.Kill(); err != nil {
		f.t.Error(err)
	}
	_ = r.Wait() // it was killed
}

// Shows reports whether the metrics of a replica have a line.
func (r *Replica) Shows(ctx context.Context, line string) bool {
	return strings.Contains(r.Page(ctx), "\n"+line+"\n")
}

// Page returns the metrics of a replica; "" if it does not answer.
func (r *Replica) Page(ctx context.Context) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.metrics+"/metrics", nil)
	if err != nil {
		return ""
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}
	return string(text)
}
