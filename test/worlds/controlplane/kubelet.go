package controlplane

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"machine-pivot/test/worlds/testenv"
)

// Kubelet stands in for the kubelet of a node. With its credentials, it registers the node, reports each pod of the
// node as running and ready, and removes pods that are to end.
type Kubelet struct {
	node   string
	client kubernetes.Interface
	holds  atomic.Bool
	again  chan struct{} // look at all pods again
}

// Kubelet registers a node and starts the stand-in for its kubelet, until the end of the test.
func (c *ControlPlane) Kubelet(t testenv.T, node string) *Kubelet {
	t.Helper()
	k := &Kubelet{node: node, client: c.Client(c.NodeUser(node)), again: make(chan struct{}, 1)}
	if err := k.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return k
}

// Hold makes pods that are to end stay, or lets them end: containers that do not stop, or volumes that
// cannot be unmounted.
func (k *Kubelet) Hold(hold bool) {
	k.holds.Store(hold)
	select {
	case k.again <- struct{}{}:
	default:
	}
}

func (k *Kubelet) register(ctx context.Context) error {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.node, Labels: map[string]string{"kubernetes.io/hostname": k.node}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err := k.client.CoreV1().Nodes().Create(ctx, &node, metav1.CreateOptions{})
	return err
}

// run looks at the pods and at their changes. Whatever fails is tried again: the API server may be
// stopped.
func (k *Kubelet) run(ctx context.Context) {
	for ctx.Err() == nil {
		k.look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// look looks at all pods, and at changes until the watch ends.
func (k *Kubelet) look(ctx context.Context) {
	mine := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", k.node).String()}
	pods, err := k.client.CoreV1().Pods("").List(ctx, mine)
	if err != nil {
		return
	}
	for i := range pods.Items {
		if k.care(ctx, &pods.Items[i]) != nil {
			return
		}
	}
	mine.ResourceVersion = pods.ResourceVersion
	changes, err := k.client.CoreV1().Pods("").Watch(ctx, mine)
	if err != nil {
		return
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.again:
			return
		case change, open := <-changes.ResultChan():
			pod, ok := change.Object.(*corev1.Pod)
			if !open || !ok || k.care(ctx, pod) != nil {
				return
			}
		}
	}
}

// care does for a pod what is due. Mirror pods belong to static pods, which run already.
func (k *Kubelet) care(ctx context.Context, pod *corev1.Pod) error {
	pods := k.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil && k.holds.Load():
		return nil
	case pod.DeletionTimestamp != nil:
		now := int64(0)
		err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone already
		}
		return err
	case pod.Status.Phase == corev1.PodPending:
		runs := pod.DeepCopy()
		runs.Status.Phase = corev1.PodRunning
		runs.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_, err := pods.UpdateStatus(ctx, runs, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // the next change says more
		}
		return err
	}
	return nil
}
