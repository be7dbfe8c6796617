package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func nodeWith(name string, cores ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
	for _, workload := range cores {
		n.Status.Allocatable[corev1.ResourceName(workload+resourceSuffix)] = resource.MustParse("4000")
	}
	return n
}

func TestPartitioned(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []corev1.Node
		off   string // a part of why management is off
		types string
	}{
		{"no nodes", nil, "no nodes", "[]"},
		{"all", []corev1.Node{nodeWith("a", "management", "infra"), nodeWith("b", "management")}, "", "[management]"},
		{"one lacks it", []corev1.Node{nodeWith("a", "management"), nodeWith("b")}, "these nodes do not report management.workload.openshift.io/cores: b", "[]"},
		{"many lack it", []corev1.Node{nodeWith("a"), nodeWith("b"), nodeWith("c"), nodeWith("d"), nodeWith("e"), nodeWith("f"), nodeWith("g", "management")}, "a, b, c, d, e and 1 more", "[]"},
	} {
		if why := countOf(c.nodes).lacking("management"); !strings.Contains(why, c.off) || (why == "") != (c.off == "") {
			t.Errorf("%s: %q", c.name, why)
		}
		if types := fmt.Sprint(countOf(c.nodes).everywhere()); types != c.types {
			t.Errorf("%s: %s", c.name, types)
		}
	}
}

// pod is a Burstable pod of the workload, as an API server gives it to a webhook.
const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"a-","namespace":"apps","annotations":{"target.workload.openshift.io/management":"{\"effect\":\"PreferredDuringScheduling\"}"}},` +
	`"spec":{"containers":[{"name":"a","image":"a","resources":{"requests":{"cpu":"400m","memory":"1Gi"}}}],"ephemeralContainers":[]},"status":{}}`

func TestJudgePod(t *testing.T) {
	allowed := map[string]string{"apps": "management"}
	on := func(string) string { return "" }
	for _, c := range []struct {
		name, pod string
		allowed   map[string]string
		off       func(string) string
		has       string // the changed pod; "" if it stays
		refused   string
		warns     string
	}{
		{"changed", pod, allowed, on, `"resources.workload.openshift.io/a":"{\"cpushares\":409}"`, "", ""},
		{"off", pod, allowed, func(string) string { return "n1 lacks it" }, `modifications because n1 lacks it`, "", "n1 lacks it"},
		{"not allowed", pod, map[string]string{}, on, `"workload.openshift.io/warning"`, "", "is not annotated"},
		{"another type allowed", pod, map[string]string{"apps": "infra"}, on, "", "does not allow the workload type management", ""},
		{"another effect", strings.Replace(pod, "Preferred", "Required", 1), allowed, on, "", `only "PreferredDuringScheduling"`, ""},
		{"no object as effect", strings.Replace(pod, `{\"effect\":\"PreferredDuringScheduling\"}`, "yes", 1), allowed, on, "", "not an object", ""},
		{"guaranteed", strings.Replace(pod, `"requests":`, `"limits":{"cpu":"400m","memory":"1Gi"},"requests":`, 1), allowed, on, `"workload.openshift.io/warning"`, "", "guaranteed"},
		{"its class would change", strings.Replace(pod, `,"memory":"1Gi"`, "", 1), allowed, on, `"workload.openshift.io/warning"`, "", "from Burstable to BestEffort"},
		{"it chooses its CPUs", strings.Replace(pod, `"annotations":{`, `"annotations":{"resources.workload.openshift.io/a":"{\"CPUset\":\"0-63\"}",`, 1), allowed, on, `"{\"cpushares\":409}"`, "", "may not choose its CPUs"},
		{"two workloads", strings.Replace(pod, `"annotations":{`, `"annotations":{"target.workload.openshift.io/infra":"{}",`, 1), allowed, on, "", "more than one", ""},
		{"resources of the pod", strings.Replace(pod, `"spec":{`, `"spec":{"resources":{"requests":{"cpu":"1"}},`, 1), allowed, on, `"workload.openshift.io/warning"`, "", "resources of the pod as a whole"},
	} {
		out, response := judgePod([]byte(c.pod), c.allowed, c.off)
		if !strings.Contains(string(out), c.has) || (out == nil) != (c.has == "") {
			t.Errorf("%s: the pod is %s", c.name, out)
		}
		refused := ""
		if !response.Allowed {
			refused = response.Result.Message
		}
		if !strings.Contains(refused, c.refused) || (refused == "") != (c.refused == "") {
			t.Errorf("%s: refused: %s", c.name, refused)
		}
		if w := strings.Join(response.Warnings, "\n"); !strings.Contains(w, c.warns) || (w == "") != (c.warns == "") {
			t.Errorf("%s: warnings: %s", c.name, w)
		}
	}
}

// TestCensus: the answers follow the nodes.
func TestCensus(t *testing.T) {
	c := countOf(nil)
	for _, step := range []struct {
		do    func()
		lacks string // a part of why management is off; "": it is on
	}{
		{func() {}, "no nodes"},
		{func() { n := nodeWith("a", "management"); c.keep(&n) }, ""},
		{func() { n := nodeWith("b"); c.keep(&n) }, "do not report management.workload.openshift.io/cores: b"},
		{func() { n := nodeWith("b"); n.Labels = map[string]string{"a": "b"}; c.keep(&n) }, ": b"},
		{func() { n := nodeWith("b", "infra", "management"); c.keep(&n) }, ""},
		{func() { n := nodeWith("b", "infra"); c.keep(&n) }, ": b"},
		{func() { n := nodeWith("b"); typed(c.forget)(toolscache.DeletedFinalStateUnknown{Obj: &n}) }, ""},
		{func() { n := nodeWith("a"); c.forget(&n) }, "no nodes"},
	} {
		step.do()
		for range 2 { // the second answer is one that is kept
			if why := c.lacking("management"); !strings.Contains(why, step.lacks) || (why == "") != (step.lacks == "") {
				t.Errorf("%q, want %q", why, step.lacks)
			}
		}
	}
	for i := range 10 * maxAnswers {
		c.lacking(fmt.Sprint(i))
	}
	if len(c.answers) > maxAnswers {
		t.Errorf("%d answers are kept", len(c.answers))
	}
}

// BenchmarkPod is the whole judgement of a pod in a cluster of 5,000 nodes, of which one lacks the workload or none.
func BenchmarkPod(b *testing.B) {
	var nodes []corev1.Node
	for i := range 5000 {
		nodes = append(nodes, nodeWith(fmt.Sprint(i), "management"))
	}
	for name, nodes := range map[string][]corev1.Node{"on": nodes, "off": append(nodes, nodeWith("a"))} {
		all := countOf(nodes)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if out, _ := judgePod([]byte(pod), map[string]string{"apps": "management"}, all.lacking); out == nil {
					b.Fatal("the pod is not changed")
				}
			}
		})
	}
}
