package render_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/snapshot"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/render"
	"machine-pivot/internal/input"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/kargs"
)

const image = "quay.example/os@sha256:0123456789012345678901234567890123456789012345678901234567890123"

// TestRender runs the renderer with its own rights at a real API server.
func TestRender(t *testing.T) {
	w := newWorld(t)
	w.web.set("/down", "")
	w.pool("slow", "slow")
	w.apply(machineConfig("slow", "slow", remote(w.web.url+"/down", "/etc/slow")))
	options := render.Options{OSImage: image, Release: "release", Keep: 1, Grace: 2 * time.Second}
	stop := w.controller(t, options)

	w.run("as the command does", asCommand)
	w.run("a restart fetches nothing", func(w *world) {
		name := w.renders("infra", "")
		stop()
		w.web.set("/a", "another content")
		stop = w.controller(t, options)
		w.apply(machineConfig("infra", "60-infra", `{"kernelArguments":["more"]}`))
		if after := w.renders("infra", name); w.web.count("/a") != 1 {
			t.Errorf("%d requests for a content that is kept, %s", w.web.count("/a"), after)
		}
	})
	w.run("a refetch is asked for", func(w *world) {
		before, copies := w.renders("infra", ""), w.names(api.FetchedPrefix)
		w.annotate(&api.MachineConfig{}, "50-infra", api.Refetch, "today")
		w.renders("infra", before)
		if w.web.count("/a") != 2 {
			t.Errorf("%d requests", w.web.count("/a"))
		}
		w.eventually("the old copy is deleted", func(context.Context) (bool, string) {
			now := w.names(api.FetchedPrefix)
			return len(now) == len(copies) && !slices.Equal(now, copies), strings.Join(now, " ")
		})
	})
	w.run("all problems at once", problems)
	w.run("results are not overwritten, and come back", results)
	w.run("unneeded ones are deleted", collected)
	w.run("ContainerRuntimeConfigs", runtimeConfigs)
	w.run("a pool is deleted", func(w *world) {
		w.deletedPool()
		stop()
		stop = w.controller(t, options)
		w.annotate(&corev1.Node{}, "of-gone", api.DesiredConfig, "rendered-other")
		w.eventually("nothing is left when no node needs it", func(context.Context) (bool, string) {
			left := w.names("rendered-gone-")
			return len(left) == 0, strings.Join(left, " ")
		})
		if !slices.Contains(w.names("50-"), "50-gone") {
			w.Error("what an administrator has written is deleted, too")
		}
	})
	w.run("content that is not there now", func(w *world) {
		w.degraded("slow", api.True, "ContentUnavailable", w.web.url+"/down", "503")
		w.web.set("/down", "there")
		w.degraded("slow", api.False)
	})
	w.run("two controllers", func(w *world) {
		w.controller(t, options)
		w.web.set("/two", "x")
		w.pool("two", "two")
		for i := range 5 {
			w.apply(machineConfig("two", "50-two", remote(w.web.url+"/two", "/etc/two"+strings.Repeat("x", i))))
		}
		var last string
		w.eventually("both agree", func(ctx context.Context) (bool, string) {
			p := &api.MachineConfigPool{}
			if err := w.admin.Get(ctx, client.ObjectKey{Name: "two"}, p); err != nil || p.Spec.Configuration.Name == "" {
				return false, ""
			}
			mc := &api.MachineConfig{}
			if err := w.admin.Get(ctx, client.ObjectKey{Name: p.Spec.Configuration.Name}, mc); err != nil {
				return false, err.Error()
			}
			last = string(mc.Spec.Raw)
			return strings.Contains(last, "/etc/twoxxxx"), last
		})
		w.degraded("two", api.False)
	})
}

func (w *world) run(name string, f func(*world)) {
	w.T.Run(name, func(t *testing.T) {
		inner := *w
		inner.T = t
		f(&inner)
	})
}

// remote returns a spec with a file of fetched content.
func remote(url, path string) string {
	return `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"` + path + `","contents":{"source":"` + url + `"}}]}}}`
}

// The result is that of "pivotctl config render" with the same objects: the nodes that its Ignition configs have
// installed keep their MachineConfig.
func asCommand(w *world) {
	w.web.set("/a", "a content")
	w.web.set("/child", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/child","contents":{"source":"`+w.web.url+`/b"}}]}}`)
	w.web.set("/b", strings.Repeat("long content\n", 100))
	texts := []string{
		machineConfig("worker", "50-worker", `{"kernelArguments":["b","a"],"config":{"ignition":{"version":"3.1.0"},"systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Unit]\n# é < > &\n"}]}}}`),
		machineConfig("infra", "50-infra", remote(w.web.url+"/a", "/etc/a")),
		machineConfig("infra", "10-infra", `{"kernelType":"realtime","config":{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"`+w.web.url+`/child"}]}},"storage":{"files":[{"path":"/etc/empty","contents":{"source":"data:,"}}]}}}`),
		machineConfig("master", "50-master", `{"osImageURL":"quay.example/other@sha256:`+strings.Repeat("1", 64)+`"}`),
	}
	rules := authored.Rules{KernelArguments: kargs.DefaultPolicy()}
	all, report, err := authored.Read(context.Background(), []string{input.Stdin}, strings.NewReader(strings.Join(texts, "\n")), rules)
	if err != nil || report.Failed() {
		w.Fatal(err, report)
	}
	command := authored.Renderer{Rules: rules, Base: authored.Images{OS: imageref.FromOrigin(image)}, Inline: snapshot.New(rules.KernelArguments).Inline}
	want, report, err := command.MergeAll(w.Context(), all)
	if err != nil || report.Failed() {
		w.Fatal(err, report)
	}
	w.web.mu.Lock()
	clear(w.web.asked)
	w.web.mu.Unlock()
	w.apply(texts...)
	w.pool("worker", "worker")
	w.pool("master", "master")
	w.pool("infra", "worker", "infra")
	for _, role := range []string{"worker", "master", "infra"} {
		w.eventually(role+" has "+want[role].Name, func(ctx context.Context) (bool, string) {
			p := &api.MachineConfigPool{}
			err := w.admin.Get(ctx, client.ObjectKey{Name: role}, p)
			return err == nil && p.Spec.Configuration.Name == want[role].Name, p.Spec.Configuration.Name
		})
		w.degraded(role, api.False)
	}
	p := w.degraded("infra", api.False)
	if len(p.Spec.Configuration.Source) != 3 || p.Spec.Configuration.Source[0].Name != "10-infra" {
		w.Errorf("%+v", p.Spec.Configuration)
	}
	mc := &api.MachineConfig{}
	if err := w.admin.Get(w.Context(), client.ObjectKey{Name: want["infra"].Name}, mc); err != nil {
		w.Fatal(err)
	}
	if mc.Annotations[api.RenderedFor] != "infra" || len(mc.OwnerReferences) > 0 || mc.Annotations["machineconfiguration.openshift.io/generated-by-controller-version"] != "1.2.3" || mc.Annotations["machineconfiguration.openshift.io/release-image-version"] != "release" {
		w.Errorf("%+v", mc.ObjectMeta)
	}
	w.eventually("an event", func(ctx context.Context) (bool, string) {
		var list eventsv1.EventList
		if err := w.admin.List(ctx, &list); err != nil {
			return false, err.Error()
		}
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == api.EventRendered && e.Regarding.Name == "infra" && strings.Contains(e.Note, mc.Name)
		}), ""
	})
}

// Each problem that the API server accepts and nothing can be made from is reported, and the pool keeps what it has.
func problems(w *world) {
	name := w.renders("worker", "")
	w.apply(machineConfig("worker", "70-a", `{"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/run/machine-config-daemon-force"}]}}}`),
		machineConfig("worker", "70-b", `{"config":{"ignition":{"version":"9.0.0"}}}`),
		machineConfig("worker", "70-c", remote(w.web.url+"/missing", "/etc/c")),
		machineConfig("worker", "70-d", `{"config":{"a":1}}`))
	w.degraded("worker", api.True, "InvalidMachineConfigs", "70-a", "70-b", "70-c", "404", "70-d")
	if p := w.degraded("infra", api.True, "70-a", "70-b", "70-c"); w.renders("worker", "") != name {
		w.Errorf("%+v", p)
	}
	for _, bad := range []string{"70-a", "70-b", "70-c", "70-d"} {
		w.remove(&api.MachineConfig{}, bad)
	}
	w.degraded("worker", api.False)
	w.degraded("infra", api.False)

	w.pool("empty", "empty")
	w.degraded("empty", api.True, "NoMachineConfigs")
	w.apply(machineConfig("empty", "a.b-c", `{}`))
	w.degraded("empty", api.False)
	w.apply(machineConfig("Empty_Role", "odd", `{}`))
	w.pool("odd", "Empty_Role")
	w.degraded("odd", api.True, "Empty_Role", "no role's name")
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": "selector"},
		"spec": map[string]any{"machineConfigSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "x y", "operator": "In"}}}}})
	w.degraded("selector", api.True, "machineConfigSelector")
	long := strings.Repeat("l", 212)
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": long},
		"spec": map[string]any{"machineConfigSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "machineconfiguration.openshift.io/role", "operator": "DoesNotExist"}}}}})
	w.degraded(long, api.True, "NoMachineConfigs") // the rendered ones and the copies have no role, and are no sources
	w.web.set("/large", strings.Repeat("x", 1_400_000)+string(make([]byte, 300_000)))
	w.apply(machineConfig("large", "large", remote(w.web.url+"/large", "/etc/large")))
	w.pool("large", "large")
	w.degraded("large", api.True, "InvalidMachineConfigs", "large", "bytes")
}

func results(w *world) {
	name := w.renders("worker", "")
	w.remove(&api.MachineConfig{}, name)
	w.eventually(name+" is there again", func(context.Context) (bool, string) { return slices.Contains(w.names(name), name), "" })
	mc := &api.MachineConfig{}
	mc.Name = name
	patch := func(args string) {
		if err := w.admin.Patch(w.Context(), mc, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"kernelArguments":[`+args+`]}}`))); err != nil {
			w.Fatal(err)
		}
	}
	patch(`"other"`)
	w.degraded("worker", api.True, name, "not overwritten")
	w.remove(&api.MachineConfig{}, name)
	w.degraded("worker", api.False)
}

// Rendered MachineConfigs that a node names stay, of the others the newest one.
func collected(w *world) {
	w.pool("gc", "gc")
	var names []string
	last := ""
	for _, arg := range []string{"a", "b", "c", "d", "e"} {
		w.apply(machineConfig("gc", "gc", `{"kernelArguments":["`+arg+`"]}`))
		last = w.renders("gc", last)
		names = append(names, last)
		if arg == "a" {
			w.apply(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","annotations":{"` + api.DesiredDrain + `":"drain-` + last + `"}}}`)
		}
		if arg == "b" {
			w.apply(`{"apiVersion":"machine-pivot.io/v1alpha1","kind":"PoolRollout","metadata":{"name":"gc"}}`)
			o := &api.PoolRollout{}
			o.Name = "gc"
			if err := w.admin.Status().Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"lastGood":"`+last+`"}}`))); err != nil {
				w.Fatal(err)
			}
		}
	}
	w.eventually("only needed ones and the newest are left", func(context.Context) (bool, string) {
		left := w.names("rendered-gc-")
		ok := len(left) == 4
		for i, name := range names {
			ok = ok && slices.Contains(left, name) == (i != 2 && i != 3 || slices.Contains(left, name) && len(left) == 4)
		}
		return ok, strings.Join(left, " ")
	})
	for _, needed := range []string{names[0], names[1], names[4]} {
		if !slices.Contains(w.names("rendered-gc-"), needed) {
			w.Errorf("%s is deleted, of %q", needed, names)
		}
	}
}

// deletedPool deletes a pool, and waits until only what a node needs is left of its results and of what was generated
// for it.
func (w *world) deletedPool() {
	w.Helper()
	w.pool("gone", "gone")
	w.apply(machineConfig("gone", "50-gone", `{"kernelArguments":["a"]}`), runtimeConfig("gone", "gone", `{"logLevel":"debug"}`))
	w.generated("99-gone-generated-containerruntime")
	first := w.renders("gone", "")
	w.apply(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"of-gone","annotations":{"` + api.DesiredConfig + `":"` + first + `"}}}`)
	w.apply(machineConfig("gone", "50-gone", `{"kernelArguments":["b"]}`))
	second := w.renders("gone", first)
	w.apply(`{"apiVersion":"machine-pivot.io/v1alpha1","kind":"PoolRollout","metadata":{"name":"gone"}}`)
	o := &api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	if err := w.admin.Status().Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"target":"`+second+`"}}`))); err != nil {
		w.Fatal(err)
	}
	w.remove(&api.MachineConfigPool{}, "gone")
	w.generated()
	w.eventually("only "+first+" is left", func(context.Context) (bool, string) {
		left := w.names("rendered-gone-")
		if !slices.Contains(left, first) {
			w.Fatalf("%s is deleted, and a node needs it", first)
		}
		return slices.Equal(left, []string{first}), strings.Join(left, " ")
	})
}

// TestDeletionIsGuarded changes a rendered MachineConfig between the decision to delete it and the request. The library does
// not call that an error.
func TestDeletionIsGuarded(t *testing.T) {
	w := newWorld(t)
	var stopped atomic.Int32
	victim := atomic.Pointer[string]{}
	w.controller(t, render.Options{Keep: 0, Grace: time.Second}, func(next http.RoundTripper) http.RoundTripper {
		return intercepted{next, func(r *http.Request) {
			_, name, rendered := strings.Cut(r.URL.Path, "/machineconfigs/rendered-")
			if r.Method != http.MethodDelete || !rendered || !stopped.CompareAndSwap(0, 1) {
				return
			}
			name = api.RenderedPrefix + name
			w.annotate(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, "n1", api.DesiredConfig, name)
			w.annotate(&api.MachineConfig{}, name, api.UnneededSince, time.Now().UTC().Format(time.RFC3339))
			victim.Store(&name)
		}}
	})
	w.apply(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`)
	w.pool("gc", "gc")
	w.apply(machineConfig("gc", "gc", `{"kernelArguments":["a"]}`))
	first := w.renders("gc", "")
	w.apply(machineConfig("gc", "gc", `{"kernelArguments":["b"]}`))
	w.renders("gc", first)
	w.eventually("the mark of the needed one is removed", func(ctx context.Context) (bool, string) {
		name := victim.Load()
		if name == nil {
			return false, "no deletion yet"
		}
		mc := &api.MachineConfig{}
		if err := w.admin.Get(ctx, client.ObjectKey{Name: *name}, mc); apierrors.IsNotFound(err) {
			t.Fatalf("%s is deleted, and a node needs it", *name)
		}
		return mc.Name == first && mc.Annotations[api.UnneededSince] == "", mc.Annotations[api.UnneededSince]
	})
	if !w.hasSaid("Starting workers") || w.hasSaid("Reconciler error") {
		t.Errorf("the library has logged %q", w.said.entries)
	}
}
