package render_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/render"
	"machine-pivot/test/tools/attack"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/fleet"
)

// Names of rendered MachineConfigs.
const (
	ofWorker = "rendered-worker-0123456789abcdef0123456789abcdef"
	ofInfra  = "rendered-infra-0123456789abcdef0123456789abcdef"
	newer    = "rendered-worker-fedcba9876543210fedcba9876543210"
)

// access is a control plane with two pools, a node of each, and the controller.
type access struct{ *world }

func newAccess(t *testing.T) access {
	t.Helper()
	w := access{newWorld(t)}
	w.plane.Deploy("../../../deploy/host")
	w.plane.ApplyFile("../../../deploy/fleet/policies.yaml")
	for _, pool := range []string{"worker", "infra"} {
		w.create("machineconfiguration.openshift.io/v1", "MachineConfigPool", pool, nil, map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"node-role.kubernetes.io/" + pool: ""}}})
	}
	for _, name := range []string{ofWorker, ofInfra, "50-mine"} {
		w.config(name)
	}
	w.create("v1", "Node", "n1", map[string]any{"node-role.kubernetes.io/worker": ""}, nil)
	w.create("v1", "Node", "n2", map[string]any{"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/infra": ""}, nil)
	w.controller(t, render.Options{})
	return w
}

func (w access) create(version, kind, name string, labels, spec map[string]any) {
	o := map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "labels": labels}}
	if spec != nil {
		o["spec"] = spec
	}
	w.plane.Apply(o)
}

func (w access) config(name string) {
	w.create("machineconfiguration.openshift.io/v1", "MachineConfig", name, nil, map[string]any{})
}

// as returns a client with credentials.
func (w access) as(c *rest.Config) client.Client {
	w.Helper()
	made, err := client.New(c, client.Options{Scheme: controlplane.Scheme(w.T)})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// reads waits until a node may read a MachineConfig.
func (w access) reads(node client.Client, name string) {
	w.Helper()
	controlplane.Eventually(w.T, "the node reads "+name, func(ctx context.Context) bool {
		return node.Get(ctx, client.ObjectKey{Name: name}, &api.MachineConfig{}) == nil
	})
}

// refused waits until a node may not read MachineConfigs, nor list any.
func (w access) refused(node client.Client, names ...string) {
	w.Helper()
	for _, name := range names {
		controlplane.Eventually(w.T, "the node may not read "+name, func(ctx context.Context) bool {
			return apierrors.IsForbidden(node.Get(ctx, client.ObjectKey{Name: name}, &api.MachineConfig{}))
		})
	}
	if err := node.List(w.Context(), &api.MachineConfigList{}); !apierrors.IsForbidden(err) {
		w.Errorf("it lists MachineConfigs: %v", err)
	}
}

// TestReaders: a node reads what was rendered for its pool, and nothing else, whatever it says of itself.
func TestReaders(t *testing.T) {
	w := newAccess(t)
	n1, n2 := w.as(w.plane.NodeUser("n1")), w.as(w.plane.NodeUser("n2"))
	w.reads(n1, ofWorker)
	w.reads(n2, ofInfra)
	w.refused(n1, ofInfra, "50-mine", newer)
	w.refused(n2, ofWorker)
	lie := []byte(`{"metadata":{"annotations":{"machineconfiguration.openshift.io/desiredConfig":"` + ofInfra + `","machineconfiguration.openshift.io/currentConfig":"` + ofInfra + `"},"labels":{"a":"b"}}}`)
	node := func(name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if err := n1.Patch(t.Context(), node("n1"), client.RawPatch(types.MergePatchType, lie)); err != nil {
		t.Fatal(err)
	}
	w.config(newer) // what is rendered later is read as soon as it is there
	w.reads(n1, newer)
	w.refused(n1, ofInfra)
	if err := w.admin.Patch(t.Context(), node("n1"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/infra":""}}}`))); err != nil {
		t.Fatal(err)
	}
	w.reads(n1, ofInfra) // in another pool
	w.refused(n1, newer)
	if err := w.admin.Delete(t.Context(), &api.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: ofInfra}}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, "a pool without a rendered MachineConfig has a role that names none", func(ctx context.Context) bool {
		role := &rbacv1.ClusterRole{}
		return w.admin.Get(ctx, client.ObjectKey{Name: "machine-pivot:pool:infra"}, role) == nil && slices.Equal(role.Rules[0].ResourceNames, []string{"rendered-infra-"})
	})
	w.refused(n1, ofInfra, "50-mine")
}

// TestNothingElse: the right to write roles and bindings gives the controllers no other right.
func TestNothingElse(t *testing.T) {
	w := newAccess(t)
	account := w.as(w.plane.User(fleet.Account, "system:serviceaccounts"))
	rule := rbacv1.PolicyRule{APIGroups: []string{"machineconfiguration.openshift.io"}, Resources: []string{"machineconfigs"}, Verbs: []string{"get"}, ResourceNames: []string{ofWorker}}
	role := func(name string, change func(*rbacv1.PolicyRule)) client.Object {
		r := rule
		change(&r)
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{r}}
	}
	binding := func(name, to string, subject rbacv1.Subject) client.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: to}, Subjects: []rbacv1.Subject{subject}}
	}
	const mine = "machine-pivot:pool:mine"
	const worker = "machine-pivot:pool:worker"
	node := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "system:node:n1"}
	controlplane.Eventually(t, "its own role is written", func(ctx context.Context) bool {
		return account.Create(ctx, role(mine, func(*rbacv1.PolicyRule) {}), client.DryRunAll) == nil && w.admin.Get(ctx, client.ObjectKey{Name: worker}, &rbacv1.ClusterRole{}) == nil
	})
	controlplane.Eventually(t, "the policy is in force", func(ctx context.Context) bool {
		return apierrors.IsForbidden(account.Create(ctx, role("mine", func(*rbacv1.PolicyRule) {}), client.DryRunAll))
	})
	for what, o := range map[string]client.Object{
		"another name":       role("mine", func(*rbacv1.PolicyRule) {}),
		"all MachineConfigs": role(mine, func(r *rbacv1.PolicyRule) { r.ResourceNames = nil }),
		"those of users":     role(mine, func(r *rbacv1.PolicyRule) { r.ResourceNames = []string{"50-mine"} }),
		"to list":            role(mine, func(r *rbacv1.PolicyRule) { r.Verbs = []string{"get", "list"} }),
		"nodes, too": role(mine, func(r *rbacv1.PolicyRule) {
			r.APIGroups, r.Resources = append(r.APIGroups, ""), append(r.Resources, "nodes")
		}),
		"for all nodes":     binding(worker, worker, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}),
		"for a user":        binding(worker, worker, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "anna"}),
		"for a pod":         binding(worker, worker, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: "default"}),
		"of another role":   binding(worker, "pivot-fleet-readers", node),
		"with another name": binding("mine", worker, node),
	} {
		if err := account.Create(t.Context(), o, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := account.Patch(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}},
		client.RawPatch(types.MergePatchType, []byte(`{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"system:node:n1"}]}`))); !apierrors.IsForbidden(err) {
		t.Errorf("cluster-admin: %v", err)
	}
}

// TestAttacks are attempts of a node to read the MachineConfigs of another pool by the names, which it knows.
func TestAttacks(t *testing.T) {
	w := newAccess(t)
	n1 := w.as(w.plane.NodeUser("n1"))
	w.reads(n1, ofWorker)
	accepted := 0
	for n := range attack.Attempts {
		random := rand.New(rand.NewPCG(uint64(n), 47))
		what, err := w.attempt(random)
		if err == nil {
			accepted++
		}
		if !apierrors.IsForbidden(err) {
			t.Errorf("attempt %d: %s: %v", n, what, err)
		}
	}
	t.Logf("attacked MachineConfigs of another pool: %d attempts, %d accepted", attack.Attempts, accepted)
	w.reads(n1, ofWorker)
}

// attempt makes one attempt.
func (w access) attempt(random *rand.Rand) (what string, err error) {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	user := w.plane.NodeUser("n1")
	if random.IntN(4) == 0 {
		user.Impersonate = rest.ImpersonationConfig{UserName: pick("admin", "system:node:n2", fleet.Account), Groups: []string{pick("system:masters", "system:nodes")}}
	}
	c, err := kubernetes.NewForConfig(user)
	if err != nil {
		w.Fatal(err)
	}
	name := pick(ofInfra, ofInfra, ofInfra, "50-mine")
	const configs, rbac = "/apis/machineconfiguration.openshift.io/v1/machineconfigs", "/apis/rbac.authorization.k8s.io/v1/"
	request := c.RESTClient().Get()
	switch random.IntN(8) {
	case 0, 1, 2:
		what = configs + pick("/", "//", "/./") + name + pick("", "?resourceVersion=0", "?pretty=true", "/status", "/scale", "/finalizers")
	case 3:
		what = configs + "?fieldSelector=metadata.name%3D" + name + pick("", "&watch=true&timeoutSeconds=1", "&limit=1", "&resourceVersion=0&resourceVersionMatch=NotOlderThan")
	case 4:
		what = pick("/apis/machineconfiguration.openshift.io/v1/watch/machineconfigs/"+name, rbac+"clusterroles/machine-pivot:pool:infra", rbac+"clusterrolebindings")
	case 5:
		request, what = c.RESTClient().Patch(types.MergePatchType).Body([]byte(`{"metadata":{"annotations":{"a":"b"}}}`)), pick(configs+"/"+name, rbac+"clusterroles/machine-pivot:pool:worker")
	case 6:
		request, what = c.RESTClient().Post().Body([]byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"machine-pivot:pool:mine"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"machine-pivot:pool:infra"},`+
			`"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"system:node:n1"}]}`)), rbac+"clusterrolebindings"
	case 7:
		request, what = c.RESTClient().Patch(types.MergePatchType).Body([]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/infra":""}}}`)), "/api/v1/nodes/n1"
	}
	accept := pick("application/json", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml")
	return what + " as " + user.Impersonate.UserName, request.RequestURI(what).SetHeader("Accept", accept).MaxRetries(0).Do(w.Context()).Error()
}
