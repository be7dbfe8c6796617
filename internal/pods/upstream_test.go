package pods_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"machine-pivot/internal/pods"
)

// sized returns a container with requests and limits of CPU and memory; "" means none.
func sized(name, cpuLimit, cpuRequest, memoryLimit, memoryRequest string) string {
	list := func(name, cpu, memory string) string {
		var members []string
		if cpu != "" {
			members = append(members, "cpu: "+cpu)
		}
		if memory != "" {
			members = append(members, "memory: "+memory)
		}
		return name + ": {" + strings.Join(members, ", ") + "}"
	}
	return "{name: " + name + ", resources: {" + list("limits", cpuLimit, memoryLimit) + ", " + list("requests", cpuRequest, memoryRequest) + "}}"
}

// alike returns a pod with a container and an init container of the same size.
func alike(annotations, cpuLimit, cpuRequest, memoryLimit, memoryRequest string) string {
	return of(annotations, "["+sized("app", cpuLimit, cpuRequest, memoryLimit, memoryRequest)+"]\n  initContainers: ["+
		sized("init", cpuLimit, cpuRequest, memoryLimit, memoryRequest)+"]")
}

const (
	leftGuaranteed = "it has guaranteed QoS class"
	leftClass      = "it will change the pod QoS class from Burstable to BestEffort"
	leftNamespace  = "is not annotated with workload.openshift.io/allowed"
)

// The cases are from OpenShift's own tables: of its API server's admission of workload
// partitioning, and of its kubelet's change of static pods. Where they differ, the admission's
// result is expected. Where pivot differs from both, a comment at the case gives the reason.
func TestOpenShiftsCases(t *testing.T) {
	limited := of(management, "["+sized("a", "200m", "100m", "100Mi", "100Mi")+", "+sized("b", "", "1", "", "100Mi")+", "+sized("c", "1", "1", "100Mi", "100Mi")+"]")
	namespaces := map[string]string{"ns": "management,test"}
	for _, c := range []struct {
		name, manifest string
		allowed        map[string]string // nil: not checked
		shares         map[string]string // resource annotations by container
		left           string            // in the warning; requests stay, and the workload's annotation is removed
		class          v1.PodQOSClass
	}{
		// The admission's cases.
		{name: "no workload", manifest: alike("{}", "500m", "250m", "500Mi", "250Mi"), allowed: namespaces, class: v1.PodQOSBurstable},
		{name: "burstable", manifest: alike(management, "", "250m", "500Mi", "250Mi"), allowed: namespaces,
			shares: map[string]string{"app": `{"cpushares":256}`, "init": `{"cpushares":256}`}, class: v1.PodQOSBurstable},
		// The admission writes a blank here, and only here.
		{name: "best effort", manifest: alike(management, "", "", "", ""), allowed: namespaces,
			shares: map[string]string{"app": `{"cpushares":2}`, "init": `{"cpushares":2}`}, class: v1.PodQOSBestEffort},
		{name: "guaranteed", manifest: alike(management, "500m", "500m", "500Mi", "500Mi"), allowed: namespaces, left: leftGuaranteed, class: v1.PodQOSGuaranteed},
		{name: "request and limit of CPU, limit of memory", manifest: alike(management, "500m", "250m", "500Mi", ""), allowed: namespaces,
			shares: map[string]string{"app": `{"cpushares":256,"cpulimit":500}`, "init": `{"cpushares":256,"cpulimit":500}`}, class: v1.PodQOSBurstable},
		{name: "only a request of CPU", manifest: alike(management, "", "250m", "", ""), allowed: namespaces, left: leftClass, class: v1.PodQOSBurstable},
		{name: "only a limit of CPU", manifest: alike(management, "100m", "", "", ""), left: leftClass, class: v1.PodQOSBurstable},
		{name: "only a limit of memory", manifest: alike(management, "", "", "100Mi", ""), class: v1.PodQOSBurstable},
		{name: "only a request of memory", manifest: alike(management, "", "", "", "100Mi"), class: v1.PodQOSBurstable},
		{name: "a request of no CPU with a limit", manifest: alike(management, "100m", "0", "100Mi", "100Mi"), left: leftGuaranteed, class: v1.PodQOSGuaranteed},
		{name: "a request of no memory with a limit", manifest: alike(management, "100m", "100m", "100Mi", "0"),
			shares: map[string]string{"app": `{"cpushares":102,"cpulimit":100}`, "init": `{"cpushares":102,"cpulimit":100}`}, class: v1.PodQOSBurstable},
		// The namespace is checked before the effect.
		{name: "a namespace without annotation", manifest: alike(`{target.workload.openshift.io/management: '{"test": "test"}'}`, "500m", "250m", "500Mi", "250Mi"),
			allowed: map[string]string{}, left: leftNamespace, class: v1.PodQOSBurstable},
		// The admission removes shares and computes them again.
		{name: "shares of its own", manifest: alike(managed(`resources.workload.openshift.io/app: '{"cpushares": 7}'`), "500m", "250m", "500Mi", "250Mi"), allowed: namespaces,
			shares: map[string]string{"app": `{"cpushares":256,"cpulimit":500}`, "init": `{"cpushares":256,"cpulimit":500}`}, class: v1.PodQOSBurstable},
		// In the same way it removes a set, though its validation alone would refuse one.
		{name: "a set of its own", manifest: alike(managed(`resources.workload.openshift.io/app: '{"cpuset": 1}'`), "500m", "250m", "500Mi", "250Mi"), allowed: namespaces,
			shares: map[string]string{"app": `{"cpushares":256,"cpulimit":500}`, "init": `{"cpushares":256,"cpulimit":500}`}, class: v1.PodQOSBurstable},
		{name: "shares without a workload", manifest: alike(`{resources.workload.openshift.io/app: '{"cpushares": 2}'}`, "500m", "250m", "500Mi", "250Mi"), class: v1.PodQOSBurstable},
		// The admission leaves mirror pods of static pods alone, because the kubelet has changed
		// them. The input here is what the kubelet reads, so this mark has no effect.
		{name: "marked as a static pod", manifest: alike(managed("kubernetes.io/config.source: file"), "500m", "250m", "500Mi", "250Mi"),
			shares: map[string]string{"app": `{"cpushares":256,"cpulimit":500}`, "init": `{"cpushares":256,"cpulimit":500}`}, class: v1.PodQOSBurstable},

		// The kubelet's cases.
		{name: "kubelet: one container", manifest: of(management, "["+sized("a", "", "100m", "", "100m")+"]"),
			shares: map[string]string{"a": `{"cpushares":102}`}, class: v1.PodQOSBurstable},
		{name: "kubelet: several", manifest: of(management, "["+sized("a", "", "100m", "", "100m")+", "+sized("b", "", "1", "", "100m")+"]"),
			shares: map[string]string{"a": `{"cpushares":102}`, "b": `{"cpushares":1024}`}, class: v1.PodQOSBurstable},
		{name: "kubelet: limit above the request", manifest: of(management, "["+sized("a", "100m", "20m", "100m", "100m")+"]"),
			shares: map[string]string{"a": `{"cpushares":20,"cpulimit":100}`}, class: v1.PodQOSBurstable},
		{name: "kubelet: limits of some", manifest: limited,
			shares: map[string]string{"a": `{"cpushares":102,"cpulimit":200}`, "b": `{"cpushares":1024}`, "c": `{"cpushares":1024,"cpulimit":1000}`}, class: v1.PodQOSBurstable},
		// The kubelet gives containers of such pods no annotation; the admission does.
		{name: "kubelet: other resources only", manifest: of(management, "[{name: a, resources: {requests: {dummy: 20m}}}]"),
			shares: map[string]string{"a": `{"cpushares":2}`}, class: v1.PodQOSBestEffort},
		{name: "kubelet: guaranteed with shares of its own", manifest: of(managed(`resources.workload.openshift.io/a: '{"cpushares":20}'`), "["+sized("a", "100m", "100m", "100m", "100m")+"]"),
			left: leftGuaranteed, class: v1.PodQOSGuaranteed},
		{name: "kubelet: guaranteed by its limits", manifest: of(management, "["+sized("a", "100m", "", "100m", "")+"]"), left: leftGuaranteed, class: v1.PodQOSGuaranteed},
		{name: "kubelet: a request of no CPU with a limit", manifest: of(management, "["+sized("a", "100m", "0m", "100m", "100m")+"]"), left: leftGuaranteed, class: v1.PodQOSGuaranteed},
		{name: "kubelet: another workload", manifest: strings.ReplaceAll(limited, "management", "throttle"),
			shares: map[string]string{"a": `{"cpushares":102,"cpulimit":200}`, "b": `{"cpushares":1024}`, "c": `{"cpushares":1024,"cpulimit":1000}`}, class: v1.PodQOSBurstable},
		// The kubelet refuses both of these; the admission accepts them.
		{name: "kubelet: memory without CPU", manifest: of(management, "["+sized("a", "", "", "", "100m")+"]"), class: v1.PodQOSBurstable},
		{name: "kubelet: CPU without memory", manifest: of(management, "["+sized("a", "", "100m", "", "")+"]"), left: leftClass, class: v1.PodQOSBurstable},
		// The kubelet ignores the effect, and the enhancement has a default; the admission refuses
		// it.
		{name: "no effect", manifest: alike("{target.workload.openshift.io/management: '{}'}", "", "250m", "500Mi", "250Mi"),
			shares: map[string]string{"app": `{"cpushares":256}`, "init": `{"cpushares":256}`}, class: v1.PodQOSBurstable},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, d := mutate(t, c.manifest, pods.Options{Allowed: c.allowed})
			before, after := typed(t, []byte(c.manifest)), typed(t, []byte(out))
			if string(d.QoS) != string(c.class) {
				t.Errorf("class %s, want %s", d.QoS, c.class)
			}
			got := map[string]string{}
			for key, value := range after.Annotations {
				if name, ok := strings.CutPrefix(key, "resources.workload.openshift.io/"); ok {
					got[name] = value
				}
			}
			if !maps.Equal(got, c.shares) {
				t.Errorf("resource annotations %q, want %q", got, c.shares)
			}
			if !strings.Contains(d.Warning, c.left) || (c.left == "") != (d.Warning == "") || after.Annotations["workload.openshift.io/warning"] != d.Warning {
				t.Errorf("warning %q, want %q; annotations %q", d.Warning, c.left, after.Annotations)
			}
			asked := targets(before)
			if c.left != "" {
				asked = nil
			}
			if !slices.Equal(targets(after), asked) {
				t.Errorf("chosen workloads %q, want %q", targets(after), asked)
			}
			expectCPU(t, before, after, got)
		})
	}
}

// targets returns the annotation keys of the workloads that a pod chooses.
func targets(p *v1.Pod) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.Annotations)), func(key string) bool { return !strings.HasPrefix(key, "target.") })
}

// expectCPU checks that containers with shares have their CPU request moved to the workload's
// resource, and that others are unchanged.
func expectCPU(t *testing.T, before, after *v1.Pod, shares map[string]string) {
	t.Helper()
	now := containers(after)
	for i, c := range containers(before) {
		request := c.Resources.Requests[v1.ResourceCPU]
		moved := now[i].Resources.Requests.Name("management.workload.openshift.io/cores", "DecimalSI")
		if other := now[i].Resources.Requests.Name("throttle.workload.openshift.io/cores", "DecimalSI"); moved.IsZero() {
			moved = other
		}
		want, cpu := int64(0), request.MilliValue()
		if _, pinned := shares[c.Name]; pinned {
			want, cpu = cpu, 0
		}
		if got := now[i].Resources.Requests.Cpu().MilliValue(); got != cpu || moved.Value() != want {
			t.Errorf("container %s: %dm of CPU and %d of the workload's resource, want %dm and %d", c.Name, got, moved.Value(), cpu, want)
		}
	}
}

// What OpenShift's tables refuse is refused.
func TestOpenShiftsRefusals(t *testing.T) {
	cores := "[{name: app, resources: {requests: {cpu: 250m, memory: 250Mi, management.workload.openshift.io/cores: 26}, limits: {management.workload.openshift.io/cores: 26}}}]"
	const without = `the pod without workload annotations can not have containers with workload resources "management.workload.openshift.io/cores"`
	for _, c := range []struct {
		name, manifest, want string
		allowed              map[string]string
	}{
		{"several workloads", alike(`{target.workload.openshift.io/management: "", target.workload.openshift.io/test: ""}`, "500m", "250m", "500Mi", "250Mi"),
			"can not have more than one workload annotations", nil},
		{"no name of a workload", alike(`{target.workload.openshift.io/: ""}`, "500m", "250m", "500Mi", "250Mi"), "should have format target.workload.openshift.io/<workload_type>", nil},
		{"half an object", alike(`{target.workload.openshift.io/management: "{"}`, "500m", "250m", "500Mi", "250Mi"), "unexpected end of JSON input", nil},
		{"another member", alike(`{target.workload.openshift.io/management: '{"test": "test"}'}`, "500m", "250m", "500Mi", "250Mi"), `unknown member "test"`, map[string]string{"ns": "management"}},
		{"null", alike(`{target.workload.openshift.io/management: "null"}`, "500m", "250m", "500Mi", "250Mi"), "is not an object", nil},
		{"an effect of nothing", alike(`{target.workload.openshift.io/management: '{"effect": ""}'}`, "500m", "250m", "500Mi", "250Mi"), "effect is supported", nil},
		{"a namespace that allows others", alike(strings.Replace(management, "management", "other", 1), "500m", "250m", "500Mi", "250Mi"),
			`the pod namespace "ns" does not allow the workload type other`, map[string]string{"ns": "management,test"}},
		{"the workload's resource without a workload", of("{}", cores), without, nil},
		// The admission leaves such a pod alone, and its validation then finds no annotation.
		{"the same in a namespace without annotation", of(management, cores), without, map[string]string{}},
		{"the same in a guaranteed pod", of(management, strings.Replace(cores, "limits: {", "limits: {cpu: 250m, memory: 250Mi, ", 1)), without, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, d, report := pods.Mutate("p.yaml", []byte(c.manifest), pods.Options{Allowed: c.allowed})
			if !report.Failed() || out != nil || !strings.Contains(report.String(), c.want) {
				t.Errorf("%v, want %q; decision %+v\n%s", report, c.want, d, out)
			}
		})
	}
}
