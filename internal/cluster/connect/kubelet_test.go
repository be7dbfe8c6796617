package connect_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/fault"
)

// kubeconfig is a file with credentials for a server.
func kubeconfig(server string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://" + server +
		":6443'}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
}

// kubeletConfiguration is what OpenShift has in the file in which kubeadm has credentials.
const kubeletConfiguration = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nstaticPodPath: /etc/kubernetes/manifests\n"

// host is the root of a host with files.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(root, name), text)
	}
	return root
}

func put(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path+".new", []byte(text), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// TestUseKubelet: kubelet's credentials are found wherever the tools that make clusters have them.
func TestUseKubelet(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		server string // "": there are no credentials
	}{
		"OpenShift":                             {map[string]string{"/var/lib/kubelet/kubeconfig": kubeconfig("openshift"), "/etc/kubernetes/kubelet.conf": kubeletConfiguration}, "openshift"},
		"kubeadm":                               {map[string]string{"/etc/kubernetes/kubelet.conf": kubeconfig("kubeadm"), "/var/lib/kubelet/config.yaml": kubeletConfiguration}, "kubeadm"},
		"k3s":                                   {map[string]string{"/var/lib/rancher/k3s/agent/kubelet.kubeconfig": kubeconfig("k3s")}, "k3s"},
		"RKE2":                                  {map[string]string{"/var/lib/rancher/rke2/agent/kubelet.kubeconfig": kubeconfig("rke2")}, "rke2"},
		"OpenShift, before the node has joined": {map[string]string{"/etc/kubernetes/kubelet.conf": kubeletConfiguration}, ""},
		"an empty file":                         {map[string]string{"/var/lib/kubelet/kubeconfig": ""}, ""},
		"a file that is not complete":           {map[string]string{"/var/lib/kubelet/kubeconfig": kubeconfig("a")[:60]}, ""},
		"nothing":                               {nil, ""},
	} {
		var f connect.Flags
		err := f.UseKubelet(t.Context(), host(t, c.files), false, quiet())
		if c.server == "" {
			if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "/var/lib/kubelet/kubeconfig") || !strings.Contains(fault.HintOf(err), "--kubeconfig") {
				t.Errorf("%s: %v; %s", name, err, fault.HintOf(err))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		config, err := f.Config(t.Context(), "agent/1")
		if err != nil || config.Host != "https://"+c.server+":6443" {
			t.Errorf("%s: %+v, %v", name, config, err)
		}
	}
}

// TestOtherCredentials: a flag takes precedence over kubelet's credentials, and these over those of a pod.
func TestOtherCredentials(t *testing.T) {
	root := host(t, map[string]string{"/var/lib/kubelet/kubeconfig": kubeconfig("kubelet"), "/named": kubeconfig("named")})
	var named connect.Flags
	cmd := &cobra.Command{}
	named.Add(cmd, "none")
	if err := cmd.ParseFlags([]string{"--kubeconfig", filepath.Join(root, "named")}); err != nil {
		t.Fatal(err)
	}
	if err := named.UseKubelet(t.Context(), root, true, quiet()); err != nil {
		t.Fatal(err)
	}
	if config, err := named.Config(t.Context(), "agent/1"); err != nil || config.Host != "https://named:6443" {
		t.Errorf("a flag: %+v, %v", config, err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	var pod connect.Flags
	if err := pod.UseKubelet(t.Context(), root, true, quiet()); err != nil {
		t.Fatal(err)
	}
	if config, err := pod.Config(t.Context(), "agent/1"); err != nil || config.Host != "https://kubelet:6443" {
		t.Errorf("a pod: %+v, %v", config, err)
	}
}

// joins has a node join its cluster when the agent has said that it waits.
type joins struct {
	*testing.T
	root string
	said []string
}

func (j *joins) Write(line []byte) (int, error) {
	j.said = append(j.said, string(line))
	put(j.T, filepath.Join(j.root, "/etc/kubernetes/kubelet.conf"), kubeconfig("kubeadm"))
	return len(line), nil
}

// TestWaitForKubelet: an agent that is started before its node joins the cluster says so, once, and continues as soon as
// kubelet has its credentials. To be stopped meanwhile ends it.
func TestWaitForKubelet(t *testing.T) {
	root, log := host(t, nil), quiet()
	waits := &joins{T: t, root: root}
	log.SetOutput(waits)
	var f connect.Flags
	if err := f.UseKubelet(t.Context(), root, true, log); err != nil {
		t.Fatal(err)
	}
	if len(waits.said) != 1 || !strings.Contains(waits.said[0], "waits for kubelet's credentials") {
		t.Errorf("it says %q", waits.said)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	stop(stopped)
	if err := new(connect.Flags).UseKubelet(ctx, host(t, nil), true, log); !errors.Is(err, stopped) {
		t.Error(err)
	}
}

// TestChanged: other contents of the file with the credentials are noticed, also if the file is replaced, or was replaced
// before somebody watches; the same contents again are no change.
func TestChanged(t *testing.T) {
	root := host(t, map[string]string{"/var/lib/kubelet/kubeconfig": kubeconfig("first")})
	file := filepath.Join(root, "/var/lib/kubelet/kubeconfig")
	var f connect.Flags
	if err := f.UseKubelet(t.Context(), root, false, quiet()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Config(t.Context(), "agent/1"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	put(t, file, kubeconfig("first"))
	if changed, err := f.Changed(ctx); changed || err != nil {
		t.Errorf("the same: %v, %v", changed, err)
	}
	noticed := make(chan bool, 1)
	go func() {
		changed, err := f.Changed(t.Context())
		noticed <- changed && err == nil
	}()
	put(t, file, kubeconfig("second"))
	select {
	case ok := <-noticed:
		if !ok {
			t.Error("another file is none")
		}
	case <-time.After(time.Minute):
		t.Fatal("another file is not noticed within a minute")
	}
	if changed, err := f.Changed(t.Context()); !changed || err != nil {
		t.Errorf("replaced before: %v, %v", changed, err)
	}
	if changed, err := new(connect.Flags).Changed(t.Context()); changed || err != nil {
		t.Errorf("credentials of a pod: %v, %v", changed, err)
	}
}

// TestNodeOf: the node is the one that kubelet's certificate names, also in a file with its key.
func TestNodeOf(t *testing.T) {
	certificate := func(user string) []byte {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	file := filepath.Join(t.TempDir(), "kubelet-client-current.pem")
	put(t, file, "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"+string(certificate("system:node:n1.example")))
	for name, c := range map[string]struct {
		tls  rest.TLSClientConfig
		want string
	}{
		"a file":              {rest.TLSClientConfig{CertFile: file}, "n1.example"},
		"in the kubeconfig":   {rest.TLSClientConfig{CertData: certificate("system:node:n2")}, "n2"},
		"another user":        {rest.TLSClientConfig{CertData: certificate("admin")}, ""},
		"none":                {rest.TLSClientConfig{}, ""},
		"a file that is gone": {rest.TLSClientConfig{CertFile: file + ".gone"}, ""},
		"no certificate":      {rest.TLSClientConfig{CertData: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")}, ""},
	} {
		if got := connect.NodeOf(&rest.Config{TLSClientConfig: c.tls}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestHints: a line of the log with an error says what to do about it.
func TestHints(t *testing.T) {
	said, cmd := new(bytes.Buffer), &cobra.Command{}
	cmd.SetErr(said)
	log := new(connect.Flags).Log(cmd)
	log.WithError(fault.New(fault.Refused, "cannot read the node").WithHint("see --node-name")).Warn("cannot go on")
	if !strings.Contains(said.String(), `"hint":"see --node-name"`) {
		t.Error(said)
	}
	said.Reset()
	log.WithError(errors.New("cannot read")).Warn("cannot go on")
	log.Warn("nothing")
	if strings.Contains(said.String(), "hint") {
		t.Error(said)
	}
}
