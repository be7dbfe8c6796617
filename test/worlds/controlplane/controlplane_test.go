package controlplane_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"machine-pivot/test/worlds/controlplane"
)

// TestControlPlane shows that the parts work together: objects of a new kind are served, and pods of a node run. The
// controller computes what a budget allows, which the API server obeys and counts.
func TestControlPlane(t *testing.T) {
	began := time.Now()
	c := controlplane.Start(t)
	t.Logf("started in %.1f s", time.Since(began).Seconds())
	client := c.Client(c.Admin())
	t.Run("version", func(t *testing.T) {
		version, err := client.Discovery().ServerVersion()
		if err != nil || version.Major != "1" || version.Minor < "35" {
			t.Errorf("version %+v, %v", version, err)
		}
	})
	t.Run("custom resource", func(t *testing.T) { customResource(t, c) })
	t.Run("budget", func(t *testing.T) { budget(t, c, client) })
	t.Run("kubeconfig", func(t *testing.T) { kubeconfig(t, c) })
	t.Run("API server stopped", func(t *testing.T) { stopped(t, c, client) })
}

const widgets = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.org"},
  "spec": {
    "group": "example.org", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
      "type": "object", "properties": {"size": {"type": "integer"}}}}}]}}`

func customResource(t *testing.T, c *controlplane.ControlPlane) {
	client := c.Client(c.Admin()).CoreV1().RESTClient()
	post := func(path, body string) error {
		return client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
	}
	if err := post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets); err != nil {
		t.Fatal(err)
	}
	widget := func(size string) string {
		return `{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": ` + size + `}`
	}
	const path = "/apis/example.org/v1/widgets"
	controlplane.Eventually(t, "the new kind is served", func(context.Context) bool {
		return !apierrors.IsNotFound(post(path, widget(`"not a number"`)))
	})
	if err := post(path, widget(`"not a number"`)); !apierrors.IsInvalid(err) {
		t.Errorf("an object that contradicts the schema: %v", err)
	}
	if err := post(path, widget("3")); err != nil {
		t.Error(err)
	}
}

// budget checks that of two pods, of which one must remain, one can be evicted.
func budget(t *testing.T, c *controlplane.ControlPlane, client kubernetes.Interface) {
	kubelet := c.Kubelet(t, "n1")
	pods := client.CoreV1().Pods("default")
	for _, name := range []string{"a", "b"} {
		if _, err := pods.Create(t.Context(), pod(name, "n1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one := intstr.FromInt32(1)
	b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "test"}},
	}}
	budgets := client.PolicyV1().PodDisruptionBudgets("default")
	if _, err := budgets.Create(t.Context(), &b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	allowed := func(want int32) func(context.Context) bool {
		return func(ctx context.Context) bool {
			got, err := budgets.Get(ctx, "one", metav1.GetOptions{})
			return err == nil && got.Status.ObservedGeneration == got.Generation && got.Status.DisruptionsAllowed == want
		}
	}
	gone := func(name string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			_, err := pods.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}
	}
	evict := func(name string) error {
		return pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	controlplane.Eventually(t, "both pods run, so one may go", allowed(1))
	kubelet.Hold(true)
	if err := evict("a"); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, "none may go any more", allowed(0))
	if err := evict("b"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction that the budget forbids: %v", err)
	}
	if gone("a")(t.Context()) {
		t.Error("the pod is gone although its kubelet holds it")
	}
	kubelet.Hold(false)
	controlplane.Eventually(t, "the evicted pod ends", gone("a"))
	evictions := 0
	for _, r := range c.Requests("admin") {
		if r.Resource == "pods/eviction" && r.Verb == "create" {
			evictions++
		}
	}
	if evictions != 2 {
		t.Errorf("%d evictions are logged, want 2", evictions)
	}
}

func kubeconfig(t *testing.T, c *controlplane.ControlPlane) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, c.Kubeconfig(c.User("somebody")), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client := c.Client(config)
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Errorf("a user without rights cannot even ask for the version: %v", err)
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights lists nodes: %v", err)
	}
}

// stopped checks that a stopped API server refuses connections, and has everything when it is back.
func stopped(t *testing.T, c *controlplane.ControlPlane, client kubernetes.Interface) {
	c.StopServer()
	host, _ := c.Address()
	if answer, err := http.Get(host); err == nil {
		t.Errorf("a stopped API server answers %s", answer.Status)
	}
	c.StartServer()
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "test"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}
