package controlplane

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/testenv"
)

// Admin returns the configuration of a client that may do everything.
func (c *ControlPlane) Admin() *rest.Config { return c.User("admin", "system:masters") }

// CA returns the certificate of the authority that issues all certificates, in PEM.
func (c *ControlPlane) CA() []byte { return c.ca.pem() }

// NodeUser returns the configuration of a client with the credentials of a node's kubelet.
func (c *ControlPlane) NodeUser(node string) *rest.Config {
	return c.User("system:node:"+node, "system:nodes")
}

// User returns the configuration of a client that is the named user, in the groups. It has only the
// rights that RBAC gives to these. The client does not limit its own requests, and does not log the API server's
// warnings.
func (c *ControlPlane) User(name string, groups ...string) *rest.Config {
	c.t.Helper()
	issued, err := c.ca.client(name, groups)
	if err != nil {
		c.t.Fatal(err)
	}
	host, _ := c.Address()
	return &rest.Config{
		Host:            host,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem(), CertData: issued.certificate, KeyData: issued.key},
		QPS:             -1,
		WarningHandler:  rest.NoWarnings{},
	}
}

// Client returns a client of the configuration.
func (c *ControlPlane) Client(config *rest.Config) kubernetes.Interface {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// Scheme returns a scheme with the types of Kubernetes and of a fleet.
func Scheme(t testenv.T) *runtime.Scheme {
	t.Helper()
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	api.AddTo(known)
	return known
}

// Kubeconfig returns a configuration as a file of that kind.
func (c *ControlPlane) Kubeconfig(config *rest.Config) []byte {
	c.t.Helper()
	const name = "test"
	tls := config.TLSClientConfig
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: tls.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: tls.CertData, ClientKeyData: tls.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}
