package render_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/render"
	"machine-pivot/test/worlds/controlplane"
)

// world is a control plane with the objects and rights of a fleet, and a server with remote content.
type world struct {
	*testing.T
	plane  *controlplane.ControlPlane
	admin  client.Client
	scheme *runtime.Scheme
	web    *web
	said   *said
}

// said is what the library has logged.
type said struct {
	sync.Mutex
	entries []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, plane: controlplane.Start(t), scheme: controlplane.Scheme(t), web: newWeb(t), said: &said{}}
	ctrl.SetLogger(logr.Discard())
	w.plane.Deploy("../../../deploy/base")
	w.plane.ApplyFile("../../../deploy/fleet/rbac-render.yaml")
	w.plane.ApplyFile("../../../deploy/fleet/rbac-readers.yaml")
	var err error
	if w.admin, err = client.New(w.plane.Admin(), client.Options{Scheme: w.scheme}); err != nil {
		t.Fatal(err)
	}
	return w
}

// controller runs the renderer with the rights of its service account. It ends by the returned function.
func (w *world) controller(t *testing.T, o render.Options, wrap ...func(http.RoundTripper) http.RoundTripper) (stop func()) {
	t.Helper()
	config := w.plane.User("system:serviceaccount:pivot-fleet:pivot-fleet-controller", "system:serviceaccounts", "system:authenticated")
	for _, f := range wrap {
		config.Wrap(f)
	}
	m, err := ctrl.NewManager(config, w.options())
	if err != nil {
		t.Fatal(err)
	}
	o.Version, o.Metrics = "1.2.3", prometheus.NewRegistry()
	if err := render.Setup(m, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// logger returns a log of what the library says.
func (w *world) logger() logr.Logger {
	return funcr.New(func(_, entry string) {
		w.said.Lock()
		defer w.said.Unlock()
		w.said.entries = append(w.said.entries, entry)
	}, funcr.Options{})
}

// hasSaid reports whether the library has logged something.
func (w *world) hasSaid(what string) bool {
	w.said.Lock()
	defer w.said.Unlock()
	return slices.ContainsFunc(w.said.entries, func(entry string) bool { return strings.Contains(entry, what) })
}

func (w *world) options() manager.Options {
	return manager.Options{
		Scheme: w.scheme, Logger: w.logger(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
}

// web is a server with contents that can change.
type web struct {
	url string

	mu     sync.Mutex
	bodies map[string]string // by path; "": 503
	asked  map[string]int
}

func newWeb(t *testing.T) *web {
	w := &web{bodies: map[string]string{}, asked: map[string]int{}}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	w.url = s.URL
	return w
}

func (w *web) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[in.URL.Path]++
	body, ok := w.bodies[in.URL.Path]
	switch {
	case !ok:
		http.NotFound(out, in)
	case body == "":
		out.WriteHeader(http.StatusServiceUnavailable)
	default:
		_, _ = io.WriteString(out, body)
	}
}

func (w *web) set(path, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bodies[path] = body
}

func (w *web) count(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[path]
}

// pool creates a pool that selects roles by the label.
func (w *world) pool(name string, roles ...string) {
	w.Helper()
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"pools.operator.machineconfiguration.openshift.io/" + name: ""}},
		"spec": map[string]any{"machineConfigSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": roles}}}}})
}

// machineConfig returns a MachineConfig as JSON. spec is its spec.
func machineConfig(role, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":%q,"labels":{"machineconfiguration.openshift.io/role":%q}},"spec":%s}`, name, role, spec)
}

// apply creates or changes objects in JSON.
func (w *world) apply(texts ...string) {
	w.Helper()
	for _, text := range texts {
		var o map[string]any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			w.Fatalf("%s: %v", text, err)
		}
		w.plane.Apply(o)
	}
}

// remove deletes an object.
func (w *world) remove(o client.Object, name string) {
	w.Helper()
	o.SetName(name)
	if err := w.admin.Delete(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// annotate sets an annotation.
func (w *world) annotate(o client.Object, name, key, value string) {
	w.Helper()
	o.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if err := w.admin.Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.Fatal(err)
	}
}

// degraded waits until the condition RenderDegraded of a pool has a status and each of some parts in its reason
// or message, and returns the pool.
func (w *world) degraded(name, status string, parts ...string) *api.MachineConfigPool {
	w.Helper()
	p := &api.MachineConfigPool{}
	w.eventually(fmt.Sprintf("pool %s is RenderDegraded=%s %q", name, status, parts), func(ctx context.Context) (bool, string) {
		if err := w.admin.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return false, err.Error()
		}
		for _, c := range p.Status.Conditions {
			if c.Type == api.PoolRenderDegraded && string(c.Status) == status && has(c.Reason+" "+c.Message, parts) {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v, %+v", p.Spec.Configuration, p.Status.Conditions)
	})
	return p
}

func has(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// eventually waits for a state, and says what there was instead.
func (w *world) eventually(what string, reached func(context.Context) (bool, string)) {
	w.Helper()
	last := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ok, now := reached(w.Context())
		if ok {
			return
		}
		last = now
	}
	w.Fatalf("never: %s; last: %s", what, last)
}

// renders waits until a pool has a rendered MachineConfig other than one, and returns its name.
func (w *world) renders(pool, but string) string {
	w.Helper()
	p := &api.MachineConfigPool{}
	w.eventually("pool "+pool+" has another rendered MachineConfig than "+but, func(ctx context.Context) (bool, string) {
		if err := w.admin.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
			return false, err.Error()
		}
		return p.Spec.Configuration.Name != "" && p.Spec.Configuration.Name != but, fmt.Sprintf("%+v", p.Status.Conditions)
	})
	return p.Spec.Configuration.Name
}

// names returns the names of the MachineConfigs with a prefix.
func (w *world) names(prefix string) []string {
	w.Helper()
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(api.Operator().WithKind("MachineConfigList"))
	if err := w.admin.List(w.Context(), &list); err != nil {
		w.Fatal(err)
	}
	var found []string
	for _, o := range list.Items {
		if strings.HasPrefix(o.Name, prefix) {
			found = append(found, o.Name)
		}
	}
	return found
}

// intercepted calls a function before each request.
type intercepted struct {
	next   http.RoundTripper
	before func(*http.Request)
}

func (i intercepted) RoundTrip(r *http.Request) (*http.Response, error) {
	i.before(r)
	return i.next.RoundTrip(r)
}
