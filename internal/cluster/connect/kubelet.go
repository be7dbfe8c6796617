package connect

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// kubeletFiles returns where kubelet has its credentials, by who has set up the node. On OpenShift, kubelet.conf is
// kubelet's configuration, and no credentials.
func kubeletFiles() []string {
	return []string{
		"/var/lib/kubelet/kubeconfig",  // OpenShift
		"/etc/kubernetes/kubelet.conf", // kubeadm
		"/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
		"/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
	}
}

// UseKubelet makes the program use the credentials of kubelet, below a directory, unless others are named. A pod has them,
// too: the API server limits what they read to one node, and cannot do so for an account that all pods have. Kubelet gets
// them when its node joins the cluster: with wait, UseKubelet waits for that; otherwise it is an error if there are none.
func (f *Flags) UseKubelet(ctx context.Context, root string, wait bool, log *logrus.Logger) error {
	const poll = time.Second
	if f.kubeconfig != "" {
		return nil
	}
	for told := false; ; told = true {
		if f.kubeconfig = kubeletConfig(root); f.kubeconfig != "" {
			return nil
		}
		missing := fault.New(fault.Unavailable, "cannot find kubelet's credentials in %s: the node has not joined a cluster yet, or kubelet has them elsewhere", strings.Join(kubeletFiles(), ", ")).
			WithHint("name the file with --kubeconfig")
		if !wait {
			return missing
		}
		if !told {
			log.WithError(missing).Warn("waits for kubelet's credentials")
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kubeletConfig returns the first of kubelet's files that has credentials; "" if none has.
func kubeletConfig(root string) string {
	for _, file := range kubeletFiles() {
		path := filepath.Join(root, file)
		if config, err := clientcmd.LoadFromFile(path); err == nil && len(config.Clusters) > 0 {
			return path
		}
	}
	return ""
}

// Changed waits until the file with the credentials has other contents than Config has read, as after another authority
// of the cluster, or after its node has joined another cluster. It returns false when ctx ends. Certificates that the file
// only names are read again by client-go itself.
func (f *Flags) Changed(ctx context.Context) (bool, error) {
	const longest = 24 * time.Hour // nothing is missed: it is inotify that wakes
	if f.kubeconfig == "" {
		return false, nil
	}
	file, err := filepath.Abs(f.kubeconfig)
	if err != nil {
		return false, fmt.Errorf("cannot watch the credentials: %w", err)
	}
	w, err := hostfiles.NewWatcher()
	if err != nil {
		return false, err
	}
	defer w.Close()
	for {
		if err := w.Paths("/", []string{file}); err != nil {
			return false, err
		}
		if now, err := credentials(file).Read(ctx); err == nil && !bytes.Equal(now, f.read) {
			return true, nil
		}
		if err := w.Wait(ctx, longest); ctx.Err() != nil {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}

// NodeOf returns the name of the node with the kubelet of the credentials: Kubernetes gives each the user
// system:node:NAME, which its client certificate names. It returns "" for other credentials.
func NodeOf(config *rest.Config) string {
	text := config.CertData
	if len(text) == 0 && config.CertFile != "" {
		text, _ = os.ReadFile(config.CertFile) // the first request says what is wrong with it
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" { // kubelet has the key in the same file
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return ""
		}
		node, ok := strings.CutPrefix(certificate.Subject.CommonName, "system:node:")
		if !ok {
			return ""
		}
		return node
	}
	return ""
}
