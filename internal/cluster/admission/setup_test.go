package admission_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"machine-pivot/internal/cluster/admission"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/controlplane"
)

// world is a control plane with what the webhooks need.
type world struct {
	*testing.T
	plane *controlplane.ControlPlane
	known *runtime.Scheme
	admin client.Client
}

func newWorld(t *testing.T) world {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	w := world{T: t, plane: controlplane.Start(t), known: controlplane.Scheme(t)}
	w.admin = w.as("admin", "system:masters")
	w.plane.Deploy("../../../deploy/base")
	for _, name := range []string{"pivot-fleet", "apps", "strict", "other"} {
		labels, annotations := map[string]any{}, map[string]any{}
		if name == "strict" {
			labels["machine-pivot.io/partitioning"] = "required"
		}
		if name != "other" {
			annotations["workload.openshift.io/allowed"] = "management"
		}
		w.plane.Apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels, "annotations": annotations}})
	}
	w.plane.ApplyFile("../../../deploy/fleet/rbac-admission.yaml")
	w.plane.ApplyFile("../../../deploy/fleet/rbac-users.yaml")
	for user, roles := range map[string][]string{"anna": {"editor"}, "bob": {"editor", "weakener"}, "carl": {"viewer"}} {
		for _, role := range roles {
			w.plane.Apply(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": user + "-" + role},
				"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pivot-machineconfig-" + role},
				"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}}})
		}
	}
	w.node("n1", true)
	return w
}

// as returns a client of a user.
func (w world) as(name string, groups ...string) client.Client {
	w.Helper()
	c, err := client.New(w.plane.User(name, groups...), client.Options{Scheme: w.known})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// controllers returns the configuration of a client with the controllers' own rights.
func (w world) controllers() *rest.Config {
	return w.plane.User(controller, "system:serviceaccounts", "system:authenticated")
}

// node adds a node, which has the resource of the workload or not.
func (w world) node(name string, partitioned bool) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.admin.Create(w.Context(), n); err != nil {
		w.Fatal(err)
	}
	if partitioned {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"allocatable":{"management.workload.openshift.io/cores":"4000"},"capacity":{"management.workload.openshift.io/cores":"4000"}}}`))
		if err := w.admin.Status().Patch(w.Context(), n, patch); err != nil {
			w.Fatal(err)
		}
	}
}

// webhooks deploys the webhooks, at an address of this host.
func (w world) webhooks(address string) {
	w.Helper()
	w.plane.ApplyFile("../../../deploy/fleet/policies.yaml")
	f, err := os.Open("../../../deploy/fleet/webhooks.yaml")
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			w.Fatal(err)
		}
		hooks, _ := o["webhooks"].([]any)
		for _, hook := range hooks {
			at := hook.(map[string]any)["clientConfig"].(map[string]any)
			service := at["service"].(map[string]any)
			hook.(map[string]any)["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://%s%s", address, service["path"])}
		}
		w.plane.Apply(o)
	}
}

// replica runs the controllers' webhooks until it is stopped.
func (w world) replica(address string) (stop func()) {
	w.Helper()
	skip := true
	m, err := ctrl.NewManager(w.controllers(), manager.Options{
		Scheme: w.known, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	if err := admission.Setup(ctx, m, admission.Options{Listen: address, Names: []string{"127.0.0.1"}, Namespace: "pivot-fleet"}); err != nil {
		w.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("the controllers: %v", err)
		}
		done <- nil
	}
	w.Cleanup(stop)
	return stop
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// machineConfig returns a MachineConfig for workers with kernel arguments.
func machineConfig(name string, arguments ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "MachineConfig",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"machineconfiguration.openshift.io/role": "worker"}},
		"spec":     map[string]any{"kernelArguments": arguments}}}
}

func podIn(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Namespace: namespace, Annotations: map[string]string{"target.workload.openshift.io/management": `{"effect":"PreferredDuringScheduling"}`}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("400m"), "memory": resource.MustParse("1Gi")}}}}}}
}

// TestWebhooks is the admission at a real API server, which calls the webhooks of two replicas that have made
// their certificates at the same time.
func TestWebhooks(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	first, second := freeAddress(t), freeAddress(t)
	w.webhooks(first)
	stop := w.replica(first)
	stopSecond := w.replica(second)
	anna, bob, own := w.as("anna"), w.as("bob"), w.as(controller)
	controlplane.Eventually(t, "the webhook answers", func(ctx context.Context) bool {
		return anna.Create(ctx, machineConfig("first", "quiet"), client.DryRunAll) == nil
	})
	wants := func(what string, err error, parts ...string) {
		t.Helper()
		if len(parts) == 0 && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: no %q in %v", what, part, err)
			}
		}
	}
	t.Run("both replicas are trusted", func(t *testing.T) {
		var c admissionregistrationv1.ValidatingWebhookConfiguration
		if err := w.admin.Get(ctx, types.NamespacedName{Name: admission.Webhooks}, &c); err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(c.Webhooks[0].ClientConfig.CABundle)
		for _, address := range []string{first, second} {
			controlplane.Eventually(t, address, func(context.Context) bool {
				connection, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots})
				return err == nil && connection.Close() == nil
			})
		}
	})
	t.Run("MachineConfigs", func(t *testing.T) {
		wants("all problems", anna.Create(ctx, machineConfig("a", "root=/dev/sda", "ostree=x")), "kernelArguments[0]", "kernelArguments[1]")
		wants("a trial", anna.Create(ctx, machineConfig("a", "root=/dev/sda"), client.DryRunAll), "kernelArguments[0]")
		generated := machineConfig("", "quiet")
		generated.SetGenerateName("a-")
		wants("a generated name", anna.Create(ctx, generated))
		wants("weaker, without the right", anna.Create(ctx, machineConfig("a", "audit=0")), "no right to the verb weaken", "audit=0")
		wants("weaker, with it", bob.Create(ctx, machineConfig("a", "audit=0")))
		weak := machineConfig("a")
		wants("as weak as it was", anna.Patch(ctx, weak, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"kernelArguments":["audit=0","quiet"]}}`))))
		wants("the platform's, by a user", anna.Create(ctx, machineConfig("rendered-worker-1")), "rendered from others")
		wants("by an administrator", w.admin.Create(ctx, machineConfig("rendered-worker-1")), "rendered from others")
		wants("by a controller without a right", own.Create(ctx, machineConfig("rendered-worker-1")), "cannot create resource")
		rendered := machineConfig("rendered-worker-2")
		wants("by its controller", w.asController(t).Create(ctx, rendered))
		pool := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "MachineConfigPool", "metadata": map[string]any{"name": "worker"},
			"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}}}
		wants("a pool", w.admin.Create(ctx, pool))
		configure := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"configuration":{"name":"rendered-worker-2"}}}`))
		wants("its MachineConfig, by an administrator", w.admin.Patch(ctx, pool.DeepCopy(), configure), "the renderer's")
		wants("its MachineConfig, by the controller", w.asController(t).Patch(ctx, pool.DeepCopy(), configure))
		controlplane.Eventually(t, "the pool is seen", func(ctx context.Context) bool {
			err := anna.Delete(ctx, machineConfig("rendered-worker-2"), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "in use by the pool worker")
		})
		wants("all at once", w.admin.DeleteAllOf(ctx, machineConfig(""), client.DryRunAll), "in use by the pool worker")
		huge := machineConfig("huge", "quiet")
		huge.Object["spec"].(map[string]any)["config"] = map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "x": strings.Repeat("x", 3<<20)}
		if err := anna.Create(ctx, huge); err == nil {
			t.Error("an object of 3 MB is accepted")
		}
		other := machineConfig("v2")
		other.SetAPIVersion("machineconfiguration.openshift.io/v2")
		wants("an unknown version", anna.Create(ctx, other), "no matches")
	})
	t.Run("roles", func(t *testing.T) {
		list := func(c client.Client, kind string) error {
			var l unstructured.UnstructuredList
			l.SetAPIVersion(group)
			l.SetKind(kind + "List")
			return c.List(ctx, &l)
		}
		nobody, carl := w.as("nobody"), w.as("carl")
		wants("writing, without a role", nobody.Create(ctx, machineConfig("b", "quiet")), "cannot create resource")
		wants("reading pools, without a role", list(nobody, "MachineConfigPool"), "cannot list resource")
		wants("a viewer reads pools", list(carl, "MachineConfigPool"))
		wants("a viewer reads MachineConfigs", list(carl, "MachineConfig"), "cannot list resource")
		wants("a viewer writes", carl.Create(ctx, machineConfig("b", "quiet")), "cannot create resource")
		pool := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "MachineConfigPool", "metadata": map[string]any{"name": "b"}}}
		wants("an editor writes a pool", anna.Create(ctx, pool), "cannot create resource")
	})
	t.Run("schemas hold without a webhook", func(t *testing.T) {
		empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "MachineConfigPool", "metadata": map[string]any{"name": "all"}, "spec": map[string]any{"nodeSelector": map[string]any{}}}}
		wants("a pool of all nodes", w.asController(t).Create(ctx, empty), "would match everything")
		after := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "machine-pivot.io/v1alpha1", "kind": "PoolRollout", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"after": []any{"a"}}}}
		wants("a rollout after itself", w.asController(t).Create(ctx, after), "wait for itself")
		wants("hyperthreading", w.asController(t).Create(ctx, machineConfig("threads", "nosmt", "smt-enabled=on")), "nosmt forbids it")
		after.Object["spec"] = map[string]any{"checks": map[string]any{"node": "1+"}}
		wants("a condition", w.admin.Create(ctx, after), "checks.node")
	})
	partitioned := func(p *corev1.Pod) bool { return p.Annotations["resources.workload.openshift.io/a"] != "" }
	t.Run("pods", func(t *testing.T) {
		controlplane.Eventually(t, "the partitioning is remembered", func(ctx context.Context) bool {
			var m corev1.ConfigMap
			return w.admin.Get(ctx, types.NamespacedName{Namespace: "pivot-fleet", Name: admission.PartitionedName}, &m) == nil && m.Data["management"] != ""
		})
		w.node("n2", false)
		for _, namespace := range []string{"apps", "strict"} { // though n2 lacks it
			p := podIn(namespace)
			if err := w.admin.Create(ctx, p); err != nil || !partitioned(p) {
				t.Errorf("a pod in %s: %v, %v", namespace, p.Annotations, err)
			}
			if namespace == "apps" {
				for _, patch := range []string{`{"metadata":{"annotations":{"resources.workload.openshift.io/a":"{\"cpuset\":\"0-63\"}"}}}`, `{"metadata":{"annotations":{"target.workload.openshift.io/management":null}}}`} {
					wants("an annotation later", w.admin.Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(patch))), "chosen when the pod is created")
				}
				for name, value := range map[string]string{"resources.workload.openshift.io/a": `{"cpuset":"0-63"}`, "target.workload.openshift.io/infra": "{}"} {
					later := p.DeepCopy()
					later.Annotations[name] = value
					wants("an annotation by the status", w.admin.Status().Update(ctx, later), "chosen when the pod is created")
					binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{name: value}}, Target: corev1.ObjectReference{Kind: "Node", Name: "n2"}}
					wants("an annotation by the binding", w.admin.SubResource("binding").Create(ctx, p, binding), "chosen when the pod is created")
				}
				wants("the status", w.admin.Status().Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"status":{"message":"a"}}`))))
				wants("the binding", w.admin.SubResource("binding").Create(ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n2"}}))
				wants("another one", w.admin.Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))))
			}
		}
		p := podIn("other")
		if err := w.admin.Create(ctx, p); err != nil || p.Annotations["workload.openshift.io/warning"] == "" {
			t.Errorf("a pod of a namespace that does not allow it: %v, %v", p.Annotations, err)
		}
	})
	t.Run("what is stored", func(t *testing.T) { stored(t, w, wants) })
	t.Run("objects that are wrong already", func(t *testing.T) { wrongAlready(t, w, anna, wants) })
	t.Run("how long it takes", func(t *testing.T) { latency(t, w, anna) })
	stop()
	stopSecond()
	t.Run("without a webhook", func(t *testing.T) {
		wants("a MachineConfig", anna.Create(ctx, machineConfig("down", "quiet")), "failed calling webhook")
		wants("one of the controller", w.asController(t).Create(ctx, machineConfig("rendered-worker-3")))
		wants("the status of a pool", w.admin.Status().Patch(ctx, &api.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, client.RawPatch(types.MergePatchType, []byte(`{"status":{"machineCount":3}}`))))
		wants("a pod that must be partitioned", w.admin.Create(ctx, podIn("strict")), "failed calling webhook")
		wants("a pod that should be", w.admin.Create(ctx, podIn("apps")))
		wants("a pod that may not be", w.admin.Create(ctx, podIn("other")), "does not allow the workload")
		chooses := podIn("apps")
		chooses.Annotations["resources.workload.openshift.io/a"] = `{"cpu\u0073et":"0-63"}`
		wants("a pod that chooses its CPUs", w.admin.Create(ctx, chooses), "may not choose its CPUs")
		for name, value := range map[string]string{
			"resources.workload.openshift.io/a":        `{"cpushares":2,"later":"0-63"}`,
			"resources.workload.openshift.io/b":        `{"cpushares":2}{"cpuset":"0-63"}`,
			"resources.workload.openshift.io/c":        `{"cpushares":"2"}`,
			"resources.workload.openshift.io.later/a":  "2",
			"io.openshift.workload.management.later/a": "2",
			"resources.workload.openshift.io":          `{"cpushares":2}`,
		} {
			chooses = podIn("apps")
			chooses.Annotations[name] = value
			wants("what no parser is known to read as shares: "+name, w.admin.Create(ctx, chooses), "may not choose its CPUs")
		}
		shares := podIn("apps")
		for name, value := range map[string]string{
			"resources.workload.openshift.io/a":            `{"cpushares":2,"cpulimit":1000}`,
			"resources.workload.openshift.io/b":            `{ "cpushares": 2 }`,
			"resources.workload.openshift.io.cpushares/a":  "409",
			"io.openshift.workload.management.cpushares/a": "409",
		} {
			shares.Annotations[name] = value
		}
		wants("a pod with shares", w.admin.Create(ctx, shares))
		for _, namespace := range []string{"kube-system", "pivot-fleet"} {
			plain := podIn(namespace)
			plain.Annotations = nil
			wants("a pod in "+namespace, w.admin.Create(ctx, plain))
			wants("a pod of a workload in "+namespace, w.admin.Create(ctx, podIn(namespace)))
		}
	})
	t.Run("a restart", func(t *testing.T) {
		w.webhooks(first)
		w.replica(first)
		controlplane.Eventually(t, "the partitioning is still on", func(ctx context.Context) bool {
			p := podIn("strict")
			return w.admin.Create(ctx, p) == nil && partitioned(p)
		})
	})
}

// stored: the pod that the API server stores is what the design of partitioning says, also where other plugins act on it.
func stored(t *testing.T, w world, wants func(what string, err error, parts ...string)) {
	ctx := t.Context()
	limits := func(namespace, item string) {
		w.plane.Apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace, "annotations": map[string]any{"workload.openshift.io/allowed": "infra, management"}}})
		var parsed map[string]any
		if err := json.Unmarshal([]byte(item), &parsed); err != nil {
			t.Fatal(err)
		}
		w.plane.Apply(map[string]any{"apiVersion": "v1", "kind": "LimitRange", "metadata": map[string]any{"name": "those", "namespace": namespace}, "spec": map[string]any{"limits": []any{parsed}}})
	}
	limits("defaults", `{"type":"Container","default":{"cpu":"500m","memory":"2Gi"},"defaultRequest":{"cpu":"100m","memory":"64Mi"}}`)
	limits("least", `{"type":"Container","min":{"cpu":"10m"}}`)
	limits("ratio", `{"type":"Pod","maxLimitRequestRatio":{"cpu":"4"}}`)
	limits("cores", `{"type":"Container","max":{"cpu":"1"},"default":{"management.workload.openshift.io/cores":"100"}}`)
	limits("memory", `{"type":"Container","min":{"memory":"1Mi"}}`)
	w.plane.Apply(map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "those", "namespace": "memory"}, "spec": map[string]any{"hard": map[string]any{"requests.cpu": "1", "limits.cpu": "1"}}})
	const cores = "management.workload.openshift.io/cores"
	for namespace, partitioned := range map[string]bool{"defaults": true, "memory": true, "cores": true, "least": false, "ratio": false} {
		controlplane.Eventually(t, "a pod in "+namespace, func(ctx context.Context) bool { // the quota and the LimitRange are seen
			p := podIn(namespace)
			if namespace == "ratio" {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("800m")}
			}
			if err := w.admin.Create(ctx, p); err != nil {
				t.Logf("%s: %v", namespace, err)
				return false
			}
			r := p.Spec.Containers[0].Resources
			amount := r.Requests[cores]
			is := amount.Value() == 400 && r.Requests.Cpu().IsZero() && r.Limits.Cpu().IsZero() && p.Status.QOSClass == corev1.PodQOSBurstable
			left := amount.IsZero() && r.Requests.Cpu().MilliValue() == 400 && strings.Contains(p.Annotations["workload.openshift.io/warning"], "LimitRange those")
			if !is && !left {
				t.Logf("%s: %+v %v %s", namespace, r, p.Annotations, p.Status.QOSClass)
			}
			return is == partitioned && left != partitioned
		})
	}
	zero := podIn("cores")
	zero.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("0")
	wants("a pod without CPU", w.admin.Create(ctx, zero))
	if r := zero.Spec.Containers[0].Resources; !r.Limits.Cpu().IsZero() || zero.Annotations["resources.workload.openshift.io/a"] != `{"cpushares":102,"cpulimit":1000}` {
		t.Errorf("a limit of CPU beside that of the workload: %v, %v", r, zero.Annotations)
	}
	sized := podIn("apps")
	sized.Spec.InitContainers = []corev1.Container{{Name: "s", Image: "a", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: *sized.Spec.Containers[0].Resources.DeepCopy()}}
	wants("a pod with a sidecar", w.admin.Create(ctx, sized))
	resize := func(p *corev1.Pod, list, name, resources string) error {
		patch := fmt.Sprintf(`{"spec":{%q:[{"name":%q,"resources":%s}]}}`, list, name, resources)
		return w.admin.SubResource("resize").Patch(ctx, p.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
	}
	wants("more CPU later", resize(sized, "containers", "a", `{"requests":{"cpu":"2"},"limits":{"cpu":"3"}}`), "chosen when the pod is created")
	wants("a limit later", resize(sized, "containers", "a", `{"limits":{"cpu":"1m"}}`), "chosen when the pod is created")
	wants("more CPU of a sidecar", resize(sized, "initContainers", "s", `{"requests":{"cpu":"2"},"limits":{"cpu":"3"}}`), "chosen when the pod is created")
	wants("more memory later", resize(sized, "containers", "a", `{"requests":{"memory":"2Gi"}}`))
	request := func(p *corev1.Pod) {
		list := corev1.ResourceList{cores: resource.MustParse("4000")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	plain := podIn("apps")
	plain.Annotations = nil
	request(plain)
	wants("cores without a workload", w.admin.Create(ctx, plain), "only a pod that chooses a workload")
	initial := podIn("apps")
	initial.Annotations, initial.Spec.InitContainers = nil, []corev1.Container{{Name: "i", Image: "a", Resources: plain.Spec.Containers[0].Resources}}
	wants("cores of an init container", w.admin.Create(ctx, initial), "only a pod that chooses a workload")
	other := podIn("defaults")
	other.Annotations = map[string]string{"target.workload.openshift.io/infra": "{}"}
	request(other)
	wants("cores of another workload", w.admin.Create(ctx, other), "workload")
	nothing := podIn("apps")
	nothing.Annotations = nil
	wants("an ordinary pod", w.admin.Create(ctx, nothing))
	moved := podIn("apps")
	request(moved)
	moved.Spec.Containers[0].Resources.Requests = corev1.ResourceList{cores: resource.MustParse("4000"), "memory": resource.MustParse("1Gi")}
	wants("cores with the workload", w.admin.Create(ctx, moved))
	controlplane.Eventually(t, "the node without the resource is named", func(ctx context.Context) bool {
		var all corev1.EventList
		if err := w.admin.List(ctx, &all); err != nil {
			return false
		}
		return slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
			return e.Reason == "WorkloadMissing" && e.InvolvedObject.Name == "n2" && strings.Contains(e.Message, cores)
		})
	})
}

// wrongAlready: objects that were stored when no webhook judged them can be labelled, lose a finalizer and be
// deleted, and their statuses be written.
func wrongAlready(t *testing.T, w world, anna client.Client, wants func(what string, err error, parts ...string)) {
	ctx, own := t.Context(), w.asController(t)
	patch := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	wrong := machineConfig("wrong", "root=/dev/sda")
	wrong.SetFinalizers([]string{"example.com/a"})
	wants("it is stored", own.Create(ctx, wrong))
	wants("a label", anna.Patch(ctx, wrong.DeepCopy(), patch(`{"metadata":{"labels":{"a":"b"}}}`)))
	wants("an annotation, server-side", anna.Apply(ctx, client.ApplyConfigurationFromUnstructured(annotated("wrong")), client.FieldOwner("anna")))
	wants("worse", anna.Patch(ctx, wrong.DeepCopy(), patch(`{"spec":{"kernelArguments":["root=/dev/sdb"]}}`)), "kernelArguments[0]")
	wants("it is deleted", anna.Delete(ctx, wrong.DeepCopy()))
	wants("the finalizer", anna.Patch(ctx, wrong.DeepCopy(), patch(`{"metadata":{"finalizers":null}}`)))
	wants("it is gone", anna.Get(ctx, client.ObjectKeyFromObject(wrong), wrong.DeepCopy()), "not found")

	settings := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "ContainerRuntimeConfig", "metadata": map[string]any{"name": "settings"},
		"spec": map[string]any{"machineConfigPoolSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "containerRuntimeConfig": map[string]any{"pidsLimit": int64(100)}}}}
	wants("settings", anna.Create(ctx, settings))
	wants("their status", w.admin.Status().Patch(ctx, settings.DeepCopy(), patch(`{"status":{"observedGeneration":1}}`)))
	wants("other settings", anna.Patch(ctx, settings.DeepCopy(), patch(`{"spec":{"containerRuntimeConfig":{"pidsLimit":200}}}`)))
	wants("a new one, server-side", anna.Apply(ctx, client.ApplyConfigurationFromUnstructured(machineConfig("applied", "quiet")), client.FieldOwner("anna")))
	wants("another one, server-side", anna.Apply(ctx, client.ApplyConfigurationFromUnstructured(machineConfig("applied", "root=a")), client.FieldOwner("anna")), "kernelArguments[0]")
}

// annotated returns a MachineConfig of which only an annotation is given.
func annotated(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "MachineConfig", "metadata": map[string]any{"name": name, "annotations": map[string]any{"a": "b"}}}}
}

// asController returns a client of the controllers' user that RBAC lets do everything.
func (w world) asController(t *testing.T) client.Client {
	t.Helper()
	return w.as(controller, "system:masters")
}

// latency measures requests through the API server: trials, so that etcd does not count.
func latency(t *testing.T, w world, anna client.Client) {
	large := machineConfig("large", "quiet")
	var files []any
	for i := range 200 {
		files = append(files, map[string]any{"path": fmt.Sprintf("/etc/large/%d", i), "contents": map[string]any{"source": "data:," + strings.Repeat("x", 5000)}})
	}
	large.Object["spec"].(map[string]any)["config"] = map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "storage": map[string]any{"files": files}}
	for what, create := range map[string]func() error{
		"a MachineConfig":         func() error { return anna.Create(t.Context(), machineConfig("small", "quiet"), client.DryRunAll) },
		"a MachineConfig of 1 MB": func() error { return anna.Create(t.Context(), large.DeepCopy(), client.DryRunAll) },
		"a pod":                   func() error { return w.admin.Create(t.Context(), podIn("apps"), client.DryRunAll) },
		"the same, without a webhook": func() error {
			p := podIn("apps")
			p.Annotations = nil
			return w.admin.Create(t.Context(), p, client.DryRunAll)
		},
	} {
		var took []time.Duration
		for range 10 {
			begin := time.Now()
			if err := create(); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("%s: %v", what, err)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		t.Logf("%-30s median %v, slowest %v", what, took[len(took)/2].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond))
	}
}
