package kube_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/kube"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/controlplane"
)

// The times that a drain gets in a test: one that is to succeed, and one that is to give up.
const (
	patient   = time.Minute
	impatient = 2 * time.Second
)

// drainWorld is a cordoned node of its own, and a namespace, at a real API server.
type drainWorld struct {
	*testing.T
	*controlplane.ControlPlane
	kubelet *controlplane.Kubelet
	admin   kubernetes.Interface
	name    string       // of the node and of the namespace
	drainer kube.Drainer // with the node's own credentials and the rights of deploy/
	traffic *traffic     // of the drainer
}

// startControlPlane starts a control plane with what deploy/host has.
func startControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	c := controlplane.Start(t)
	c.Deploy("../../../deploy/host")
	c.Deploy("../../../deploy/by-name")
	return c
}

func newDrainWorld(t *testing.T, c *controlplane.ControlPlane, name string) *drainWorld {
	t.Helper()
	w := &drainWorld{T: t, ControlPlane: c, admin: c.Client(c.Admin()), name: name, traffic: &traffic{}}
	w.kubelet = c.Kubelet(t, name)
	w.namespace(name)
	w.drainer = kube.Drainer{
		Cluster: &kube.Cluster{Name: name, API: w.client(c.NodeUser(name)), Now: time.Now},
		Self:    types.NamespacedName{Namespace: name, Name: "self"},
		Policy:  kube.DrainPolicy{EmptyDir: kube.Evict, Unmanaged: kube.Evict, Finished: kube.Evict},
		Limit:   patient, Log: quiet(),
	}
	w.cordon(true)
	controlplane.Eventually(t, "nodes may read budgets", func(ctx context.Context) bool {
		_, err := c.Client(c.NodeUser(name)).PolicyV1().PodDisruptionBudgets(name).List(ctx, metav1.ListOptions{})
		return err == nil
	})
	return w
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// client returns a client as the agent's, which w.traffic sees.
func (w *drainWorld) client(config *rest.Config) rest.Interface {
	w.Helper()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.traffic.next = next
		return w.traffic
	})
	client, err := kube.New(config)
	if err != nil {
		w.Fatal(err)
	}
	return client
}

func (w *drainWorld) namespace(name string) {
	w.Helper()
	if _, err := w.admin.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *drainWorld) cordon(cordon bool) {
	w.Helper()
	body := `{"spec":{"unschedulable":true}}`
	if !cordon {
		body = `{"spec":{"unschedulable":null}}`
	}
	if _, err := w.admin.CoreV1().Nodes().Patch(w.Context(), w.name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// node returns the node as the agent has read it.
func (w *drainWorld) node() node.Node {
	w.Helper()
	n, err := w.drainer.Cluster.Node(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// drain drains the node with a time limit.
func (w *drainWorld) drain(limit time.Duration) error {
	w.Helper()
	w.drainer.Limit = limit
	return w.drainer.Drain(w.Context(), w.node())
}

// edit changes a pod before it is created.
type edit func(p *corev1.Pod)

// pod creates a pod on the node, and waits until it runs.
func (w *drainWorld) pod(name string, edits ...edit) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name, Labels: map[string]string{"app": "test"}},
		Spec:       corev1.PodSpec{NodeName: w.name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, e := range edits {
		e(p)
	}
	created, err := w.admin.CoreV1().Pods(p.Namespace).Create(w.Context(), p, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if p.Spec.NodeName == w.name {
		controlplane.Eventually(w, name+" runs", func(ctx context.Context) bool {
			now := w.get(ctx, created)
			return now != nil && now.Status.Phase == corev1.PodRunning
		})
	}
	return created
}

// get returns a pod as it is; nil if it is gone.
func (w *drainWorld) get(ctx context.Context, p *corev1.Pod) *corev1.Pod {
	now, err := w.admin.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && now.UID != p.UID {
		return nil
	}
	if err != nil {
		w.Error(err)
	}
	return now
}

// gone reports whether a pod is gone.
func (w *drainWorld) gone(p *corev1.Pod) bool { return w.get(w.Context(), p) == nil }

// untouched reports whether a pod is there, and nobody has asked for its end.
func (w *drainWorld) untouched(p *corev1.Pod) bool {
	now := w.get(w.Context(), p)
	return now != nil && now.DeletionTimestamp == nil
}

func controller(kind string) edit {
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: "nowhere", UID: "0", Controller: new(true)})
	}
}

func annotated(name, value string) edit {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{name: value} }
}

func class(name string) edit { return func(p *corev1.Pod) { p.Spec.PriorityClassName = name } }

func app(name string) edit { return func(p *corev1.Pod) { p.Labels["app"] = name } }

func on(name string) edit { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

func emptyDir(medium corev1.StorageMedium) edit {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}}
	}
}

func finalizer(p *corev1.Pod) { p.Finalizers = []string{"a.example/b"} }

// finish makes a pod one that has ended for good.
func (w *drainWorld) finish(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	w.Helper()
	now := w.get(w.Context(), p)
	now.Status.Phase = phase
	if _, err := w.admin.CoreV1().Pods(p.Namespace).UpdateStatus(w.Context(), now, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	return p
}

// budget creates a budget for the pods of an app, and waits until it allows a number of evictions.
func (w *drainWorld) budget(name, app string, spec policyv1.PodDisruptionBudgetSpec, allowed int32) {
	w.Helper()
	w.createBudget(name, app, spec)
	w.allows(name, allowed)
}

func (w *drainWorld) createBudget(name, app string, spec policyv1.PodDisruptionBudgetSpec) {
	w.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := w.admin.PolicyV1().PodDisruptionBudgets(w.name).Create(w.Context(), b, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// allows waits until a budget allows a number of evictions.
func (w *drainWorld) allows(budget string, number int32) {
	w.Helper()
	controlplane.Eventually(w, "the budget "+budget+" is computed", func(ctx context.Context) bool {
		b, err := w.admin.PolicyV1().PodDisruptionBudgets(w.name).Get(ctx, budget, metav1.GetOptions{})
		return err == nil && b.Status.ObservedGeneration == b.Generation && b.Status.DisruptionsAllowed == number && len(b.Status.Conditions) > 0
	})
}

func minAvailable(n int32) policyv1.PodDisruptionBudgetSpec {
	return policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(n))}
}

// traffic sees the requests of a client, and can change them.
type traffic struct {
	next http.RoundTripper

	mu     sync.Mutex
	seen   []string // method and path of each request, and dry-run evictions as such
	before func(r *http.Request)
	wrong  []string
}

// RoundTrip implements http.RoundTripper. A request without a time limit is wrong.
func (t *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	t.seen = append(t.seen, r.Method+" "+r.URL.Path)
	if until, limited := r.Context().Deadline(); !limited || time.Until(until) > 30*time.Second {
		t.wrong = append(t.wrong, r.URL.Path)
	}
	before := t.before
	t.mu.Unlock()
	if before != nil {
		before(r)
	}
	return t.next.RoundTrip(r)
}

// intercept sets what happens before each request.
func (t *traffic) intercept(before func(r *http.Request)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before = before
}

// take returns the requests since the last call.
func (t *traffic) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.seen
	t.seen = nil
	return seen
}

// evictions returns how many of some requests are evictions.
func evictions(requests []string) int {
	return len(slices.DeleteFunc(slices.Clone(requests), func(r string) bool { return !strings.HasSuffix(r, "/eviction") }))
}

// says checks that an error has each of some parts.
func (w *drainWorld) says(err error, parts ...string) {
	w.Helper()
	if err == nil {
		w.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			w.Errorf("%q does not say %q", err, part)
		}
	}
}
