// Package controlplane is a Kubernetes control plane for tests: the real etcd, API server and
// disruption controller, with the node authorizer, RBAC and the admission of a cluster. It starts in
// seconds. Nobody runs pods and nobody schedules them: a Kubelet here stands in for the kubelet of a
// node, and pods are created with the name of their node.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/testenv"
)

// ControlPlane is a control plane that runs until the end of a test, or of what a program shows.
type ControlPlane struct {
	t       testenv.T
	form    Form
	dir     string // files and sockets
	program string
	ca      authority
	port    reservedPort
	etcd    *Process
	server  *Process
}

// Start starts a control plane, and builds it before if necessary. It skips the test in a short run.
func Start(t testenv.T) *ControlPlane {
	t.Helper()
	return startForm(t, FormMini)
}

// StartFull is like Start, with kube-controller-manager, kube-scheduler and the admission of service
// accounts: what real nodes need. Somebody has to run the pods.
func StartFull(t testenv.T) *ControlPlane {
	t.Helper()
	return startForm(t, FormFull)
}

func startForm(t testenv.T, form Form) *ControlPlane {
	t.Helper()
	if test, ok := t.(testing.TB); ok && testing.Short() {
		test.Skip("starts a control plane of Kubernetes")
	}
	c := &ControlPlane{t: t, form: form, program: NeedProgram(t, form)}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// NeedProgram returns the path of the binary of a form, and builds it before if necessary. Without the
// modules of Kubernetes it skips the test.
func NeedProgram(t testenv.T, form Form) string {
	t.Helper()
	program, err := Program(t.Context(), form, t.Output())
	test, ok := t.(testing.TB)
	if _, offline := errors.AsType[NoModules](err); offline && ok {
		need.Lacking(test, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func (c *ControlPlane) start() (err error) {
	// Not below t.TempDir, because the path of a socket is limited to 107 bytes.
	if c.dir, err = os.MkdirTemp("", "controlplane-*"); err != nil {
		return err
	}
	c.t.Cleanup(func() {
		if err := os.RemoveAll(c.dir); err != nil {
			c.t.Error(err)
		}
	})
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	if c.port, err = reservePort(); err != nil {
		return err
	}
	c.t.Cleanup(c.port.release)
	if err := c.writeFiles(); err != nil {
		return err
	}
	if c.etcd, err = c.component("etcd", c.etcdFlags()...); err != nil {
		return err
	}
	c.StartServer()
	if err := c.startControllers(); err != nil {
		return err
	}
	return c.waitForNamespace("default")
}

// startControllers starts what else the form has. The controller-manager has the disruption controller, too.
func (c *ControlPlane) startControllers() error {
	if c.form == FormMini {
		_, err := c.component("disruption", c.path(adminConfig))
		return err
	}
	_, err := c.component("kube-controller-manager", c.managerFlags()...)
	if err == nil {
		_, err = c.component("kube-scheduler", c.schedulerFlags()...)
	}
	return err
}

// path returns the path of a file of the control plane.
func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// component starts a component of Kubernetes.
func (c *ControlPlane) component(name string, flags ...string) (*Process, error) {
	return c.Run(name, append([]string{c.program, name}, flags...)...)
}

// Run starts a program that the cluster has beside the components of Kubernetes, such as a controller, and ends it
// with the test. Programs of one name have one log; that of a failed test has its last lines.
func (c *ControlPlane) Run(name string, argv ...string) (*Process, error) {
	p, err := start(name, c.path(name+".log"), argv...)
	if err != nil {
		return nil, err
	}
	c.t.Cleanup(func() {
		p.Kill()
		if c.t.Failed() {
			c.t.Logf("end of the log of %s:\n%s", name, p.tail())
		}
	})
	return p, nil
}

// StartServer starts the API server, also after StopServer, and waits until it is ready.
func (c *ControlPlane) StartServer() {
	c.t.Helper()
	p, err := c.component("kube-apiserver", c.serverFlags()...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.server = p
	if err := c.waitForServer(); err != nil {
		c.t.Fatal(err)
	}
}

// StopServer ends the API server: clients find nobody at its address until StartServer.
func (c *ControlPlane) StopServer() {
	c.server.Kill()
}

// waitForServer waits until the API server says that it is ready, which includes the roles of RBAC.
func (c *ControlPlane) waitForServer() error {
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	return c.waitFor("the API server", func(ctx context.Context) error {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// waitForNamespace waits for one of the namespaces that the API server makes after it is ready.
func (c *ControlPlane) waitForNamespace(name string) error {
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	return c.waitFor("the namespace "+name, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// waitFor calls f until it succeeds, unless a component ends.
func (c *ControlPlane) waitFor(what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		for _, p := range []*Process{c.etcd, c.server} {
			if !p.running() {
				return fmt.Errorf("cannot wait for %s: %s has ended", what, p.name)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Address returns where the API server is: for programs on this host, and for guests of QEMU's user
// network.
func (c *ControlPlane) Address() (host, guest string) {
	return "https://" + net.JoinHostPort("127.0.0.1", c.port.number), "https://" + net.JoinHostPort("10.0.2.2", c.port.number)
}
