package follow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/follow"
	"machine-pivot/internal/cluster/render"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/registry"
)

// world is a real API server with the controllers of a fleet, with their own rights, and a registry. Stand-ins for agents
// give nodes what they should have.
type world struct {
	*testing.T
	client.Client
	plane    *controlplane.ControlPlane
	registry *registry.Registry

	mu     sync.Mutex
	ahead  time.Duration // of the controllers' clock
	frozen bool          // the agents do nothing
	log    bytes.Buffer
	given  []string // configurations that nodes have had, in their order
}

const account = "system:serviceaccount:pivot-fleet:pivot-fleet-controller"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, plane: controlplane.Start(t)}
	ctrl.SetLogger(funcr.New(func(prefix, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		fmt.Fprintln(&w.log, prefix, args)
	}, funcr.Options{}))
	var err error
	if w.registry, err = registry.Start(registry.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.registry.Close() })
	w.plane.Deploy("../../../deploy/base")
	for _, file := range []string{"controller", "rbac-render", "rbac-readers", "rbac-rollout", "rbac-follow", "rbac-users"} {
		w.plane.ApplyFile("../../../deploy/fleet/" + file + ".yaml")
	}
	if w.Client, err = client.New(w.plane.Admin(), client.Options{Scheme: controlplane.Scheme(t)}); err != nil {
		t.Fatal(err)
	}
	w.plane.Apply(secret("pivot-pull-secret", string(corev1.SecretTypeDockerConfigJson), string(w.registry.PullSecret(w.registry.Host()))))
	w.controllers()
	w.agents()
	return w
}

func secret(name, kind, text string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": "pivot-fleet"},
		"type": kind, "stringData": map[string]any{corev1.DockerConfigJsonKey: text}}
}

// controllers runs follow, render and rollout with the rights of deploy/fleet.
func (w *world) controllers() {
	w.Helper()
	m, err := ctrl.NewManager(w.plane.User(account, "system:serviceaccounts", "system:authenticated"), manager.Options{Scheme: controlplane.Scheme(w.T),
		Metrics: server.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: rollout.Caches()}, Controller: config.Controller{SkipNameValidation: new(true)}})
	if err != nil {
		w.Fatal(err)
	}
	root := w.TempDir()
	certificates := filepath.Join(root, "etc/containers/certs.d", w.registry.Host())
	if err := os.MkdirAll(certificates, 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(certificates, "ca.crt"), w.registry.CA(), 0o600); err != nil {
		w.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	for _, err := range []error{
		follow.Setup(m, follow.Options{Namespace: "pivot-fleet", Root: root, Now: w.clock}),
		render.Setup(m, render.Options{Version: "1.2.3", Keep: 100, Grace: time.Hour, Metrics: metrics}),
		rollout.Setup(m, rollout.Options{Metrics: metrics}),
	} {
		if err != nil {
			w.Fatal(err)
		}
	}
	w.background(func(ctx context.Context) {
		if err := m.Start(ctx); err != nil {
			w.Error(err)
		}
	})
}

func (w *world) background(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	w.Cleanup(func() { cancel(); <-ended })
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.ahead)
}

// later moves the controllers' clock, and has them look at a PoolRollout.
func (w *world) later(d time.Duration, name string) {
	w.Helper()
	w.mu.Lock()
	w.ahead += d
	w.mu.Unlock()
	w.patch(name, fmt.Sprintf(`{"spec":{"stopAfter":%d}}`, 1+w.ahead/time.Minute))
}

func (w *world) patch(name, body string) {
	w.Helper()
	r := &api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.Patch(w.Context(), r, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		w.Fatal(err)
	}
}

// freeze has the agents do nothing, or work again.
func (w *world) freeze(now bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = now
}

func (w *world) agents() {
	w.background(func(ctx context.Context) {
		for ctx.Err() == nil {
			w.mu.Lock()
			if !w.frozen {
				w.agentsOnce(ctx)
			}
			w.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

func (w *world) agentsOnce(ctx context.Context) {
	var all corev1.NodeList
	_ = w.List(ctx, &all) // the next time
	for i := range all.Items {
		n := &all.Items[i]
		desired := n.Annotations[api.DesiredConfig]
		if desired == n.Annotations[api.CurrentConfig] {
			continue
		}
		body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}}}`, api.CurrentConfig, desired, api.StateOfNode, api.StateDone)
		if w.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(body))) == nil {
			w.given = append(w.given, desired)
		}
	}
}

// join adds a Ready node without any annotation.
func (w *world) join(name, architecture string, labels map[string]string) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := w.Create(w.Context(), n); err != nil {
		w.Fatal(err)
	}
	n.Status.NodeInfo.Architecture = architecture
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := w.Client.Status().Update(w.Context(), n); err != nil {
		w.Fatal(err)
	}
}

// push pushes another image with a tag, and returns its name with the digest.
func (w *world) push(name, tag, architecture string) string {
	w.Helper()
	image, err := random.Image(64, 1)
	if err != nil {
		w.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		w.Fatal(err)
	}
	file.OS, file.Architecture = "linux", architecture
	if image, err = mutate.ConfigFile(image, file); err != nil {
		w.Fatal(err)
	}
	digest, err := w.registry.Push(w.Context(), name, tag, image)
	if err != nil {
		w.Fatal(err)
	}
	return w.registry.Host() + "/" + name + "@" + digest
}

func (w *world) ref(image string) string { return w.registry.Host() + "/" + image }

// rollout creates or replaces a PoolRollout of the nodes with a label. More is added to its spec.
func (w *world) rollout(name string, image map[string]any, more map[string]any) {
	w.Helper()
	spec := map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]string{name: "yes"}}, "adopt": true, "maxUnavailable": 1}
	if image != nil {
		image["pullSecretRef"] = map[string]any{"name": "pivot-pull-secret"}
		spec["image"] = image
	}
	for key, value := range more {
		spec[key] = value
	}
	w.plane.Apply(map[string]any{"apiVersion": "machine-pivot.io/v1alpha1", "kind": "PoolRollout", "metadata": map[string]any{"name": name}, "spec": spec})
}

// state is what is seen of a PoolRollout.
type state struct {
	api.PoolRollout
	pool     api.MachineConfigPool
	rendered string // the spec of the MachineConfig that the pool names
	updating string // WAITING
	updated  string
}

// sees waits until a PoolRollout is in a state, and returns it.
func (w *world) sees(name, what string, is func(state) bool) (s state) {
	w.Helper()
	last := s
	defer func() {
		if w.Failed() {
			w.mu.Lock()
			defer w.mu.Unlock()
			mc := &api.MachineConfig{}
			_ = w.Get(w.Context(), client.ObjectKey{Name: "99-" + name + "-generated-rollout"}, mc) // for the log
			w.Logf("%s: %q, %s\n%+v\n%+v\n%s\n%s", name, last.Status.Problem, mc.Spec.Raw, last.pool.Spec, last.pool.Status, last.rendered, w.errors())
		}
	}()
	controlplane.Eventually(w, name+": "+what, func(ctx context.Context) bool {
		s = state{}
		_ = w.Get(ctx, client.ObjectKey{Name: name}, &s.PoolRollout) // an empty one is in no state
		_ = w.Get(ctx, client.ObjectKey{Name: name}, &s.pool)
		mc := &api.MachineConfig{}
		_ = w.Get(ctx, client.ObjectKey{Name: s.pool.Spec.Configuration.Name}, mc)
		s.rendered = string(mc.Spec.Raw)
		for _, c := range s.pool.Status.Conditions {
			switch c.Type {
			case api.PoolUpdating:
				s.updating = c.Message
			case api.PoolUpdated:
				s.updated = string(c.Status)
			}
		}
		if ctx.Err() == nil {
			last = s
		}
		return is(s)
	})
	return s
}

// has returns a state in which each node has an image.
func has(image string) func(state) bool {
	return func(s state) bool {
		return strings.Contains(s.rendered, image) && s.updated == api.True && s.pool.Status.Configuration.Name == s.pool.Spec.Configuration.Name && s.pool.Status.MachineCount > 0
	}
}

// waits returns a state in which the pool and the PoolRollout wait for something.
func waits(parts ...string) func(state) bool {
	return func(s state) bool {
		for _, part := range parts {
			if !strings.Contains(s.updating, part) || !strings.Contains(s.Status.Waiting, part) {
				return false
			}
		}
		return true
	}
}

// specOf returns a rendered MachineConfig that nodes have had.
func (w *world) specOf(name string) (spec struct {
	OSImageURL      string
	KernelArguments []string
	Config          struct {
		Storage struct {
			Files []struct{ Path, Source string }
		}
	}
}) {
	w.Helper()
	mc := &api.MachineConfig{}
	if err := w.Get(w.Context(), client.ObjectKey{Name: name}, mc); err != nil {
		w.Fatal(err)
	}
	if err := json.Unmarshal(mc.Spec.Raw, &spec); err != nil {
		w.Fatal(err)
	}
	return spec
}

// errors returns the end of what the controllers have logged, without what is no error.
func (w *world) errors() string {
	var lines []string
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, `"error"=`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-5):], "")
}
