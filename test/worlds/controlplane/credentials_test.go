package controlplane_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"machine-pivot/test/worlds/controlplane"
)

// TestNodeCredentials shows what a program may do with the credentials of a node's own kubelet, and so
// what needs a role of its own.
func TestNodeCredentials(t *testing.T) {
	c := controlplane.Start(t)
	admin := c.Client(c.Admin())
	for _, node := range []string{"n1", "n2"} {
		c.Kubelet(t, node)
		for _, name := range []string{"kept-", "evicted-", "deleted-"} {
			if _, err := admin.CoreV1().Pods("default").Create(t.Context(), pod(name+node, node), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	node := c.Client(c.NodeUser("n1"))
	for _, k := range []struct {
		does    string
		call    func(context.Context, kubernetes.Interface) error
		refused string // part of the error; "" if it is allowed
	}{
		{"reads its node", getNode("n1"), ""},
		{"watches its node", watchNodes("metadata.name=n1"), ""},
		{"reads another node", getNode("n2"), "forbidden"},
		{"lists all nodes", listNodes, "forbidden"},
		{"annotates its node", patchNode("n1", `{"metadata": {"annotations": {"example.org/a": "b"}}}`), ""},
		{"labels its node", patchNode("n1", `{"metadata": {"labels": {"example.org/a": "b"}}}`), ""},
		{"labels its node below the prefix that isolates nodes", patchNode("n1", `{"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}}`), "is not allowed to modify labels"},
		{"cordons its node", patchNode("n1", `{"spec": {"unschedulable": true}}`), ""},
		{"taints its node", patchNode("n1", `{"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}`), "is not allowed to modify taints"},
		{"says how much its node has of a resource", patchNode("n1", `{"status": {"capacity": {"management.workload.openshift.io/cores": "4000"}}}`, "status"), ""},
		{"annotates another node", patchNode("n2", `{"metadata": {"annotations": {"example.org/a": "b"}}}`), "is not allowed to modify node"},
		{"cordons another node", patchNode("n2", `{"spec": {"unschedulable": true}}`), "is not allowed to modify node"},
		{"deletes its node", deleteNode("n1"), "forbidden"},
		{"writes an event about its node", createEvent, ""},
		{"lists the pods of its node", listPods("spec.nodeName=n1"), ""},
		{"watches the pods of its node", watchPods("spec.nodeName=n1"), ""},
		{"lists the pods of another node", listPods("spec.nodeName=n2"), "forbidden"},
		{"lists all pods", listPods(""), "forbidden"},
		{"tries whether a pod of its node can be evicted", evictPod("kept-n1", metav1.DryRunAll), ""},
		{"evicts a pod of its node", evictPod("evicted-n1"), ""},
		{"deletes a pod of its node", deletePod("deleted-n1"), ""},
		{"evicts a pod of another node", evictPod("evicted-n2"), "forbidden"},
		{"deletes a pod of another node", deletePod("deleted-n2"), "forbidden"},
		{"lists budgets", listBudgets, "forbidden"},
		{"reads a budget", getBudget, "forbidden"},
		{"deletes a budget", deleteBudget, "forbidden"},
		{"lists secrets", listSecrets, "forbidden"},
		{"reads objects of a kind that is not Kubernetes's own", getWidgets, "forbidden"},
		{"gives itself rights", bindRole("mine"), "forbidden"},
	} {
		t.Run(k.does, func(t *testing.T) {
			err := k.call(t.Context(), node)
			switch {
			case k.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case k.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), k.refused)):
				t.Errorf("not refused with %q: %v", k.refused, err)
			}
		})
	}
	t.Run("after the role of deploy/", func(t *testing.T) {
		c.ApplyFile("../../../deploy/host/rbac.yaml")
		withRole(t, node)
	})
}

// withRole checks that the role of deploy/ is enough to list budgets, and gives nothing else of what nodes
// and pods need.
func withRole(t *testing.T, node kubernetes.Interface) {
	controlplane.Eventually(t, "the role is known", func(ctx context.Context) bool { return listBudgets(ctx, node) == nil })
	for does, call := range map[string]call{
		"lists all nodes": listNodes, "lists all pods": listPods(""), "lists secrets": listSecrets, "gives itself rights": bindRole("mine"),
		"reads a budget": getBudget, "deletes a budget": deleteBudget, "changes a budget": patchBudget(), "changes what a budget allows": patchBudget("status"),
		"evicts a pod of another node": evictPod("evicted-n2"), "deletes a pod of another node": deletePod("deleted-n2"),
	} {
		if err := call(t.Context(), node); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", does, err)
		}
	}
}

// call is a request with the client of a node.
type call = func(context.Context, kubernetes.Interface) error

func getNode(name string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err
	}
}

func listNodes(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}

func watchNodes(selector string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		w, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: selector})
		if err == nil {
			w.Stop()
		}
		return err
	}
}

func patchNode(name, patch string, subresources ...string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func deleteNode(name string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		return client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	}
}

func createEvent(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "n1.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n1"},
		Reason:         "Test", Type: corev1.EventTypeNormal,
	}, metav1.CreateOptions{})
	return err
}

func listPods(selector string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: selector})
		return err
	}
}

func watchPods(selector string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		w, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: selector})
		if err == nil {
			w.Stop()
		}
		return err
	}
}

func evictPod(name string, dryRun ...string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		return client.CoreV1().Pods("default").EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
		})
	}
}

func deletePod(name string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		return client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{})
	}
}

func listBudgets(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
	return err
}

func getBudget(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "b", metav1.GetOptions{})
	return err
}

func deleteBudget(ctx context.Context, client kubernetes.Interface) error {
	return client.PolicyV1().PodDisruptionBudgets("default").Delete(ctx, "b", metav1.DeleteOptions{})
}

func patchBudget(subresources ...string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.PolicyV1().PodDisruptionBudgets("default").Patch(ctx, "b", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func listSecrets(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	return err
}

func getWidgets(ctx context.Context, client kubernetes.Interface) error {
	return client.CoreV1().RESTClient().Get().AbsPath("/apis/example.org/v1/widgets").Do(ctx).Error()
}

// bindRole gives the role to all nodes.
func bindRole(role string) call {
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:nodes"}},
		}, metav1.CreateOptions{})
		return err
	}
}
