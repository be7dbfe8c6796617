package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/kube"
	"machine-pivot/internal/cluster/node"
)

const (
	management = "management.workload.openshift.io/cores"
	other      = "other.workload.openshift.io/cores"
)

// hostWorkloads stands in for pivot on the host.
type hostWorkloads struct {
	sync.Mutex
	has hostpivot.Workloads
}

// Workloads implements node.WorkloadsRunner.
func (h *hostWorkloads) Workloads(context.Context) (hostpivot.Workloads, error) {
	h.Lock()
	defer h.Unlock()
	return h.has, nil
}

// set changes what the host has, and the node's MachineConfig, with which it is asked for again.
func (h *hostWorkloads) set(w world, has hostpivot.Workloads, config string) {
	w.Helper()
	h.Lock()
	h.has = has
	h.Unlock()
	w.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.CurrentConfig, config))
}

// patch changes n1.
func (w world) patch(body string, sub ...string) {
	w.Helper()
	if _, err := w.client.CoreV1().Nodes().Patch(w.Context(), "n1", types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...); err != nil {
		w.Fatal(err)
	}
}

// workloads waits until n1 has amounts of the two resources; "" means none.
func (w world) workloads(inManagement, inOther string) {
	w.Helper()
	w.eventually(fmt.Sprintf("the resources %q and %q", inManagement, inOther), func() error {
		n, err := w.client.CoreV1().Nodes().Get(w.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
			if got := amount(list, management) + " " + amount(list, other); got != inManagement+" "+inOther {
				return errors.New("they are " + got)
			}
			if amount(list, "cpu") != "4" || amount(list, "example.org/gpu") != "2" {
				return fmt.Errorf("other resources have changed: %v", list)
			}
		}
		return nil
	})
}

func amount(list corev1.ResourceList, name corev1.ResourceName) string {
	q, ok := list[name]
	if !ok {
		return ""
	}
	return q.String()
}

// TestCapacity keeps the resources of workloads in the capacity of a node, at a real API server.
func TestCapacity(t *testing.T) {
	w := newWorld(t)
	const kubelet = `{"status":{"capacity":{"cpu":"4","example.org/gpu":"2"},"allocatable":{"cpu":"4","example.org/gpu":"2"}}}`
	w.patch(kubelet, "status")
	host := &hostWorkloads{}
	host.set(w, hostpivot.Workloads{Types: []string{"management", "other"}}, "a"+w.T.Name())
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	log := logrus.New()
	log.SetOutput(io.Discard)
	nodes := make(chan node.Resources)
	cluster := &kube.Cluster{Name: "n1", API: w.API, Now: time.Now, Capacity: func(n node.Resources) {
		select {
		case nodes <- n:
		case <-ctx.Done():
		}
	}}
	keeper := &node.Keeper{Cluster: cluster, Runner: host, Now: hurried(), Log: log, Metrics: &node.Metrics{}, Events: &node.Events{Cluster: cluster, Now: time.Now}}
	go keeper.Run(ctx, nodes)
	go cluster.Watch(ctx, func() {})

	w.workloads("4k", "4k")
	w.patch(`{"status":{"capacity":{"`+management+`":"0"},"allocatable":{"`+management+`":"0"}}}`, "status")
	w.workloads("4k", "4k")
	w.patch(`{"status":{"capacity":{"`+management+`":null,"`+other+`":"0"},"allocatable":{"`+management+`":null}}}`, "status")
	w.workloads("4k", "4k")
	w.pods()

	host.set(w, hostpivot.Workloads{Problem: "cannot use the file of " + w.T.Name()}, "b"+w.T.Name())
	w.eventually("the event about a bad file", func() error { return w.hasEvent(api.EventWorkloadsUnknown, "cannot use the file of "+w.T.Name()) })
	w.workloads("4k", "4k")
	if n, err := cluster.Node(ctx); err != nil {
		w.Error(err)
	} else if _, err := cluster.Patch(ctx, n, node.Patch{Unschedulable: new(false)}); err != nil {
		w.Errorf("the rest of the agent: %v", err)
	}

	host.set(w, hostpivot.Workloads{Types: []string{"other"}}, "c"+w.T.Name())
	w.workloads("", "4k")
	host.set(w, hostpivot.Workloads{}, "d"+w.T.Name())
	w.workloads("", "")
	if n, err := cluster.Node(ctx); err != nil || n.Annotations[api.Advertised] != "" {
		w.Errorf("the node is %+v, %v", n, err)
	}
	w.patch(`{"status":{"capacity":{"`+management+`":"4k"},"allocatable":{"`+management+`":"4k"}}}`, "status") // kubelet's own
	host.set(w, hostpivot.Workloads{Types: []string{"other"}}, "e"+w.T.Name())
	w.workloads("4k", "4k")
	host.set(w, hostpivot.Workloads{}, "f"+w.T.Name())
	w.workloads("4k", "")
	w.patch(`{"status":{"capacity":{"`+management+`":null},"allocatable":{"`+management+`":null}}}`, "status")
}

// hurried returns a clock on which the pauses of a Keeper are over as soon as the node has changed again.
func hurried() func() time.Time {
	start := time.Now()
	return func() time.Time { return start.Add(1e6 * time.Since(start)) }
}

// pods requires that the API server accepts pods that request the resource, with a limit that is equal.
func (w world) pods() {
	w.Helper()
	create := func(request, limit string) error {
		cores := func(amount string) corev1.ResourceList {
			return corev1.ResourceList{management: resource.MustParse(amount)}
		}
		_, err := w.client.CoreV1().Pods("default").Create(w.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "pinned-"},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "c", Resources: corev1.ResourceRequirements{
				Requests: cores(request), Limits: cores(limit)}}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := create("400", "400"); err != nil {
		w.Errorf("a pod that requests the resource: %v", err)
	}
	if err := create("400", "500"); !apierrors.IsInvalid(err) {
		w.Errorf("a limit that is not the request: %v", err)
	}
}

// hasEvent returns an error unless there is an event about n1.
func (w world) hasEvent(reason, message string) error {
	events, err := w.client.CoreV1().Events("default").List(w.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=n1"})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		if e.Reason == reason && strings.Contains(e.Message, message) {
			return nil
		}
	}
	return fmt.Errorf("there are %d others", len(events.Items))
}
