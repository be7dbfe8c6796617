package admission_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/test/tools/attack"
	"machine-pivot/test/worlds/controlplane"
)

// errNoEffect is the result of an attempt that is stored without what it was made for.
var errNoEffect = errors.New("it has no effect")

// attacker makes random choices, the same in each run.
type attacker struct{ *rand.Rand }

func (a attacker) pick(all ...string) string { return all[a.IntN(len(all))] }

// TestAttacks makes attempts at a real API server against each kind of object, and at the webhooks. The attackers are an
// editor without the verb weaken, an editor of pools, an author of pods, and a node. The API server has to refuse each
// attempt, or the attempt has no effect.
func TestAttacks(t *testing.T) {
	w := newWorld(t)
	address := freeAddress(t)
	w.webhooks(address)
	w.replica(address)
	w.plane.ApplyFile("../../../deploy/host/rbac.yaml")
	w.plane.Apply(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "pete"},
		"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pivot-pool-editor"}, "subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "pete"}}})
	w.node("n2", true)
	anna := w.as("anna")
	controlplane.Eventually(t, "pods are partitioned", func(ctx context.Context) bool {
		p := podIn("apps")
		return w.admin.Create(ctx, p) == nil && p.Annotations["resources.workload.openshift.io/a"] != ""
	})
	controlplane.Eventually(t, "the webhook answers", func(ctx context.Context) bool {
		return anna.Create(ctx, machineConfig("first", "quiet"), client.DryRunAll) == nil
	})
	own := w.asController(t)
	for _, name := range []string{"rendered-worker-secret", "99-worker-generated-kubelet"} {
		if err := own.Create(t.Context(), machineConfig(name, "quiet")); err != nil {
			t.Fatal(err)
		}
	}
	if err := anna.Create(t.Context(), machineConfig("50-mine", "quiet")); err != nil {
		t.Fatal(err)
	}
	for kind, try := range map[string]func(attacker) (what string, refused error){
		"MachineConfig":           w.weaken(anna),
		"the platform's objects":  w.platform(anna),
		"MachineConfigPool":       w.pools(w.as("pete")),
		"PoolRollout":             w.rollouts(w.as("pete")),
		"ContainerRuntimeConfig":  w.settings(anna),
		"Pod":                     w.pods(),
		"Node and its state":      w.states(),
		"secrets of all machines": w.reads(),
	} {
		accepted := 0
		for n := range attack.Attempts {
			what, err := try(attacker{rand.New(rand.NewPCG(uint64(n), 47))})
			switch {
			case err == nil:
				accepted++
				t.Errorf("%s, attempt %d: accepted: %.300s", kind, n, what)
			case slices.Contains([]string{"the platform's objects", "Node and its state", "secrets of all machines"}, kind) && !apierrors.IsForbidden(err):
				t.Errorf("%s, attempt %d: %.300s: failed for another reason than rights: %v", kind, n, what, err)
			case !errors.Is(err, errNoEffect) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
				t.Errorf("%s, attempt %d: %.300s: not refused, but failed: %v", kind, n, what, err)
			}
		}
		t.Logf("attacked %s: %d attempts, %d accepted", kind, attack.Attempts, accepted)
	}
	attack.Listener{Name: "the webhooks", Address: address, TLS: true, Path: "/validate", Well: func() error {
		return anna.Create(t.Context(), machineConfig("after", "quiet"), client.DryRunAll)
	}}.Try(t)
}

// argument returns a kernel argument that weakens security, in one of its spellings.
func (a attacker) argument() string {
	arg := a.pick("audit=0", "audit=off", "selinux=0", "selinux=+0", "selinux=0x0", "enforcing=0", "security=none", "security=x", "lsm=yama", "mitigations=off", "module.sig_enforce=0",
		"nosmep", "nosmap", "nokaslr", "nopti", "pti=off", "norandmaps", "initcall_blacklist=a", "systemd.setenv=A=b", "systemd.set_credential=a:b", "rd.systemd.run=/bin/a", "rd.systemd.wants=a",
		"sysctl.kernel.modprobe=/a", "sysctl.kernel.core_pattern=|/a", "init_on_alloc=0", "iommu.passthrough=1", "intel_iommu=off", "kgdboc=ttyS0", "clearcpuid=smep", "hardened_usercopy=0", "lockdown=none", "fstab=no",
		"container=x", "iommu=force,off", "retbleed=auto,off", "vsyscall=native", "iomem=relaxed", "LD_PRELOAD=/a", "stack_guard_gap=0", "arm64.nopauth",
		"iommu=pt", "iommu=force,pt", "intremap=nosid", "nosmepx", "id_aa64pfr1.bt=0", "kvm.nx_huge_pages=never", "systemd.image_policy=*", "'systemd.debug_shell'", `a="b nokaslr c"`, `systemd.'run'=/a`)
	switch a.IntN(6) {
	case 0:
		return "quiet " + arg
	case 1:
		return `"` + arg + `"`
	case 2:
		return "  " + arg
	case 3:
		return arg + " quiet"
	case 4:
		name, value, valued := strings.Cut(arg, "=")
		if name = strings.ReplaceAll(name, "_", "-"); valued && !strings.HasPrefix(name, "systemd") && !strings.HasPrefix(name, "rd.") && !strings.HasPrefix(name, "sysctl") {
			return name + "=" + value
		}
	}
	return arg
}

// composed returns a text that a shell, GRUB or the kernel reads as the argument.
func (a attacker) composed(arg string) string {
	i := 1 + a.IntN(len(arg)-1)
	key, value, valued := strings.Cut(arg, "=")
	switch {
	case strings.Contains(arg, " "):
	case a.IntN(5) == 0:
		return "A=" + arg[:i] + "\nGRUB_CMDLINE_LINUX=\"${A}" + arg[i:] + `"`
	case a.IntN(4) == 0:
		return "GRUB_CMDLINE_LINUX=\"quiet " + arg[:i] + `"'` + arg[i:] + "'"
	case a.IntN(3) == 0:
		return "GRUB_CMDLINE_LINUX=" + arg[:i] + "\\\n" + arg[i:]
	case valued && a.IntN(2) == 0:
		return "quiet " + key + `="` + value + `"`
	}
	return arg
}

// spec returns the spec of a MachineConfig that would bring an argument to a machine's command line.
func (a attacker) spec(arg string) map[string]any {
	inline := func(text string) string {
		if a.IntN(2) == 0 {
			return "data:;base64," + base64.StdEncoding.EncodeToString([]byte(text))
		}
		return "data:," + url.PathEscape(text)
	}
	file := func(path, source string) map[string]any {
		return map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "storage": map[string]any{"files": []any{map[string]any{"path": path, "overwrite": true, "contents": map[string]any{"source": source}}}}}
	}
	var config map[string]any
	switch a.IntN(9) {
	case 0, 1:
		return map[string]any{"kernelArguments": []any{"quiet", arg}}
	case 2, 3:
		config = map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "kernelArguments": map[string]any{"shouldExist": []any{arg}}}
	case 4:
		config = file("/etc/pivot/kernel-args", inline("ADD "+arg+"\n"))
	case 5:
		config = file(a.pick("/etc/kernel/cmdline", "/etc/kernel/cmdline.d/a.conf", "/etc/default/grub"), inline(a.composed(strings.TrimSpace(strings.Trim(arg, `"`)))+"\n"))
	case 6:
		config = file(a.pick("/etc/kernel/cmdline", "/etc/default/grub", "/etc/pivot/kernel-args"), "https://example.com/a")
	case 7:
		config = map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "storage": map[string]any{"links": []any{map[string]any{"path": a.pick("/etc/kernel/cmdline", "/etc/default", "/etc/kernel", "/etc/default/grub"), "target": "/etc/example"}}}}
	case 8:
		config = map[string]any{"ignition": map[string]any{"version": "3.4.0", "config": map[string]any{"merge": []any{map[string]any{"source": "https://example.com/a"}}}}}
	}
	for range a.IntN(3) {
		text, err := json.Marshal(config)
		if err != nil {
			panic(err) // it is made of plain values
		}
		reference := any(map[string]any{"source": inline(string(text))})
		member := a.pick("merge", "replace")
		if member == "merge" {
			reference = []any{reference}
		}
		config = map[string]any{"ignition": map[string]any{"version": "3.4.0", "config": map[string]any{member: reference}}}
	}
	return map[string]any{"config": config}
}

// weaken: an editor without the verb weakens the security of machines.
func (w world) weaken(anna client.Client) func(attacker) (string, error) {
	return func(a attacker) (string, error) {
		spec := a.spec(a.argument())
		text, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			w.Fatal(err)
		}
		m := machineConfig(fmt.Sprintf("40-%d", a.Uint32()))
		m.Object["spec"] = spec
		switch a.IntN(4) {
		case 0:
			m.SetName("")
			m.SetGenerateName("40-")
			err = anna.Create(w.Context(), m)
		case 1:
			err = anna.Patch(w.Context(), machineConfig("50-mine"), client.RawPatch(types.MergePatchType, text))
		case 2:
			err = anna.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(m), client.FieldOwner("anna"))
		default:
			err = anna.Create(w.Context(), m)
		}
		return string(text), err
	}
}

// platform: an editor writes what is the platform's.
func (w world) platform(anna client.Client) func(attacker) (string, error) {
	return func(a attacker) (string, error) {
		name := a.pick("rendered-worker-secret", "99-worker-generated-kubelet")
		patch := a.pick(`{"spec":{"kernelArguments":["a"]}}`, `{"metadata":{"labels":{"machineconfiguration.openshift.io/role":"master"}}}`, `{"metadata":{"labels":{"a":"b"}}}`,
			`{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"doomed"}]}}`)
		var err error
		switch a.IntN(4) {
		case 0:
			name = a.pick("rendered-", "fetched-", "99-worker-generated-", "00-master-generated-") + fmt.Sprint(a.Uint32())
			err = anna.Create(w.Context(), machineConfig(name, "quiet"))
		case 1:
			m := machineConfig("40-"+fmt.Sprint(a.Uint32()), "quiet")
			m.SetLabels(map[string]string{"machineconfiguration.openshift.io/role": "worker", "machine-pivot.io/platform": a.pick("", "false", "x")})
			err = anna.Create(w.Context(), m)
		case 2:
			err = anna.Delete(w.Context(), machineConfig("99-worker-generated-kubelet"))
		default:
			err = anna.Patch(w.Context(), machineConfig(name), client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		return name + " " + patch, err
	}
}

// of returns an object of a kind.
func of(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
}

// write creates an object or applies it.
func (w world) write(a attacker, c client.Client, o *unstructured.Unstructured) error {
	if a.IntN(2) == 0 {
		return c.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("attacker"))
	}
	return c.Create(w.Context(), o)
}

// pools: who may write pools gives machines the secrets of another pool, or takes all machines.
func (w world) pools(pete client.Client) func(attacker) (string, error) {
	selector := func(a attacker) any {
		return []any{map[string]any{}, map[string]any{"matchLabels": map[string]any{}}, map[string]any{"matchExpressions": []any{}}, map[string]any{"matchLabels": map[string]any{"a b": "c"}},
			map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "In"}}}, map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Any"}}}}[a.IntN(6)]
	}
	return func(a attacker) (string, error) {
		spec := map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"node-role.kubernetes.io/a": ""}}}
		switch a.IntN(3) {
		case 0:
			spec["configuration"] = map[string]any{"name": "rendered-worker-secret", "source": []any{map[string]any{"name": "a"}}}
		case 1:
			spec["nodeSelector"] = selector(a)
		case 2:
			spec["machineConfigSelector"] = selector(a)
		}
		p := of(group, "MachineConfigPool", fmt.Sprintf("p%d", a.Uint32()), spec)
		return fmt.Sprint(spec), w.write(a, pete, p)
	}
}

// rollouts: conditions and windows that stop a controller, or that never end.
func (w world) rollouts(pete client.Client) func(attacker) (string, error) {
	return func(a attacker) (string, error) {
		name := fmt.Sprintf("r%d", a.Uint32())
		spec := []map[string]any{
			{"window": a.pick("never", "Sat", "25:00-26:00", "Sat 22:00-04:00 Nowhere/City", strings.Repeat("Sat 22:00-23:00,", 10000))},
			{"checks": map[string]any{"node": a.pick("1+", "node.", "true ||", strings.Repeat("(", 500), `"a"`, "1", "node.metadata.nothing ==", strings.Repeat("true && ", 50000)+"true")}},
			{"after": []any{name}},
			{"checks": map[string]any{"workloads": []any{map[string]any{"kind": "Deployment", "namespace": a.pick("../kube-system", "A", "a.b", ""), "name": a.pick("a/b", "", "..")}}}},
			{"checks": map[string]any{"workloads": []any{map[string]any{"kind": a.pick("Secret", "Node", ""), "namespace": "a", "name": "b"}}}},
		}[a.IntN(5)]
		text := fmt.Sprint(spec)
		return text, w.write(a, pete, of("machine-pivot.io/v1alpha1", "PoolRollout", name, spec))
	}
}

// settings: an editor puts other settings of CRI-O into its files, or values that stop it.
func (w world) settings(anna client.Client) func(attacker) (string, error) {
	return func(a attacker) (string, error) {
		inject := a.pick("info\"\n[crio.runtime.runtimes.x]\nruntime_path=\"/a\"", "info\"\nx=\"y", "loud", "info\\u000a", "\x00", "info # ")
		settings := []map[string]any{
			{"logLevel": inject}, {"pidsLimit": int64(a.IntN(20)) - 1 - 19*int64(a.IntN(2))}, {"logSizeMax": a.pick("1", "100", "many", "8191")}, {"overlaySize": a.pick("-1", "1 G", "x")},
			{"defaultRuntime": a.pick("/bin/sh", "kata\"\n", "x")},
		}[a.IntN(5)]
		o := of(group, "ContainerRuntimeConfig", fmt.Sprintf("c%d", a.Uint32()), map[string]any{"containerRuntimeConfig": settings,
			"machineConfigPoolSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}})
		return fmt.Sprintf("%q", settings), w.write(a, anna, o)
	}
}

// pods: a pod gets CPUs of its own choice, or the resource of a workload without being on its CPUs.
func (w world) pods() func(attacker) (string, error) {
	return func(a attacker) (string, error) {
		p := podIn(a.pick("apps", "strict", "other", "kube-system"))
		value := a.pick(`{"cpuset":"0-63"}`, `{"CPUSet":"0-63"}`, `{"cpu\u0073et":"0-63"}`, `{"cpushares":1,"cpuset":"0"}`, `0-63`)
		key := a.pick("resources.workload.openshift.io/a", "resources.workload.openshift.io.cpuset/a", "io.openshift.workload.management.cpuset/a", "resources.workload.openshift.io/b")
		if a.IntN(2) == 0 {
			p.Annotations = map[string]string{}
		}
		requests := a.IntN(4)
		switch requests {
		case 3:
			p = podIn("apps")
			if err := w.admin.Create(w.Context(), p); err != nil {
				return "a pod of a workload", err
			}
			size := a.pick(`{"limits":{"cpu":"3"},"requests":{"cpu":"2"}}`, `{"limits":{"cpu":"1m"}}`, `{"limits":{"cpu":"64"},"requests":{"cpu":"0"}}`, `{"limits":{"cpu":null}}`)
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"a","resources":`+size+`}]}}`))
			return "another size: " + size, w.admin.SubResource("resize").Patch(w.Context(), p, patch)
		case 0:
			p.Annotations[key] = value
		case 1:
			delete(p.Annotations, "target.workload.openshift.io/management")
			if a.IntN(2) == 0 {
				p.Annotations["target.workload.openshift.io/infra"] = "{}"
			}
			p.Spec.Containers[0].Resources.Limits = cores()
			p.Spec.Containers[0].Resources.Requests = cores()
		case 2:
			p.Annotations["target.workload.openshift.io/infra"] = a.pick("{}", "yes", `{"effect":"RequiredDuringScheduling"}`)
			p.Annotations["target.workload.openshift.io/management"] = a.pick("{}", "yes", `{"effect":"PreferredDuringScheduling"}`)
		}
		what := fmt.Sprint(p.Namespace, p.Annotations, p.Spec.Containers[0].Resources)
		if err := w.admin.Create(w.Context(), p); err != nil {
			return what, err
		}
		for key, value := range p.Annotations {
			var object map[string]any
			_ = json.Unmarshal([]byte(value), &object) // the annotations of others are no objects
			for member := range object {
				if strings.EqualFold(member, "cpuset") {
					return what, nil
				}
			}
			if strings.Contains(key, ".cpuset/") {
				return what, nil
			}
		}
		if requests == 0 {
			return what, errNoEffect
		}
		return fmt.Sprint(what, " stored as ", p.Annotations), nil
	}
}

func cores() corev1.ResourceList {
	q := resource.MustParse("4000")
	return corev1.ResourceList{"management.workload.openshift.io/cores": q}
}

// states: a node writes what is another node's, or what decides which pods and secrets it gets.
func (w world) states() func(attacker) (string, error) {
	node, err := client.New(w.plane.NodeUser("n2"), client.Options{Scheme: w.known})
	if err != nil {
		w.Fatal(err)
	}
	return func(a attacker) (string, error) {
		other := &corev1.Node{}
		other.Name = "n1"
		patch := a.pick(`{"metadata":{"annotations":{"machineconfiguration.openshift.io/desiredConfig":"rendered-a"}}}`, `{"metadata":{"labels":{"node-role.kubernetes.io/master":""}}}`,
			`{"metadata":{"labels":{"node-restriction.kubernetes.io/a":""}}}`, `{"spec":{"taints":[]}}`, `{"spec":{"unschedulable":true}}`)
		var err error
		switch a.IntN(4) {
		case 0:
			err = node.Patch(w.Context(), other, client.RawPatch(types.MergePatchType, []byte(patch)))
		case 1:
			patch = a.pick(`{"metadata":{"labels":{"node-role.kubernetes.io/master":""}}}`, `{"metadata":{"labels":{"node-restriction.kubernetes.io/a":""}}}`, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`)
			other.Name = "n2"
			err = node.Patch(w.Context(), other, client.RawPatch(types.MergePatchType, []byte(patch)))
		case 2:
			patch = "NodeSystem"
			system := of("machine-pivot.io/v1alpha1", "NodeSystem", "n1", nil)
			delete(system.Object, "spec")
			err = w.write(a, node, system)
		case 3:
			patch = "MachineConfigNode"
			err = w.write(a, node, of(group, "MachineConfigNode", "n1", map[string]any{"node": map[string]any{"name": "n1"}, "pool": map[string]any{"name": "a"}, "configVersion": map[string]any{"desired": "a"}}))
		}
		return other.Name + " " + patch, err
	}
}

// reads: who may not read MachineConfigs and tokens lists them; a node reads what has the names of other nodes' MachineConfigs.
func (w world) reads() func(attacker) (string, error) {
	node, err := client.New(w.plane.NodeUser("n2"), client.Options{Scheme: w.known})
	if err != nil {
		w.Fatal(err)
	}
	who := map[string]client.Client{"node": node, "a viewer": w.as("carl"), "a pool editor": w.as("pete"), "nobody": w.as("nobody"), "a stranger": w.as("system:anonymous", "system:unauthenticated")}
	return func(a attacker) (string, error) {
		name := a.pick("node", "node", "a viewer", "a pool editor", "nobody", "a stranger")
		kind := a.pick("MachineConfigList", "MachineConfigList", "SecretList")
		if name == "node" {
			kind = a.pick("MachineConfigList", "SecretList", "Node", "NodeList", "MachineConfigNodeList", "MachineConfigPoolList", "PoolRolloutList", "NodeSystemList", "EventList", "ConfigMapList")
		}
		if kind == "Node" {
			return "node gets n1", node.Get(w.Context(), client.ObjectKey{Name: "n1"}, &corev1.Node{})
		}
		var l unstructured.UnstructuredList
		l.SetAPIVersion("v1")
		switch {
		case strings.HasPrefix(kind, "MachineConfig"):
			l.SetAPIVersion(group)
		case kind == "PoolRolloutList", kind == "NodeSystemList":
			l.SetAPIVersion("machine-pivot.io/v1alpha1")
		}
		l.SetKind(kind)
		options := []client.ListOption{client.Limit(int64(1 + a.IntN(500)))}
		switch a.IntN(3) {
		case 0:
			options = append(options, client.MatchingLabels{"machineconfiguration.openshift.io/role": "worker"})
		case 1:
			options = append(options, client.MatchingFields{"metadata.name": "n1"})
		}
		if kind == "SecretList" && a.IntN(2) == 0 {
			options = append(options, client.InNamespace(a.pick("pivot-fleet", "pivot-fleet-server", "kube-system", "default")))
		}
		return name + " lists " + kind, who[name].List(w.Context(), &l, options...)
	}
}
