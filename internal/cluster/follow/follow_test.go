package follow_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/follow"
	"machine-pivot/test/worlds/controlplane"
)

// TestFollow: one object gives nodes the image of a tag, at a real API server and with the rights of deploy/fleet.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	for _, of := range []struct {
		name string
		run  func(*world)
	}{
		{"one object is a rollout", (*world).oneObject},
		{"a tag is resolved once for a rollout", (*world).onceForARollout},
		{"a registry that is away, and a tag that is none", (*world).away},
		{"an image for another architecture", (*world).architecture},
		{"two objects that select one node", (*world).twoObjects},
		{"a pool of somebody else", (*world).foreignPool},
		{"wrong objects", (*world).wrong},
		{"only who may write MachineConfigs", (*world).rights},
		{"the end", (*world).ended},
	} {
		t.Run(of.name, func(t *testing.T) {
			outer := w.T
			w.T = t
			defer func() { w.T = outer }()
			of.run(w)
		})
	}
	w.nowhere("cHVsbGVyOnB1bGwtc2VjcmV0", "pull-secret\"", "/proc/self/fd")
}

// oneObject: the pool is made beside the object, and the pull secret reaches the nodes before the image that needs it.
func (w *world) oneObject() {
	w.join("n1", "amd64", map[string]string{"edge": "yes"})
	w.join("n2", "amd64", map[string]string{"edge": "yes"})
	first := w.push("os", "stable", "amd64")
	w.rollout("edge", map[string]any{"ref": w.ref("os:stable")}, map[string]any{"kernelArguments": []string{"quiet"}})
	s := w.sees("edge", "each node has the image", has(first))
	if s.Status.Image.Image != first || s.Status.Image.Ref != w.ref("os:stable") || s.Status.Problem != "" || s.Spec.Image.Policy != api.PolicyNodes {
		w.Errorf("%+v, %+v", s.Status, s.Spec.Image)
	}
	if !metav1.IsControlledBy(&s.pool, &s.PoolRollout) || s.pool.Spec.MaxUnavailable.IntValue() != 1 || s.pool.Spec.NodeSelector.MatchLabels["edge"] != "yes" {
		w.Errorf("the pool is %+v", s.pool)
	}
	w.mu.Lock()
	given := slices.Compact(slices.Clone(w.given))
	w.mu.Unlock()
	if len(given) != 2 {
		w.Fatalf("the nodes were given %q", given)
	}
	before, after := w.specOf(given[0]), w.specOf(given[1])
	if before.OSImageURL != "" || len(before.KernelArguments) > 0 || len(before.Config.Storage.Files) != 1 || before.Config.Storage.Files[0].Path != "/etc/ostree/auth.json" {
		w.Errorf("the first configuration is %+v", before)
	}
	if after.OSImageURL != first || !slices.Equal(after.KernelArguments, []string{"quiet"}) || len(after.Config.Storage.Files) != 1 {
		w.Errorf("the second configuration is %+v", after)
	}
	w.patch("edge", `{"spec":{"maxUnavailable":"50%","kernelArguments":["quiet","nosmt"]}}`)
	w.sees("edge", "the pool and the MachineConfig follow the object", func(s state) bool {
		return s.pool.Spec.MaxUnavailable.String() == "50%" && strings.Contains(s.rendered, "nosmt") && has(first)(s)
	})
}

// onceForARollout: a tag that moves in the middle of a rollout starts the next one when that has ended.
func (w *world) onceForARollout() {
	w.freeze(true)
	second := w.push("os", "stable", "amd64")
	w.later(time.Hour, "edge")
	w.sees("edge", "a node is given the second image", func(s state) bool { return len(s.Status.Taken) == 1 && strings.Contains(s.rendered, second) })
	third := w.push("os", "stable", "amd64")
	w.later(time.Hour, "edge")
	w.patch("edge", `{"spec":{"kernelArguments":["quiet"]}}`) // a person's change is carried out at once
	s := w.sees("edge", "the argument is gone", func(s state) bool { return s.rendered != "" && !strings.Contains(s.rendered, "nosmt") })
	if !strings.Contains(s.rendered, second) {
		w.Errorf("in the middle of a rollout the nodes are given %s", s.rendered)
	}
	w.freeze(false)
	s = w.sees("edge", "the third image follows by itself", has(third))
	if s.Status.Image.Image != third {
		w.Errorf("%+v", s.Status.Image)
	}
}

// away: while there is no image, nodes keep theirs, and WAITING says why.
func (w *world) away() {
	s := w.sees("edge", "the third image", has(""))
	had := s.pool.Spec.Configuration.Name
	if err := w.registry.SetDown(true); err != nil {
		w.Fatal(err)
	}
	w.later(time.Hour, "edge")
	s = w.sees("edge", "the registry is away", waits("cannot resolve image "+w.ref("os:stable"), "connection refused"))
	if s.pool.Spec.Configuration.Name != had || s.updated != api.True {
		w.Errorf("the nodes are given %+v", s.pool)
	}
	if err := w.registry.SetDown(false); err != nil {
		w.Fatal(err)
	}
	w.later(2*time.Minute, "edge")
	w.sees("edge", "the registry is back", func(s state) bool { return s.Status.Problem == "" && s.Status.Waiting == "" })

	w.patch("edge", fmt.Sprintf(`{"spec":{"image":{"ref":%q}}}`, w.ref("os:none")))
	s = w.sees("edge", "there is no such tag", waits("cannot resolve image "+w.ref("os:none"), "manifest unknown", "is the tag right?"))
	if s.pool.Spec.Configuration.Name != had {
		w.Errorf("the nodes are given %+v", s.pool.Spec)
	}
	none := w.push("os", "none", "amd64")
	w.later(2*time.Minute, "edge")
	w.sees("edge", "the tag is there", has(none))
}

func (w *world) architecture() {
	w.join("a1", "arm64", map[string]string{"arm": "yes"})
	w.push("other", "stable", "amd64")
	w.rollout("arm", map[string]any{"ref": w.ref("other:stable")}, nil)
	s := w.sees("arm", "it is for others", waits("it is for linux/amd64, but the machine is linux/arm64"))
	if s.Status.Image.Image != "" || s.pool.Spec.Configuration.Name != "" {
		w.Errorf("the nodes are given %+v, %+v", s.Status.Image, s.pool.Spec)
	}
	is := w.push("other", "stable", "arm64")
	w.later(2*time.Minute, "arm")
	w.sees("arm", "it is for them", has(is))
}

// twoObjects: a node of two objects gets nothing, and both say so.
func (w *world) twoObjects() {
	w.join("b1", "amd64", map[string]string{"one": "yes", "two": "yes"})
	w.push("os", "b", "amd64")
	for _, name := range []string{"one", "two"} {
		w.rollout(name, map[string]any{"ref": w.ref("os:b")}, nil)
	}
	for _, name := range []string{"one", "two"} {
		w.sees(name, "the node is in both", waits("b1 is in the pools one and two"))
	}
	var n corev1.Node
	if err := w.Get(w.Context(), client.ObjectKey{Name: "b1"}, &n); err != nil || n.Annotations[api.DesiredConfig] != "" {
		w.Errorf("%v, %v", n.Annotations, err)
	}
}

// foreignPool: a pool that somebody else has made is never changed. Without a selector, the object gives it an image.
func (w *world) foreignPool() {
	w.join("c1", "amd64", map[string]string{"foreign": "theirs"})
	w.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": "foreign"},
		"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]string{"foreign": "theirs"}},
			"machineConfigSelector": map[string]any{"matchLabels": map[string]string{"machineconfiguration.openshift.io/role": "foreign"}}}})
	is := w.push("os", "c", "amd64")
	w.rollout("foreign", map[string]any{"ref": w.ref("os:c")}, nil)
	s := w.sees("foreign", "the pool is theirs", waits("cannot make the MachineConfigPool foreign: there is one that this PoolRollout does not own"))
	if s.pool.Spec.NodeSelector.MatchLabels["foreign"] != "theirs" || s.rendered != "" || len(s.pool.OwnerReferences) > 0 {
		w.Errorf("the pool is %+v", s.pool)
	}
	w.patch("foreign", `{"spec":{"nodeSelector":null,"maxUnavailable":null}}`)
	w.sees("foreign", "it is used", has(is))
}

// wrong: the API server refuses what is wrong by itself, and WAITING has the rest.
func (w *world) wrong() {
	for _, of := range []struct{ spec, want string }{
		{`{"nodeSelector":{}}`, "it is empty"},
		{`{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Has"}]}}`, `Unsupported value: "Has"`},
		{`{"maxUnavailable":1}`, "maxUnavailable is that of the MachineConfigPool"},
		{`{"image":{"ref":"os:stable"}}`, "it must be HOST/NAME:TAG"},
		{`{"image":{"ref":"quay.example/os"}}`, "it must be HOST/NAME:TAG"},
		{`{"image":{"ref":"quay.example/os:1","every":"1s"}}`, "it must be a duration from 1m to 720h"},
		{`{"image":{"ref":"quay.example/os:1","policy":"all"}}`, `Unsupported value: "all"`},
	} {
		if err := w.try(w.Client, "wrong", of.spec); err == nil || !strings.Contains(err.Error(), of.want) {
			w.Errorf("%s: %v", of.spec, err)
		}
	}
	w.plane.Apply(secret("other", "Opaque", "{}"))
	for _, of := range []struct{ spec, want string }{
		{`{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"In"}]},"image":{"ref":"%s"}}`, "cannot use spec.nodeSelector"},
		{`{"nodeSelector":{"matchLabels":{"a":"b"}},"kernelArguments":["mitigations=off"]}`, "cannot use spec.kernelArguments: mitigations=off"},
		{`{"nodeSelector":{"matchLabels":{"a":"b"}},"image":{"ref":"%s","pullSecretRef":{"name":"other"}}}`, "cannot read the Secret pivot-fleet/other: "},
		{`{"nodeSelector":{"matchLabels":{"a":"b"}},"image":{"ref":"%s"}}`, "no credentials for"},
	} {
		if err := w.try(w.Client, "wrong", strings.ReplaceAll(of.spec, "%s", w.ref("os:stable"))); err != nil {
			w.Fatal(err)
		}
		w.sees("wrong", of.spec, func(s state) bool { return strings.Contains(s.Status.Waiting, of.want) })
		if err := w.Delete(w.Context(), &api.PoolRollout{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}); err != nil {
			w.Fatal(err)
		}
		for _, left := range []client.Object{&api.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}, &api.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-wrong-generated-rollout"}}} {
			if err := w.Delete(w.Context(), left); client.IgnoreNotFound(err) != nil { // as the collector of garbage would
				w.Fatal(err)
			}
		}
	}
}

// try creates a PoolRollout.
func (w *world) try(by client.Client, name, spec string) error {
	r := &api.PoolRollout{}
	text := fmt.Sprintf(`{"apiVersion":"machine-pivot.io/v1alpha1","kind":"PoolRollout","metadata":{"name":%q},"spec":%s}`, name, spec)
	r.Name = name
	return by.Patch(w.Context(), r, client.RawPatch("application/apply-patch+yaml", []byte(text)), client.FieldOwner("test"), client.ForceOwnership)
}

// rights: who may write pools is not root on machines by that.
func (w *world) rights() {
	for _, of := range []struct{ user, role string }{{"pia", "pivot-pool-editor"}, {"max", "pivot-pool-editor"}, {"max", "pivot-machineconfig-editor"}} {
		w.plane.Apply(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": of.user + "-" + of.role},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": of.role},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": of.user}}})
	}
	image := `{"ref":"quay.example/os:1"}`
	for _, of := range []struct{ user, spec, want string }{
		{"pia", `{"nodeSelector":{"matchLabels":{"r":"s"}},"canary":1}`, ""},
		{"pia", `{"nodeSelector":{"matchLabels":{"r":"s"}},"image":` + image + `}`, "spec.image and spec.kernelArguments need the right to create MachineConfigs"},
		{"pia", `{"nodeSelector":{"matchLabels":{"r":"s"}},"kernelArguments":["quiet"]}`, "spec.image and spec.kernelArguments need"},
		{"max", `{"nodeSelector":{"matchLabels":{"r":"s"}},"image":` + image + `}`, ""},
		{"max", `{"nodeSelector":{"matchLabels":{"r":"s"}},"image":{"ref":"quay.example/os:1","pullSecretRef":{"name":"pivot-pull-secret"}}}`, "needs the right to read that Secret"},
	} {
		by, err := client.New(w.plane.User(of.user, "system:authenticated"), client.Options{Scheme: controlplane.Scheme(w.T)})
		if err != nil {
			w.Fatal(err)
		}
		controlplane.Eventually(w, of.spec, func(context.Context) bool { // rights take a moment
			err = w.try(by, "rights", of.spec)
			return of.want == "" && err == nil || of.want != "" && err != nil && strings.Contains(err.Error(), of.want)
		})
	}
}

// ended: without the image, the nodes keep nothing of it but what they run; the pool stays.
func (w *world) ended() {
	w.patch("edge", `{"spec":{"image":null,"kernelArguments":null}}`)
	controlplane.Eventually(w, "the MachineConfig is deleted", func(ctx context.Context) bool {
		return apierrors.IsNotFound(w.Get(ctx, client.ObjectKey{Name: "99-edge-generated-rollout"}, &api.MachineConfig{}))
	})
	w.sees("edge", "nothing of the image is left in the status", func(s state) bool { return s.Status.Image == nil && s.Status.Problem == "" && s.pool.Name == "edge" })
}

// nowhere checks that texts are in no status, event or log.
func (w *world) nowhere(texts ...string) {
	w.Helper()
	var rollouts api.PoolRolloutList
	var pools api.MachineConfigPoolList
	var events eventsv1.EventList
	for _, list := range []client.ObjectList{&rollouts, &pools, &events} {
		if err := w.List(w.Context(), list); err != nil {
			w.Fatal(err)
		}
	}
	resolved := slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == follow.EventResolved })
	refused := slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == follow.EventNotMet })
	if !resolved || !refused {
		w.Errorf("%d events, %v %v", len(events.Items), resolved, refused)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := fmt.Sprintf("%+v %+v %+v %s", rollouts, pools, events, w.log.String())
	for _, text := range append(texts, base64.StdEncoding.EncodeToString(w.registry.PullSecret(w.registry.Host()))) {
		if strings.Contains(all, text) {
			w.Errorf("%q is shown", text)
		}
	}
}
