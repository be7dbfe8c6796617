package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/kube"
	"machine-pivot/internal/cluster/node"
)

// drainOf returns a function that drains the node n1 at an API server, by a clock.
func drainOf(t *testing.T, url string, now func() time.Time) func() error {
	t.Helper()
	client, err := kube.New(&rest.Config{Host: url})
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	d := &kube.Drainer{Cluster: &kube.Cluster{Name: "n1", API: client, Now: now}, Log: log,
		Policy: kube.DrainPolicy{EmptyDir: kube.Evict, Unmanaged: kube.Evict, Finished: kube.Evict}}
	return func() error { return d.Drain(t.Context(), node.Node{Name: "n1", UID: "n", Unschedulable: true}) }
}

// TestClockOfTheNode: for how long a pod of a dead kubelet is waited for does not depend on the node's clock.
func TestClockOfTheNode(t *testing.T) {
	for name, skew := range map[string]time.Duration{"right": 0, "behind": -2 * time.Hour, "ahead": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			cluster := time.Now()
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}}, Spec: corev1.PodSpec{NodeName: "n1"}}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var answer any = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
				switch {
				case r.URL.Path == "/api/v1/nodes/n1": // its kubelet is dead
					answer = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}, Spec: corev1.NodeSpec{Unschedulable: true}}
				case r.URL.Path == "/api/v1/pods":
					answer = corev1.PodList{Items: []corev1.Pod{pod}}
				case r.Method == http.MethodPost && pod.DeletionTimestamp == nil:
					deleted := metav1.NewTime(cluster.Add(30 * time.Second))
					pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &deleted, new(int64(30))
				}
				_ = json.NewEncoder(w).Encode(answer)
			}))
			defer s.Close()
			drains := drainOf(t, s.URL, func() time.Time { return cluster.Add(skew) })
			for _, after := range []time.Duration{0, time.Second, 4 * time.Minute} {
				cluster = cluster.Add(after)
				if err := drains(); err == nil || !strings.Contains(err.Error(), "a/p: ") {
					t.Errorf("%s after its deletion: %v", after, err)
				}
			}
			cluster = cluster.Add(2 * time.Minute)
			if err := drains(); err != nil {
				t.Errorf("six minutes after its deletion: %v", err)
			}
		})
	}
}

// TestBudgetOfTheLost: a budget does not keep the pod of a dead kubelet from being left, which does not serve any more. It
// keeps one that serves, and one of a kubelet that is Ready.
func TestBudgetOfTheLost(t *testing.T) {
	for name, c := range map[string]struct{ node, pod, left bool }{
		"neither serves": {false, false, true}, "the pod serves": {false, true, false}, "the node serves": {true, false, false}, "both serve": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			now, status := time.Now(), map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status[c.pod]}}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var answer any = map[string]any{"items": []any{}}
				switch {
				case r.URL.Path == "/api/v1/nodes/n1":
					answer = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}, Spec: corev1.NodeSpec{Unschedulable: true},
						Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status[c.node]}}}}
				case r.URL.Path == "/api/v1/pods":
					answer = corev1.PodList{Items: []corev1.Pod{pod}}
				case r.Method == http.MethodPost:
					w.WriteHeader(http.StatusTooManyRequests)
					answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 429, Reason: metav1.StatusReasonTooManyRequests,
						Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "needs 1"}}}}
				}
				_ = json.NewEncoder(w).Encode(answer)
			}))
			defer s.Close()
			drains := drainOf(t, s.URL, func() time.Time { return now })
			for _, after := range []time.Duration{0, 4 * time.Minute} {
				now = now.Add(after)
				if err := drains(); err == nil || !strings.Contains(err.Error(), "a/p: ") {
					t.Errorf("%s later: %v", after, err)
				}
			}
			now = now.Add(time.Minute)
			if err := drains(); (err == nil) != c.left {
				t.Errorf("five minutes later: %v", err)
			}
		})
	}
}
