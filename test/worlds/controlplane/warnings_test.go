package controlplane

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestNoWarnings shows that warnings of an API server are not logged. Without a logger, which a demonstration has no
// use for, the library would print the stack of the first one.
func TestNoWarnings(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.server()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(issued.certificate, issued.key)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Warning", `299 - "unknown field"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`)) // the client checks it
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	defer server.Close()
	log.SetLogger(funcr.New(func(_, message string) { t.Errorf("logged %s", message) }, funcr.Options{}))

	c := &ControlPlane{t: t, ca: ca}
	config, scheme := c.Admin(), Scheme(t)
	config.Host = server.URL
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	reader, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.ConfigMap
	if err := reader.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, &got); err != nil || got.Name != "a" || asked != 1 {
		t.Errorf("got %q in %d requests, %v", got.Name, asked, err)
	}
}
