package controlplane

import (
	"errors"
	"os"

	_ "embed"
)

// The files of a control plane.
const (
	caFile        = "ca.crt"
	serverCert    = "server.crt"
	serverKey     = "server.key"
	accountsKey   = "service-accounts.key"
	adminConfig   = "admin.conf"
	auditPolicy   = "audit-policy.yaml"
	auditLog      = "audit.log"
	etcdSocket    = "etcd.sock"
	etcdPeers     = "etcd-peers.sock"
	etcdDirectory = "etcd"
)

// policyText has the API server log each request, without what is in it.
//
//go:embed audit-policy.yaml
var policyText []byte

// writeFiles writes what the components read.
func (c *ControlPlane) writeFiles() error {
	server, err := c.ca.server()
	if err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	accounts, err := encodeKey(key)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		caFile:      c.ca.pem(),
		serverCert:  server.certificate,
		serverKey:   server.key,
		accountsKey: accounts,
		auditPolicy: policyText,
		adminConfig: c.Kubeconfig(c.Admin()),
	} {
		err = errors.Join(err, os.WriteFile(c.path(name), text, 0o600))
	}
	return err
}

// etcdFlags has etcd listen on sockets, which need no ports. A power cut of this host is no case.
func (c *ControlPlane) etcdFlags() []string {
	clients, peers := "unix://"+c.path(etcdSocket), "unix://"+c.path(etcdPeers)
	return []string{
		"--data-dir=" + c.path(etcdDirectory), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
	}
}

// serverFlags has the API server authorize and admit as in a cluster. Only the admission of service
// accounts is off in the small form: no controller makes an account in each namespace, without which pods
// are refused.
func (c *ControlPlane) serverFlags() []string {
	flags := []string{
		"--etcd-servers=unix://" + c.path(etcdSocket),
		"--bind-address=127.0.0.1", "--secure-port=" + c.port.number, "--permit-port-sharing", "--endpoint-reconciler-type=none",
		"--advertise-address=10.0.2.2", // nobody is told, but without it there must be a default route
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + c.path(serverCert), "--tls-private-key-file=" + c.path(serverKey), "--client-ca-file=" + c.path(caFile), "--cert-dir=" + c.dir,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path(accountsKey), "--service-account-signing-key-file=" + c.path(accountsKey),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--audit-policy-file=" + c.path(auditPolicy), "--audit-log-path=" + c.path(auditLog),
		"--profiling=false",
	}
	if c.form == FormMini {
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return flags
}

// managerFlags has all controllers of a cluster run that has no cloud. Each is alone: nobody else wants
// to be the leader. Nothing asks it over HTTP.
func (c *ControlPlane) managerFlags() []string {
	return []string{
		"--kubeconfig=" + c.path(adminConfig), "--leader-elect=false", "--secure-port=0",
		// Emulated nodes on a busy host are late, by more than the 50 s after which a node counts as lost.
		"--node-monitor-grace-period=10m",
		"--root-ca-file=" + c.path(caFile), "--service-account-private-key-file=" + c.path(accountsKey),
	}
}

func (c *ControlPlane) schedulerFlags() []string {
	return []string{"--kubeconfig=" + c.path(adminConfig), "--leader-elect=false", "--secure-port=0"}
}
