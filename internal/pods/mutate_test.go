package pods_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	namerules "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machine-pivot/internal/pods"
)

// etcd is a static pod of a cluster, with a comment of its author.
const etcd = `apiVersion: v1
kind: Pod
metadata:
  name: etcd
  namespace: openshift-etcd
  annotations:
    # management work
    target.workload.openshift.io/management: '{"effect": "PreferredDuringScheduling"}'
spec:
  containers:
  - name: etcd
    image: quay.io/etcd
    resources:
      requests:
        cpu: 400m
        memory: 600Mi
  - name: metrics
    image: quay.io/etcd
    resources:
      requests: {cpu: 0.1, memory: 80Mi}
      limits:
        cpu: 1
`

func TestTheEnhancementsExample(t *testing.T) {
	const want = `apiVersion: v1
kind: Pod
metadata:
  name: etcd
  namespace: openshift-etcd
  annotations:
    # management work
    target.workload.openshift.io/management: '{"effect": "PreferredDuringScheduling"}'
    resources.workload.openshift.io/etcd: '{"cpushares":409}'
    resources.workload.openshift.io/metrics: '{"cpushares":102,"cpulimit":1000}'
spec:
  containers:
  - name: etcd
    image: quay.io/etcd
    resources:
      requests:
        memory: 600Mi
        management.workload.openshift.io/cores: 400
      limits:
        management.workload.openshift.io/cores: 400
  - name: metrics
    image: quay.io/etcd
    resources:
      requests: {memory: 80Mi, management.workload.openshift.io/cores: 100}
      limits:
        management.workload.openshift.io/cores: 100
`
	got, d := mutate(t, etcd, pods.Options{})
	if got != want {
		t.Errorf("the pod is\n%s", got)
	}
	if !d.Changed || d.QoS != pods.Burstable || d.Pod != "openshift-etcd/etcd" || len(d.Containers) != 2 || d.Containers[0].Shares != 409 {
		t.Errorf("decision %+v", d)
	}
	// With the shares of the enhancement's examples.
	if got, _ = mutate(t, etcd, pods.Options{Shares: pods.SeedShares}); got != strings.NewReplacer("409", "400", ":102,", ":100,").Replace(want) {
		t.Errorf("with the enhancement's shares it is\n%s", got)
	}
	got, d = mutate(t, etcd, pods.Options{Syntax: pods.PlainSyntax})
	if !strings.Contains(got, "resources.workload.openshift.io.cpushares/etcd: \"409\"\n") || strings.Contains(got, "cpulimit") {
		t.Errorf("in the old syntax it is\n%s", got)
	}
	if !strings.Contains(d.Containers[1].Reason, "limit is lost") {
		t.Errorf("decision %+v", d)
	}
}

// TestUnrequested: without the resource, a request is in the annotation only, also if an earlier run has
// moved it to the resource.
func TestUnrequested(t *testing.T) {
	const want = `apiVersion: v1
kind: Pod
metadata:
  name: etcd
  namespace: openshift-etcd
  annotations:
    # management work
    target.workload.openshift.io/management: '{"effect": "PreferredDuringScheduling"}'
    resources.workload.openshift.io/etcd: '{"cpushares":409}'
    resources.workload.openshift.io/metrics: '{"cpushares":102,"cpulimit":1000}'
spec:
  containers:
  - name: etcd
    image: quay.io/etcd
    resources:
      requests:
        memory: 600Mi
  - name: metrics
    image: quay.io/etcd
    resources:
      requests: {memory: 80Mi}
      limits: {}
`
	got, d := mutate(t, etcd, pods.Options{Unrequested: true})
	if got != want || d.Containers[0].Shares != 409 || d.Containers[0].Cores != 400 || d.Containers[1].Limit != 1000 {
		t.Errorf("the pod is\n%s\n%+v", got, d)
	}
	requested, _ := mutate(t, etcd, pods.Options{})
	got, _ = mutate(t, requested, pods.Options{Unrequested: true})
	if again := strings.Replace(want, "        memory: 600Mi\n", "        memory: 600Mi\n      limits: {}\n", 1); got != again {
		t.Errorf("from a pod that requests the resource it is\n%s", got)
	}
	if got, _ = mutate(t, strings.Replace(want, `"cpushares":409`, `"cpushares":409,"cpuset":"0-3"`, 1), pods.Options{Unrequested: true}); got != want {
		t.Errorf("with a set of CPUs of its own it is\n%s", got)
	}
	const bestEffort = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"target.workload.openshift.io/management":"{}"}},"spec":{"containers":[{"name":"a"}]}}`
	if got, _ = mutate(t, bestEffort, pods.Options{Unrequested: true}); !strings.Contains(got, `\"cpushares\":2}`) {
		t.Errorf("a pod without requests is\n%s", got)
	}
}

// mutate changes a manifest and checks invariants: the result is a pod that Kubernetes accepts, has
// the same QoS class, and is not changed by a second run.
func mutate(t *testing.T, manifest string, o pods.Options) (string, pods.Decision) {
	t.Helper()
	out, d, report := pods.Mutate("p.yaml", []byte(manifest), o)
	if report.Failed() {
		t.Fatalf("%v\n%s", report, manifest)
	}
	if d.Changed == (string(out) == manifest) {
		t.Errorf("changed is %v, but\n%s", d.Changed, out)
	}
	again, second, report := pods.Mutate("p.yaml", out, o)
	if report.Failed() || string(again) != string(out) || second.Changed {
		t.Errorf("a second run: %v, changed %v\n%s", report, second.Changed, again)
	}
	before, after := typed(t, []byte(manifest)), typed(t, out)
	if classOf(before) != classOf(after) || string(d.QoS) != string(classOf(before)) {
		t.Errorf("class %s became %s, the decision says %s", classOf(before), classOf(after), d.QoS)
	}
	accepted(t, after)
	return string(out), d
}

// typed strictly decodes a manifest into the Kubernetes type and applies OpenShift's defaults for
// requests: the limit, where the request is missing or, for CPU, zero.
func typed(t *testing.T, manifest []byte) *v1.Pod {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(manifest, &tree); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var pod v1.Pod
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&pod); err != nil {
		t.Fatalf("not a pod: %v\n%s", err, manifest)
	}
	for _, c := range containers(&pod) {
		for name, limit := range c.Resources.Limits {
			if request, given := c.Resources.Requests[name]; !given || name == v1.ResourceCPU && request.IsZero() {
				if c.Resources.Requests == nil {
					c.Resources.Requests = v1.ResourceList{}
				}
				c.Resources.Requests[name] = limit
			}
		}
	}
	return &pod
}

func containers(p *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// classOf computes the QoS class like Kubernetes, from the sums over all containers.
func classOf(p *v1.Pod) v1.PodQOSClass {
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	all := true
	add := func(sum, list v1.ResourceList) (found int) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if q := list[name]; q.Sign() > 0 {
				total := sum[name]
				total.Add(q)
				sum[name] = total
				found++
			}
		}
		return found
	}
	for _, c := range containers(p) {
		add(requests, c.Resources.Requests)
		all = add(limits, c.Resources.Limits) == 2 && all
	}
	if len(requests)+len(limits) == 0 {
		return v1.PodQOSBestEffort
	}
	for name, request := range requests {
		if limit := limits[name]; limit.Cmp(request) != 0 {
			all = false
		}
	}
	if all && len(requests) == len(limits) {
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// accepted checks the changed parts of a pod like the API server.
func accepted(t *testing.T, p *v1.Pod) {
	t.Helper()
	for _, e := range validation.ValidateAnnotations(p.Annotations, field.NewPath("metadata", "annotations")) {
		t.Error(e)
	}
	for _, c := range containers(p) {
		for name, limit := range c.Resources.Limits {
			if errs := namerules.IsQualifiedName(string(name)); len(errs) > 0 {
				t.Errorf("resource %s: %v", name, errs)
			}
			request := c.Resources.Requests[name]
			if request.Cmp(limit) > 0 {
				t.Errorf("container %s: %s requested, %s allowed", c.Name, &request, &limit)
			}
			if strings.Contains(string(name), "/") && (request.Cmp(limit) != 0 || limit.Cmp(*resource.NewQuantity(limit.Value(), resource.DecimalSI)) != 0) {
				t.Errorf("container %s: the extended resource %s is not a whole number requested and allowed alike", c.Name, name)
			}
		}
	}
}

// of returns a pod with annotations and containers in YAML flow style.
func of(annotations, containers string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  namespace: ns\n  annotations: " + annotations + "\nspec:\n  containers: " + containers + "\n"
}

const management = `{target.workload.openshift.io/management: '{"effect":"PreferredDuringScheduling"}'}`

// managed adds an annotation to the one that chooses the workload.
func managed(more string) string { return strings.TrimSuffix(management, "}") + ", " + more + "}" }

func TestDecisions(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		want           []string // in the result
		not            []string
		reason         string // anywhere in the decision
	}{
		{"no workload", of("{a: b}", "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]"), []string{"cpu: 1"}, []string{"resources.workload"}, "it chooses no workload"},
		{"no workload, but resources", of(`{"resources.workload.openshift.io/c": '{"cpushares":9}'}`, "[{name: c}]"), nil, []string{"resources.workload"}, "can not have resource annotation"},
		{"another workload", of(strings.Replace(management, "management", "infra", 1), "[{name: c, resources: {requests: {cpu: 2, memory: 1}}}]"),
			[]string{"infra.workload.openshift.io/cores: 2000", `c: '{"cpushares":2048}'`}, nil, "the workload infra"},
		{"guaranteed", of(management, "[{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]"),
			[]string{"cpu: 1", "workload.openshift.io/warning: skipping pod CPUs requests modifications because it has guaranteed QoS class"}, []string{"target.workload"}, "outside of partitioning"},
		{"resources of the pod", of(management, "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]\n  resources: {requests: {cpu: 2}}"),
			[]string{"cpu: 1", "workload.openshift.io/warning: skipping pod CPUs requests modifications because it has resources of the pod as a whole"}, []string{"target.workload", "cores"}, "outside of partitioning"},
		{"no resources of the pod", of(management, "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]\n  resources: {}"), []string{"management.workload.openshift.io/cores: 1000"}, []string{"warning"}, "is moved"},
		{"best effort", of(management, "[{name: c}, {name: d, resources: {}}]"), []string{`c: '{"cpushares":2}'`, `d: '{"cpushares":2}'`}, []string{"cores"}, "the pod is BestEffort"},
		{"only CPU", of(management, "[{name: c, resources: {requests: {cpu: 1}}}]"), []string{"cpu: 1", "from Burstable to BestEffort"}, []string{"target.workload", "cores"}, "will change the pod QoS class"},
		{"memory elsewhere", of(management, "[{name: c, resources: {requests: {cpu: 1}}}, {name: d, resources: {requests: {memory: 1}}}]"),
			[]string{"requests: {management.workload.openshift.io/cores: 1000}", `c: '{"cpushares":1024}'`}, []string{"workload.openshift.io/d"}, "it requests no CPU"},
		{"only a limit", of(management, "[{name: c, resources: {limits: {cpu: 500m}, requests: {memory: 1}}}]"), []string{`'{"cpushares":512,"cpulimit":500}'`, "cores: 500"}, []string{"cpu: "}, "is moved"},
		{"tiny", of(management, "[{name: c, resources: {requests: {cpu: 1m, memory: 1}}}]"), []string{`'{"cpushares":2}'`, "cores: 1}"}, nil, ""},
		{"zero", of(management, "[{name: c, resources: {requests: {cpu: 0, memory: 1}}}]"), []string{`'{"cpushares":2}'`, "cores: 0}"}, nil, ""},
		{"huge", of(management, "[{name: c, resources: {requests: {cpu: 1k, memory: 1}}}]"), []string{`'{"cpushares":262144}'`, "cores: 1000000}"}, nil, ""},
		{"a set of its own", of(managed(`resources.workload.openshift.io/c: '{"cpuset":"0-63"}'`), "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]"),
			[]string{`c: '{"cpushares":1024}'`}, []string{"cpuset"}, "a pod may not choose its CPUs"},
		{"a set in the old syntax", of(managed(`resources.workload.openshift.io.cpuset/c: 0-63`), "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]"),
			[]string{`c: '{"cpushares":1024}'`}, []string{"cpuset"}, "a pod may not choose its CPUs"},
		{"a set in the oldest", of(managed(`io.openshift.workload.management.cpuset/c: 0-63`), "[{name: c}]"), nil, []string{"cpuset"}, "a pod may not choose its CPUs"},
		{"a set of a container that asks for nothing", of(managed(`resources.workload.openshift.io/d: '{"CPUSet":"0-63"}'`), "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}, {name: d}]"),
			nil, []string{"0-63"}, "a pod may not choose its CPUs"},
		{"a container that is not there", of(managed(`resources.workload.openshift.io/x: '{"cpushares":5}'`), "[{name: c}]"), nil, []string{"openshift.io/x"}, "no such container"},
		{"shares of its own", of(managed(`resources.workload.openshift.io/c: '{"cpushares":99999}'`), "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]"), []string{`'{"cpushares":1024}'`}, nil, ""},
		{"no resources of its own", of(managed("a: b"), "[{name: c, resources: null}]"), []string{`'{"cpushares":2}'`}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, d := mutate(t, c.manifest, pods.Options{})
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("it does not hold %q:\n%s", want, out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(out, not) {
					t.Errorf("it holds %q:\n%s", not, out)
				}
			}
			if text := fmt.Sprintf("%+v", d); !strings.Contains(text, c.reason) {
				t.Errorf("decision %s, want %q", text, c.reason)
			}
			// JSON input gives the same result.
			other, _ := mutate(t, asJSON(t, c.manifest), pods.Options{})
			if asJSON(t, other) != asJSON(t, out) {
				t.Errorf("as JSON it is\n%s", other)
			}
		})
	}
}

func asJSON(t *testing.T, manifest string) string {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal([]byte(manifest), &tree); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A manifest that needs no change is returned byte for byte.
func TestUntouched(t *testing.T) {
	for _, manifest := range []string{
		"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"x\\u00e9\\/\\ud83d\\ude00\"},\t\"spec\":{\"containers\":[{\"name\":\"c\"}]}}",
		"# comment\napiVersion:   v1\nkind: 'Pod'\nmetadata: {}\nspec:\n    containers:\n        - name: c\n",
	} {
		out, d, report := pods.Mutate("p", []byte(manifest), pods.Options{})
		if len(report) > 0 || string(out) != manifest || d.Changed {
			t.Errorf("%v, changed %v:\n%s", report, d.Changed, out)
		}
	}
}

// Static pods of clusters are JSON: order, numbers and line format are kept.
func TestJSONStaysJSON(t *testing.T) {
	one := `{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"target.workload.openshift.io/management":"{\"effect\": \"PreferredDuringScheduling\"}"},"name":"<&>"},"spec":{"containers":[{"name":"c","ports":[{"containerPort":6443}],"resources":{"requests":{"cpu":"265m","memory":"1Gi"}}}]}}`
	want := strings.NewReplacer(`"cpu":"265m",`, "", `"1Gi"}`, `"1Gi","management.workload.openshift.io/cores":265},"limits":{"management.workload.openshift.io/cores":265}`,
		`Scheduling\"}"`, `Scheduling\"}","resources.workload.openshift.io/c":"{\"cpushares\":271}"`).Replace(one)
	if got, _ := mutate(t, one, pods.Options{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var several, wanted bytes.Buffer
	if err := json.Indent(&several, []byte(one), "", "  "); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&wanted, []byte(want), "", "  "); err != nil {
		t.Fatal(err)
	}
	if got, _ := mutate(t, several.String()+"\n", pods.Options{}); got != wanted.String()+"\n" {
		t.Errorf("got\n%s", got)
	}
}

func TestNamespaces(t *testing.T) {
	allowed, report := pods.Namespaces("n.yaml", []byte("kind: Namespace\nmetadata:\n  name: openshift-etcd\n  annotations:\n    workload.openshift.io/allowed: management,infra\n---\nkind: Namespace\nmetadata: {name: mine, annotations: {workload.openshift.io/allowed: infra}}\n---\nkind: Namespace\nmetadata: {name: default}\n"))
	if len(report) > 0 || len(allowed) != 2 {
		t.Fatal(allowed, report)
	}
	if listed, report := pods.Namespaces("n.json", []byte(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":""},"items":[{"kind":"Namespace","metadata":{"name":"a","annotations":{"workload.openshift.io/allowed":"infra"}}},{"kind":"Namespace","metadata":{"name":"b"}}]}`)); len(report) > 0 || listed["a"] != "infra" || len(listed) != 1 {
		t.Error("as clients print several: ", listed, report)
	}
	o := pods.Options{Allowed: allowed}
	if out, _ := mutate(t, etcd, o); !strings.Contains(out, "cores") {
		t.Errorf("an allowed one is\n%s", out)
	}
	out, d := mutate(t, strings.Replace(etcd, "openshift-etcd", "other", 1), o)
	if strings.Contains(out, "cores") || !strings.Contains(d.Warning, "the other namespace is not annotated with workload.openshift.io/allowed") {
		t.Errorf("in a namespace without the annotation: %+v\n%s", d, out)
	}
	if _, _, report := pods.Mutate("p.yaml", []byte(strings.Replace(etcd, "openshift-etcd", "mine", 1)), o); !strings.Contains(report.String(), "p.yaml:5: error: $.metadata.namespace: the pod namespace \"mine\" does not allow the workload type management") {
		t.Errorf("in a namespace that allows another: %v", report)
	}
	for text, want := range map[string]string{
		"kind: Pod\nmetadata: {name: x}\n":                                  `n.yaml:1: error: $.kind: it is "Pod", not Namespace`,
		"kind: Namespace\nmetadata: {}\n---\nkind: Namespace\n":             "n.yaml:4: error: $.metadata.name: it is missing",
		"kind: Namespace\nmetadata: {name: x, annotations: {a: 1, a: b}}\n": "n.yaml:2: error: $.metadata.annotations.a: it is there more than once",
	} {
		if _, report := pods.Namespaces("n.yaml", []byte(text)); !strings.Contains(report.String(), want) {
			t.Errorf("%s\n%v\nwant %s", text, report, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ manifest, want string }{
		{of(managed(`target.workload.openshift.io/infra: '{"effect":"PreferredDuringScheduling"}'`), "[{name: c}]"), "can not have more than one workload annotations: target.workload.openshift.io/management, target.workload.openshift.io/infra"},
		{of(strings.Replace(management, "management", "", 1), "[{name: c}]"), "should have format target.workload.openshift.io/<workload_type>"},
		{of(strings.Replace(management, "Preferred", "Required", 1), "[{name: c}]"), `only "PreferredDuringScheduling" effect`},
		{of("{target.workload.openshift.io/management: soft}", "[{name: c}]"), "not an object"},
		{of(strings.Replace(management, `"}`, `","x":"y"}`, 1), "[{name: c}]"), `unknown member "x"`},
		{of(management, "[{name: c, resources: {requests: {cpu: lots}}}]"), `resources.requests.cpu: cannot parse quantity "lots"`},
		{of(management, "[{name: c, resources: {requests: {cpu: -1}}}]"), "negative"},
		{of(management, "[{name: c}, {name: c}]"), `the name "c" is there twice`},
		{of(management, "[{image: x}]"), "spec.containers[0]: it has no name"},
		{of(management, "[]"), "no containers"},
		{of("[]", "[{name: c}]"), "p.yaml:6: error: $.metadata.annotations: it is an array, not an object"},
		{of(management, "[{name: c, resources: []}]"), "p.yaml:8: error: $.spec.containers[0].resources: it is an array, not an object"},
		{of(management, "[{name: c}]\n  resources: {requests: []}"), "p.yaml:9: error: $.spec.resources.requests: it is an array"},
		{of(management, "[{name: c, resources: &r {}}, {name: d, resources: *r}]"), "p.yaml:8: error: $: YAML anchors and aliases are not supported; write the values in place of *NAME"},
		{of(management, "[{name: c, name: d}]"), "$.spec.containers[0].name: it is there more than once"},
		{etcd + "---\nkind: Pod\n", "more than one document"},
		{"kind: Deployment\napiVersion: apps/v1\n", `it is "Deployment" of "apps/v1", not a Pod of v1`},
		{"", "it is empty"}, {"- a\n", "not an object"}, {"a: [", "not YAML"}, {"{", "not JSON"}, {`{"a":1,"a":2}`, `$.a: it is there more than once`}, {`{} {}`, "more than one document"},
		{strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500), "nested too deeply"}, {strings.Repeat(" ", 9<<20), "more than"},
		{of(management, "[{name: c, resources: {requests: {cpu: lots, memory: []}}}, {image: x}]"), "p.yaml:8: error: $.spec.containers[0].resources.requests.memory: it is an array, not a string\np.yaml:8: error: $.spec.containers[1]: it has no name"},
		{of("{a: 1}", "[{name: c}]"), "$.metadata.annotations.a: it is a number, not a string"},
	} {
		out, _, report := pods.Mutate("p.yaml", []byte(c.manifest), pods.Options{})
		if out != nil || !report.Failed() || !strings.Contains(report.String(), c.want) {
			t.Errorf("%.300s: %v, want %q", c.manifest, report, c.want)
		}
	}
}

// TestZero: where an API server would fill in defaults of a namespace, the CPU is a zero of its own, also the second time.
func TestZero(t *testing.T) {
	o := pods.Options{Zero: true}
	once, _, report := pods.Mutate("p.yaml", []byte(of(management, "[{name: c, resources: {requests: {cpu: 400m, memory: 1}, limits: {cpu: 1}}}, {name: d, resources: {requests: {memory: 1}}}]")), o)
	for _, want := range []string{`requests: {cpu: "0", memory: 1, management.workload.openshift.io/cores: 400}`, `limits: {cpu: "0", management.workload.openshift.io/cores: 400}`, `{"cpushares":409,"cpulimit":1000}`} {
		if !strings.Contains(string(once), want) {
			t.Errorf("no %s in\n%s%v", want, once, report)
		}
	}
	if twice, d, _ := pods.Mutate("p.yaml", once, o); d.Changed {
		t.Errorf("changed again:\n%s", twice)
	}
}

// TestAllowed: white space in the list of a namespace does not count.
func TestAllowed(t *testing.T) {
	for allowed, want := range map[string]bool{"management": true, "infra, management": true, " management ,infra": true, "managements": false, "infra": false, "": false} {
		_, _, report := pods.Mutate("p.yaml", []byte(of(management, "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]")), pods.Options{Allowed: map[string]string{"ns": allowed}})
		if report.Failed() == want {
			t.Errorf("%q: %v", allowed, report)
		}
	}
}

// TestAmounts: CPU amounts are parsed like in Kubernetes.
func TestAmounts(t *testing.T) {
	for amount, cores := range map[string]string{
		"400m": "400", "0.4": "400", ".4": "400", "4.": "4000", "1": "1000", "+5": "5000", "1.5": "1500", "1k": "1000000", "1Ki": "1024000", "1e3": "1000000",
		"1e-3": "1", "1u": "1", "1n": "1", "0.0001": "1", "1.0001": "1001", "0.5Ki": "512000", "'007'": "7000", "0x10": "16000", "010": "8000", "1_0": "10000", "1E": "9223372036854775807",
	} {
		out, _ := mutate(t, of(management, "[{name: c, resources: {requests: {cpu: "+amount+", memory: 1}}}]"), pods.Options{})
		if want := "requests: {memory: 1, management.workload.openshift.io/cores: " + cores + "}"; !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", amount, want, out)
		}
	}
	for _, amount := range []string{"1K", "1 k", "1ki", "--1", "1.2.3", "1e", "'0x1'", "''", "m", ".", "100E", "1e100", "'1e2147483647'", "'1e-2147483647'"} {
		manifest := of(management, "[{name: c, resources: {requests: {cpu: "+amount+", memory: 1}}}]")
		if out, _, report := pods.Mutate("p.yaml", []byte(manifest), pods.Options{}); !report.Failed() || !strings.Contains(report.String(), "cannot parse quantity") {
			t.Errorf("%s is taken (%v):\n%s", amount, report, out)
		}
	}
}

func TestInitContainers(t *testing.T) {
	out, d := mutate(t, of(management, "[{name: c, resources: {requests: {cpu: 1, memory: 1}}}]\n  initContainers: [{name: i, resources: {requests: {cpu: 10m, memory: 1}}}]"), pods.Options{})
	if !strings.Contains(out, `i: '{"cpushares":10}'`) || len(d.Containers) != 2 || !d.Containers[1].Init {
		t.Errorf("%+v\n%s", d, out)
	}
}

// A changed pod keeps its QoS class, and a second run changes nothing.
func FuzzMutate(f *testing.F) {
	f.Add([]byte(etcd), false)
	f.Add([]byte(of(management, "[{name: c}]")), true)
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"target.workload.openshift.io/m":"{\"effect\":\"PreferredDuringScheduling\"}"}},"spec":{"containers":[{"name":"c"}]}}`), false)
	f.Fuzz(func(t *testing.T, manifest []byte, old bool) {
		o := pods.Options{}
		if old {
			o.Syntax = pods.PlainSyntax
		}
		out, d, report := pods.Mutate("p", manifest, o)
		if report.Failed() {
			return
		}
		again, second, report := pods.Mutate("p", out, o)
		if report.Failed() || !bytes.Equal(again, out) {
			t.Errorf("%q became %q and then %q: %v", manifest, out, again, report)
		}
		if d.Warning == "" && d.QoS != second.QoS {
			t.Errorf("%q: class %s became %s", manifest, d.QoS, second.QoS)
		}
	})
}

// TestChosen: the workload types that a manifest chooses, and an error only for what is no object.
func TestChosen(t *testing.T) {
	for manifest, want := range map[string]string{
		etcd:                              "[management] false",
		"metadata: {annotations: {a: b}}": "[] false",
		"- a":                             "[] true",
		"{":                               "[] true",
	} {
		types, report := pods.Chosen("p", []byte(manifest))
		if got := fmt.Sprint(types, report.Failed()); got != want {
			t.Errorf("%s: %s %s, want %s", manifest, got, report, want)
		}
	}
}
