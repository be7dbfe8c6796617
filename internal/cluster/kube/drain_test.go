package kube_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/kube"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/test/worlds/controlplane"
)

// TestDrain tries each rule of docs/cluster-drain.md at a real API server, with a node's own credentials. Each
// case has a node and a namespace of its own.
func TestDrain(t *testing.T) {
	c := startControlPlane(t)
	for name, try := range map[string]func(w *drainWorld){
		"rules":                  rules,
		"policy":                 policy,
		"exhausted":              exhausted,
		"budgets":                budgetsNamed,
		"unreadable":             unreadableBudgets,
		"rehearsal":              rehearsal,
		"sequential":             sequential,
		"unmanaged-of-a-budget":  unmanagedOfABudget,
		"terminating":            terminating,
		"finalizer":              stuckFinalizer,
		"replaced-pod":           replacedPod,
		"newcomers":              newcomers,
		"dead-kubelet":           deadKubelet,
		"dry-run":                dryRun,
		"own-pods":               ownPods,
		"replaced-node":          replacedNode,
		"uncordoned":             uncordoned,
		"namespace":              terminatingNamespace,
		"pages":                  pages,
		"grace":                  grace,
		"gone-on-the-way":        goneOnTheWay,
		"without-evictions-left": withoutTime,
		"own-pod":                ownPod,
		"forced":                 forced,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDrainWorld(t, c, "node-"+name)
			try(w)
			if len(w.traffic.wrong) > 0 {
				t.Errorf("requests without a time limit: %q", w.traffic.wrong)
			}
		})
	}
}

// rules drains a node with pods of all kinds, and checks which are gone.
func rules(w *drainWorld) {
	w.namespace("others")
	w.Kubelet(w.T, w.name+"-other")
	pods := map[string]struct {
		pod  *corev1.Pod
		goes bool
	}{
		"a pod without a controller":               {w.pod("alone"), true},
		"a pod of a controller":                    {w.pod("managed", controller("ReplicaSet")), true},
		"a mirror pod":                             {w.pod("mirror", annotated(corev1.MirrorPodAnnotationKey, "0")), false},
		"a pod of a DaemonSet that does not exist": {w.pod("daemon", controller("DaemonSet")), false},
		"a pod that a DaemonSet owns and does not control": {w.pod("owned", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "0"}}
		}), true},
		"the agent":                              {w.pod("self"), false},
		"a pod of the agent's name, not its own": {w.pod("self", func(p *corev1.Pod) { p.Namespace = "others" }), true},
		"another pod of the agent's namespace":   {w.pod("self-2"), true},
		"a pod with the critical annotation":     {w.pod("critical", annotated("scheduler.alpha.kubernetes.io/critical-pod", "")), false},
		"a pod of system-node-critical":          {w.pod("node-critical", class("system-node-critical")), false},
		"a pod of system-cluster-critical":       {w.pod("cluster-critical", class("system-cluster-critical")), true},
		"a pod with an emptyDir":                 {w.pod("scratch", emptyDir("")), true},
		"a pod with an emptyDir in memory":       {w.pod("memory", emptyDir(corev1.StorageMediumMemory)), true},
		"a pod that has succeeded":               {w.finish(w.pod("succeeded"), corev1.PodSucceeded), true},
		"a pod that has failed":                  {w.finish(w.pod("failed"), corev1.PodFailed), true},
		"a pod on another node":                  {w.pod("elsewhere", on(w.name+"-other")), false},
	}
	controlplane.Eventually(w, "the pod on another node runs", func(ctx context.Context) bool {
		p := w.get(ctx, pods["a pod on another node"].pod)
		return p != nil && p.Status.Phase == corev1.PodRunning
	})
	if err := w.drain(patient); err != nil {
		w.Fatal(err)
	}
	for name, p := range pods {
		if p.goes && !w.gone(p.pod) || !p.goes && !w.untouched(p.pod) {
			w.Errorf("%s: it must go: %v; it is %+v", name, p.goes, w.get(w.Context(), p.pod))
		}
	}
	for _, r := range w.traffic.take() {
		if method, _, _ := strings.Cut(r, " "); method != http.MethodGet && !strings.HasSuffix(r, "/eviction") {
			w.Errorf("the drain has made the request %s", r)
		}
	}
}

// policy checks each choice: a drain that is stopped evicts nothing, and neither does its rehearsal.
func policy(w *drainWorld) {
	pods := []*corev1.Pod{
		w.pod("managed", controller("ReplicaSet")),
		w.pod("scratch", controller("ReplicaSet"), emptyDir(corev1.StorageMediumMemory)),
		w.pod("alone"),
	}
	finished := w.finish(w.pod("finished", emptyDir("")), corev1.PodSucceeded)
	evict := kube.DrainPolicy{EmptyDir: kube.Evict, Unmanaged: kube.Evict, Finished: kube.Evict}
	for _, k := range []struct {
		with  func(p *kube.DrainPolicy)
		named string
		flag  string
	}{
		{func(p *kube.DrainPolicy) { p.EmptyDir = kube.Stop }, "scratch", "--drain-emptydir"},
		{func(p *kube.DrainPolicy) { p.Unmanaged = kube.Stop }, "alone", "--drain-unmanaged"},
	} {
		w.drainer.Policy = evict
		k.with(&w.drainer.Policy)
		for what, err := range map[string]error{"drain": w.drain(patient), "rehearsal": w.drainer.Rehearse(w.Context())} {
			w.says(err, w.name+"/"+k.named+": ", k.flag)
			if err != nil && (strings.Contains(err.Error(), "managed:") || strings.Contains(err.Error(), "finished")) {
				w.Errorf("the %s names other pods: %v", what, err)
			}
		}
		for _, p := range append(pods, finished) {
			if !w.untouched(p) {
				w.Errorf("%s: %s was evicted", k.flag, p.Name)
			}
		}
	}
	w.drainer.Policy = evict
	w.drainer.Policy.Finished = kube.Leave
	if err := w.drain(patient); err != nil || !w.untouched(finished) {
		w.Errorf("%v; the pod that has ended is %+v", err, w.get(w.Context(), finished))
	}
	for _, p := range pods {
		if !w.gone(p) {
			w.Errorf("%s is still there", p.Name)
		}
	}
}

// exhausted waits for a budget, names it, and continues when it allows an eviction.
func exhausted(w *drainWorld) {
	protected, free := w.pod("protected", app("db")), w.pod("free", app("web"))
	w.Kubelet(w.T, w.name+"-other")
	sick := w.pod("sick", app("db"), on(w.name+"-other"))
	w.budget("db", "db", minAvailable(1), 1)
	if err := w.admin.CoreV1().Pods(w.name).Delete(w.Context(), sick.Name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.allows("db", 0)
	began := time.Now()
	w.says(w.drain(impatient), w.name+"/protected: ", "budget "+w.name+"/db", "of 1 pods it needs 1", "can never")
	if took := time.Since(began); took > patient {
		w.Errorf("it took %s", took)
	}
	if !w.untouched(protected) || !w.gone(free) {
		w.Error("the budget is not obeyed, or a pod without one is still there")
	}
	w.pod("second", app("db"), on(w.name+"-other"))
	w.allows("db", 1)
	if err := w.drain(patient); err != nil || !w.gone(protected) {
		w.Errorf("when the budget allows it: %v", err)
	}
}

// budgetsNamed checks the messages about budgets that allow nothing, for whichever reason.
func budgetsNamed(w *drainWorld) {
	for i := range 2 {
		w.pod(fmt.Sprint("all-", i), app("all"))
	}
	w.budget("all", "all", minAvailable(2), 0)
	w.pod("two-0", app("two"))
	w.budget("two-a", "two", minAvailable(0), 1)
	w.budget("two-b", "two", minAvailable(0), 1)
	w.pod("lost-0", app("lost"), controller("Widget"))
	w.pod("alone-0", app("alone"))
	oneUnavailable := policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1))}
	w.budget("alone", "alone", oneUnavailable, 0)
	w.createBudget("lost", "lost", oneUnavailable) // its controller is of a kind that nobody knows
	controlplane.Eventually(w, "the state of the budget lost cannot be computed", func(ctx context.Context) bool {
		b, err := w.admin.PolicyV1().PodDisruptionBudgets(w.name).Get(ctx, "lost", metav1.GetOptions{})
		return err == nil && len(b.Status.Conditions) > 0 && b.Status.Conditions[0].Reason == policyv1.SyncFailedReason
	})
	few := w.pod("few-0", app("few"))
	unready := w.pod("few-1", app("few"))
	w.budget("few", "few", minAvailable(1), 1)
	now := w.get(w.Context(), unready)
	now.Status.Conditions = nil
	if _, err := w.admin.CoreV1().Pods(w.name).UpdateStatus(w.Context(), now, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.allows("few", 0)
	w.traffic.take()
	err := w.drainer.Rehearse(w.Context())
	lost := 0
	for _, request := range w.traffic.take() {
		if strings.HasSuffix(request, "/lost-0/eviction") {
			lost++
		}
	}
	if lost != 1 { // the API server asks the client to try again after ten seconds
		w.Errorf("the eviction of lost-0 was tried %d times", lost)
	}
	w.says(err,
		fmt.Sprintf("%[1]s/all-0, %[1]s/all-1: protected by the budget %[1]s/all, which can never allow an eviction: of 2 pods it needs 2", w.name),
		fmt.Sprintf("%[1]s/two-0: protected by more than one budget, which the API server does not support: %[1]s/two-a, %[1]s/two-b", w.name),
		fmt.Sprintf("%[1]s/lost-0: protected by the budget %[1]s/lost, which allows no eviction because its state cannot be computed: ", w.name),
		fmt.Sprintf("%[1]s/alone-0: protected by the budget %[1]s/alone, which can never allow an eviction: it counts pods by their controllers", w.name),
		fmt.Sprintf("%[1]s/few-0: protected by the budget %[1]s/few, which allows 0 evictions now: of 2 pods, 1 are healthy, and it needs 1", w.name),
	)
	if err := w.drain(impatient); err == nil || !w.untouched(few) || !w.gone(unready) {
		w.Errorf("%v; the pod that is not ready is %+v", err, w.get(w.Context(), unready))
	}
}

// unreadableBudgets drains with rights that do not include budgets.
func unreadableBudgets(w *drainWorld) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "drain-only"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "drain-only"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drain-only"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "drain-only"}},
	}
	if _, err := w.admin.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.admin.RbacV1().ClusterRoleBindings().Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.pod("protected", app("db"))
	w.budget("db", "db", minAvailable(1), 0)
	w.drainer.Cluster.API = w.client(w.User("drain-only"))
	var err error
	controlplane.Eventually(w, "the role is known", func(ctx context.Context) bool {
		err = w.drainer.Rehearse(ctx)
		return err != nil && !strings.Contains(err.Error(), "forbidden")
	})
	w.says(err, w.name+"/protected: protected by a budget that this agent may not read", "budget db needs 1 healthy pods")
}

// rehearsal names all obstacles at once, and changes nothing.
func rehearsal(w *drainWorld) {
	protected := w.pod("protected", app("db"), controller("ReplicaSet"))
	w.budget("db", "db", minAvailable(1), 0)
	pods := []*corev1.Pod{protected, w.pod("free"), w.pod("scratch", emptyDir(""), controller("ReplicaSet"))}
	stuck := w.pod("stuck", finalizer, controller("ReplicaSet"))
	if err := w.admin.CoreV1().Pods(w.name).Delete(w.Context(), "stuck", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		w.Fatal(err)
	}
	defer w.release(stuck)
	before := w.node()
	w.drainer.Policy.EmptyDir = kube.Stop
	if err := w.drainer.Rehearse(w.Context()); err != nil && strings.Contains(err.Error(), "stuck") {
		w.Errorf("a pod that has just been deleted is an obstacle: %v", err)
	}
	w.drainer.Cluster.Now = func() time.Time { return time.Now().Add(7 * time.Minute) }
	w.says(w.drainer.Rehearse(w.Context()), "protected: protected by the budget "+w.name+"/db", "scratch: ", "stuck: not ended, although the grace period was over more than 5 minutes ago", "a.example/b")
	for _, p := range pods {
		if !w.untouched(p) {
			w.Errorf("%s is touched", p.Name)
		}
	}
	if after := w.node(); after.ResourceVersion != before.ResourceVersion {
		w.Errorf("the node is changed: %+v", after)
	}
}

// release removes the finalizers of a pod.
func (w *drainWorld) release(p *corev1.Pod) {
	w.Helper()
	if _, err := w.admin.CoreV1().Pods(p.Namespace).Patch(context.WithoutCancel(w.Context()), p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		w.Error(err)
	}
}

// sequential drains two pods of a budget that allows one eviction: the second is evicted when the controller has
// replaced the first. The rehearsal has nothing against that.
func sequential(w *drainWorld) {
	w.Kubelet(w.T, w.name+"-other")
	pods := []*corev1.Pod{w.pod("db-0", app("db"), controller("ReplicaSet")), w.pod("db-1", app("db"), controller("ReplicaSet"))}
	w.budget("db", "db", minAvailable(1), 1)
	if err := w.drainer.Rehearse(w.Context()); err != nil {
		w.Errorf("rehearsal: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- w.drain(patient) }()
	controlplane.Eventually(w, "one is evicted", func(context.Context) bool { return w.gone(pods[0]) || w.gone(pods[1]) })
	if w.gone(pods[0]) && w.gone(pods[1]) {
		w.Error("both are evicted at once")
	}
	w.pod("db-2", app("db"), controller("ReplicaSet"), on(w.name+"-other"))
	if err := <-done; err != nil || !w.gone(pods[0]) || !w.gone(pods[1]) {
		w.Error(err)
	}
}

// unmanagedOfABudget: of two pods that nothing replaces, a budget lets only the first go, for ever.
func unmanagedOfABudget(w *drainWorld) {
	w.pod("db-0", app("db"))
	w.pod("db-1", app("db"))
	w.budget("db", "db", minAvailable(1), 1)
	w.says(w.drainer.Rehearse(w.Context()), fmt.Sprintf("%[1]s/db-0, %[1]s/db-1: no controller creates them again, and the budget %[1]s/db allows 1 evictions of 2", w.name))
	w.pod("db-2", app("db"), controller("ReplicaSet"))
	w.allows("db", 2)
	if err := w.drainer.Rehearse(w.Context()); err != nil {
		w.Errorf("a budget that allows both: %v", err)
	}
}

// terminating: a pod that somebody else has deleted is waited for, and not evicted.
func terminating(w *drainWorld) {
	w.kubelet.Hold(true)
	p := w.pod("held")
	if err := w.admin.CoreV1().Pods(w.name).Delete(w.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.traffic.take()
	w.says(w.drain(impatient), w.name+"/held: still ending")
	if n := evictions(w.traffic.take()); n > 0 || w.gone(p) {
		w.Errorf("%d evictions of a pod that ends", n)
	}
	real := w.drainer.Cluster.Now
	w.drainer.Cluster.Now = func() time.Time { return real().Add(2 * time.Hour) }
	w.says(w.drainer.Rehearse(w.Context()), w.name+"/held: not ended, although the grace period was over more than an hour ago: kubelet does not report the end")
	w.drainer.Cluster.Now = real
	w.kubelet.Hold(false)
	if err := w.drain(patient); err != nil || !w.gone(p) {
		w.Error(err)
	}
}

// ownPod: the agent's own pod is left.
func ownPod(w *drainWorld) {
	self, free := w.pod("self"), w.pod("free")
	if err := w.drain(patient); err != nil || !w.untouched(self) || !w.gone(free) {
		w.Error("the wrong pods are gone: ", err)
	}
}

// stuckFinalizer: a pod that does not go is named, with how long it should have been gone.
func stuckFinalizer(w *drainWorld) {
	p := w.pod("stuck", finalizer)
	w.says(w.drain(impatient), w.name+"/stuck: still ending")
	w.traffic.take()
	offset := w.drainer.Cluster.Now
	for late, says := range map[time.Duration]string{2 * time.Minute: "more than a minute ago", 7 * time.Minute: "more than 5 minutes ago", 400 * 24 * time.Hour: "more than a day ago"} {
		w.drainer.Cluster.Now = func() time.Time { return offset().Add(late + 30*time.Second) } // the grace period of a pod
		w.says(w.drain(impatient), w.name+"/stuck: not ended, although the grace period was over "+says+": ", "finalizers a.example/b")
	}
	if n := evictions(w.traffic.take()); n > 0 {
		w.Errorf("it was evicted %d times more", n)
	}
	w.drainer.Cluster.Now = offset
	w.release(p)
	if err := w.drain(patient); err != nil || !w.gone(p) {
		w.Error(err)
	}
}

// replacedPod: between the look at the pods and the eviction, a pod is replaced by another one of its name,
// which is not evicted: it tolerates the cordon.
func replacedPod(w *drainWorld) {
	old := w.pod("set-0")
	var replacement *corev1.Pod
	w.traffic.intercept(func(r *http.Request) {
		if replacement == nil && r.Method == http.MethodPost {
			w.remove(old)
			replacement = w.pod("set-0", tolerant)
		}
	})
	if err := w.drain(patient); err != nil {
		w.Fatal(err)
	}
	if replacement == nil || !w.untouched(replacement) {
		w.Error("another pod was evicted")
	}
	old, replacement = replacement, nil
	if err := w.drainer.Rehearse(w.Context()); err != nil || replacement == nil {
		w.Errorf("it is an obstacle: %v", err)
	}
}

// remove removes a pod at once.
func (w *drainWorld) remove(p *corev1.Pod) {
	w.Helper()
	if err := w.admin.CoreV1().Pods(p.Namespace).Delete(w.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		w.Error(err)
	}
	controlplane.Eventually(w, p.Name+" is gone", func(context.Context) bool { return w.gone(p) })
}

func tolerant(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
}

// newcomers: a pod that comes after the first look is evicted, too, unless it comes back: it is of the same controller, or
// has the same name.
func newcomers(w *drainWorld) {
	first, named := w.pod("first", controller("ReplicaSet")), w.pod("named")
	var late, back, again *corev1.Pod
	var once sync.Once
	w.traffic.intercept(func(r *http.Request) {
		if r.Method == http.MethodPost {
			once.Do(func() {
				late, back = w.pod("late", tolerant), w.pod("back", controller("ReplicaSet"))
				w.remove(named)
				again = w.pod("named")
			})
		}
	})
	if err := w.drain(patient); err != nil {
		w.Fatal(err)
	}
	if !w.gone(first) || !w.gone(late) || !w.untouched(back) || !w.untouched(again) {
		w.Errorf("gone: %v, %v, %v, %v", w.gone(first), w.gone(late), w.gone(back), w.gone(again))
	}
}

// deadKubelet: on a node without a Ready kubelet, deleted pods are waited for as long as it may still report their
// ends, and no longer.
func deadKubelet(w *drainWorld) {
	w.kubelet.Hold(true)
	w.pod("held", controller("ReplicaSet"))
	w.ready(corev1.ConditionUnknown)
	w.says(w.drain(impatient), w.name+"/held: still ending")
	real := w.drainer.Cluster.Now
	w.drainer.Cluster.Now = func() time.Time { return real().Add(4 * time.Minute) }
	w.says(w.drain(impatient), w.name+"/held: not ended")
	w.drainer.Cluster.Now = func() time.Time { return real().Add(6 * time.Minute) }
	if err := w.drainer.Rehearse(w.Context()); err != nil {
		w.Errorf("rehearsal: %v", err)
	}
	if err := w.drain(impatient); err != nil {
		w.Error(err)
	}
	w.ready(corev1.ConditionTrue)
	w.says(w.drain(impatient), w.name+"/held: not ended")
	w.drainer.Cluster.Now = real
	w.kubelet.Hold(false)
}

// ownPods: the product's own pods, with all that is deployed for them, are not in the way of a drain, also if all replicas
// are on one node.
func ownPods(w *drainWorld) {
	w.Deploy("../../../deploy/fleet")
	var pods []*corev1.Pod
	for range 2 {
		const account = "pivot-fleet-controller"
		pods = append(pods, w.pod(fmt.Sprint(account, "-", len(pods)), controller("ReplicaSet"), func(p *corev1.Pod) {
			p.Namespace, p.Labels = "pivot-fleet", map[string]string{"app.kubernetes.io/name": account}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		}))
	}
	if err := w.drain(patient); err != nil || !w.gone(pods[0]) || !w.gone(pods[1]) {
		w.Errorf("%v; %v, %v", err, w.gone(pods[0]), w.gone(pods[1]))
	}
}

// ready sets the condition Ready of the node.
func (w *drainWorld) ready(status corev1.ConditionStatus) {
	w.Helper()
	body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	if _, err := w.admin.CoreV1().Nodes().Patch(w.Context(), w.name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
		w.Fatal(err)
	}
}

// dryRun: a rehearsal is one for webhooks, too, which may move what the pod has before they let it go. That they refuse is no
// obstacle; a real drain asks them for real.
func dryRun(w *drainWorld) {
	fail := admissionv1.Fail
	some := admissionv1.SideEffectClassNoneOnDryRun
	var asked atomic.Int32 // for real
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var r reviewv1.AdmissionReview
		if json.NewDecoder(in.Body).Decode(&r) == nil && (r.Request.DryRun == nil || !*r.Request.DryRun) {
			asked.Add(1)
		}
		r.Response = &reviewv1.AdmissionResponse{UID: r.Request.UID, Result: &metav1.Status{Message: "the broker moves first"}}
		_ = json.NewEncoder(out).Encode(r) // else the API server says so
	}))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c := admissionv1.WebhookClientConfig{URL: new(server.URL), CABundle: authority}
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "evictions.example.com", ClientConfig: c, FailurePolicy: &fail, SideEffects: &some, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: new(int32(1)),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.name}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"pods/eviction"}}}},
	}}}
	hooks := w.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(w.Context(), hook, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	defer func() { _ = hooks.Delete(context.WithoutCancel(w.Context()), w.name, metav1.DeleteOptions{}) }()
	p := w.pod("p", controller("ReplicaSet"))
	controlplane.Eventually(w, "the webhook is known", func(context.Context) bool {
		err := w.drain(impatient)
		return err != nil && strings.Contains(err.Error(), "the broker moves first") || w.gone(p)
	})
	for _, e := range []string{`"NoneOnDryRun"`, `"None"`} {
		patch := []byte(`[{"op":"replace","path":"/webhooks/0/sideEffects","value":` + e + `}]`)
		if _, err := hooks.Patch(w.Context(), w.name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
		asked.Store(0)
		if err := w.drainer.Rehearse(w.Context()); err != nil || w.gone(p) || asked.Load() > 0 {
			w.Errorf("a rehearsal with a webhook of %s: %v; gone: %v; asked %d times for real", e, err, w.gone(p), asked.Load())
		}
	}
}

// replacedNode: nothing is evicted from another node of the same name.
func replacedNode(w *drainWorld) {
	p := w.pod("p")
	n := w.node()
	n.UID = "another"
	if err := w.drainer.Drain(w.Context(), n); !errors.Is(err, node.ErrConflict) || !w.untouched(p) {
		w.Errorf("%v", err)
	}
}

// uncordoned: a drain ends when somebody uncordons the node meanwhile.
func uncordoned(w *drainWorld) {
	p := w.pod("protected", app("db"))
	w.budget("db", "db", minAvailable(1), 0)
	tried := make(chan struct{})
	n := 0
	w.traffic.intercept(func(r *http.Request) {
		if r.Method == http.MethodPost {
			if n++; n == 1 {
				close(tried)
			}
		}
	})
	done := make(chan error, 1)
	go func() { done <- w.drain(patient) }()
	<-tried
	w.cordon(false)
	if err := <-done; !errors.Is(err, node.ErrConflict) || !w.untouched(p) {
		w.Errorf("%v", err)
	}
}

// terminatingNamespace: pods of a namespace that is being deleted cannot be evicted, and end by themselves.
func terminatingNamespace(w *drainWorld) {
	w.namespace("ending")
	p := w.pod("p", func(p *corev1.Pod) { p.Namespace = "ending" })
	if err := w.admin.CoreV1().Namespaces().Delete(w.Context(), "ending", metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	controlplane.Eventually(w, "the namespace is known to end", func(ctx context.Context) bool {
		ns, err := w.admin.CoreV1().Namespaces().Get(ctx, "ending", metav1.GetOptions{})
		return err == nil && ns.Status.Phase == corev1.NamespaceTerminating
	})
	if err := w.drainer.Rehearse(w.Context()); err != nil {
		w.Errorf("rehearsal: %v", err)
	}
	if err := w.drain(impatient); err != nil && !w.gone(p) {
		w.says(err, "ending/p: its namespace is being deleted")
	}
	if !w.gone(p) {
		if err := w.admin.CoreV1().Pods("ending").Delete(w.Context(), "p", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.drain(patient); err != nil || !w.gone(p) {
		w.Error(err)
	}
}

// pages: the API server gives the pods in parts, and none is forgotten.
func pages(w *drainWorld) {
	var pods []*corev1.Pod
	for i := range 7 {
		pods = append(pods, w.pod(fmt.Sprint("p-", i)))
	}
	lists := 0
	w.traffic.intercept(func(r *http.Request) {
		if q := r.URL.Query(); r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods" {
			if lists++; q.Get("limit") == "" || q.Get("fieldSelector") != "spec.nodeName="+w.name {
				w.Errorf("a list without a limit, or of other nodes: %s", r.URL)
			}
			q.Set("limit", "3")
			r.URL.RawQuery = q.Encode()
		}
	})
	w.traffic.take()
	if err := w.drainer.Rehearse(w.Context()); err != nil || lists != 3 || evictions(w.traffic.take()) != 7 {
		w.Errorf("%v, %d lists", err, lists)
	}
	if err := w.drain(patient); err != nil {
		w.Fatal(err)
	}
	for _, p := range pods {
		if !w.gone(p) {
			w.Errorf("%s is still there", p.Name)
		}
	}
}

// grace: a pod ends within its own grace period.
func grace(w *drainWorld) {
	w.kubelet.Hold(true)
	defer w.kubelet.Hold(false)
	p := w.pod("slow", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) })
	w.says(w.drain(impatient), "slow: still ending")
	if now := w.get(w.Context(), p); now == nil || now.DeletionGracePeriodSeconds == nil || *now.DeletionGracePeriodSeconds != 600 {
		w.Errorf("%+v", now)
	}
}

// goneOnTheWay: a pod that ends between the look and the eviction is no obstacle.
func goneOnTheWay(w *drainWorld) {
	p := w.pod("p")
	w.traffic.intercept(func(r *http.Request) {
		if r.Method == http.MethodPost {
			w.remove(p)
		}
	})
	if err := w.drainer.Rehearse(w.Context()); err != nil {
		w.Error(err)
	}
}

// withoutTime: pods that were not tried because the time was up are named as such.
func withoutTime(w *drainWorld) {
	p := w.pod("p")
	w.says(w.drain(-time.Second), w.name+"/p: not tried, because the time was up")
	if !w.untouched(p) {
		w.Error("it was evicted")
	}
}
