// Package kube is the node agent's access to the API server: it implements what package node asks of its cluster, and
// drains the node. It reads and writes exactly the objects that deploy/ grants, each by its name.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
)

// Cluster is one node of a cluster. It implements node.Cluster.
type Cluster struct {
	// Name is the name of the node.
	Name string
	// API is a client of the API server, as New returns it.
	API rest.Interface
	Now func() time.Time
	// Capacity is told the node each time that Watch sees it; nil: nobody is.
	Capacity func(node.Resources)

	applied map[string]applied   // by path: what was applied last
	refused map[string]time.Time // by MachineConfig: since when the node may not read it
}

// bindLimit is how long a node may not read its MachineConfig before that is an answer: the controllers give a node the
// right at the same time as the name.
const bindLimit = time.Minute

// isRefused reports whether the node may not read a MachineConfig, and that for so long that nobody will change it.
func (c *Cluster) isRefused(name string, err error) bool {
	since, before := c.refused[name]
	switch {
	case !apierrors.IsForbidden(err):
		delete(c.refused, name)
		return false
	case c.refused == nil:
		c.refused = map[string]time.Time{}
	}
	if !before {
		c.refused[name] = c.Now()
	}
	return before && c.Now().Sub(since) >= bindLimit
}

// applied is what is known of an object that was applied.
type applied struct {
	manifest   string // without its status, as JSON
	conditions []metav1.Condition
}

// New returns a client for an API server.
func New(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the API server %s: %w", config.Host, err)
	}
	return client, nil
}

// requestLimit is how long a request may take.
const requestLimit = 30 * time.Second

// fieldManager is the owner of the fields that the agent applies.
const fieldManager = "pivot-agent"

// object is what the agent reads of an object.
type object struct {
	Metadata struct {
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Capacity    amounts                `json:"capacity"`
		Allocatable amounts                `json:"allocatable"`
		Conditions  []corev1.NodeCondition `json:"conditions"`
	} `json:"status"`
}

func (o object) node() node.Node {
	annotations := maps.Clone(o.Metadata.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	return node.Node{
		Name: o.Metadata.Name, UID: o.Metadata.UID, ResourceVersion: o.Metadata.ResourceVersion,
		Annotations: annotations, Unschedulable: o.Spec.Unschedulable, ControlPlane: api.IsControlPlane(o.Metadata.Labels),
		Ready: slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
	}
}

func (c *Cluster) nodePath() string { return "/api/v1/nodes/" + c.Name }

// do sends a request and decodes the answer, unless into is nil. It takes 30 seconds at most, and does not
// obey a Retry-After of the API server: client-go would do so in silence, for minutes. what is the request
// in words, such as "read the node n1".
func (c *Cluster) do(ctx context.Context, r *rest.Request, what string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	result := r.MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil { // in the API server's words, which Raw does not return
		return unavailable(what, err)
	}
	data, err := result.Raw()
	if err != nil {
		return unavailable(what, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	return nil
}

// unavailable classifies the error of a request.
func unavailable(what string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fault.New(fault.Refused, "cannot %s: %w", what, err).WithHint("see which rights the agent needs: docs/cluster-reference.md")
	}
	return fault.New(fault.Unavailable, "cannot %s: %w", what, err)
}

// Node implements node.Cluster.
func (c *Cluster) Node(ctx context.Context) (node.Node, error) {
	var o object
	err := c.do(ctx, c.API.Get().AbsPath(c.nodePath()), "read the node "+c.Name, &o)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // kubelet's credentials are for one node
		return node.Node{}, fault.New(fault.KindOf(err), "%w", err).
			WithHint("see whether kubelet has registered the node, and under this name (--node-name); which rights the agent needs: docs/cluster-reference.md")
	}
	if err != nil {
		return node.Node{}, err
	}
	return o.node(), nil
}

// MachineConfig implements node.Cluster.
func (c *Cluster) MachineConfig(ctx context.Context, name string) ([]byte, error) {
	if !isName(name) {
		return nil, fmt.Errorf("%w: %q is no name", node.ErrNoMachineConfig, name)
	}
	var raw json.RawMessage
	err := c.do(ctx, c.API.Get().AbsPath("/apis", api.OperatorGroup, api.OperatorVersion, api.MachineConfigs, name), "read the MachineConfig "+name, &raw)
	switch {
	case apierrors.IsNotFound(err):
		return nil, node.ErrNoMachineConfig
	case c.isRefused(name, err):
		return nil, fmt.Errorf("%w for this node: %w", node.ErrNoMachineConfig, err)
	}
	return essential(raw, err)
}

// essential returns a MachineConfig without the parts of its metadata that change while it stays the same,
// so that equal ones have equal digests.
func essential(raw []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var mc struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name        string            `json:"name"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &mc); err != nil {
		return nil, fmt.Errorf("cannot read a MachineConfig: %w", err)
	}
	delete(mc.Metadata.Annotations, "kubectl.kubernetes.io/last-applied-configuration") // a second copy of its contents
	return json.Marshal(mc)
}

// isName reports whether a name can be a part of a path of the API. Annotations may have anything.
func isName(name string) bool {
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.') {
			return false
		}
	}
	return name != "" && name != "." && name != ".." && len(name) <= 253
}

// Patch implements node.Cluster. The patch has the resource version that was read, so that the API server
// refuses it if the node has changed since.
func (c *Cluster) Patch(ctx context.Context, read node.Node, p node.Patch) (node.Node, error) {
	metadata := map[string]any{"resourceVersion": read.ResourceVersion}
	if len(p.Annotations) > 0 {
		metadata["annotations"] = p.Annotations
	}
	patch := map[string]any{"metadata": metadata}
	if p.Unschedulable != nil {
		spec := map[string]any{"unschedulable": nil} // as kubectl uncordon leaves it
		if *p.Unschedulable {
			spec["unschedulable"] = true
		}
		patch["spec"] = spec
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return node.Node{}, err
	}
	var o object
	err = c.do(ctx, c.API.Patch(types.MergePatchType).AbsPath(c.nodePath()).Param("fieldManager", fieldManager).Body(body), "change the node "+c.Name, &o)
	if apierrors.IsConflict(err) {
		return node.Node{}, node.ErrConflict
	}
	return o.node(), err
}

// PublishSystem implements node.Cluster.
func (c *Cluster) PublishSystem(ctx context.Context, of node.Node, s api.NodeSystemStatus) error {
	path := "/apis/" + api.Group + "/" + api.Version + "/" + api.NodeSystems + "/" + c.Name
	m := manifest{APIVersion: api.Group + "/" + api.Version, Kind: "NodeSystem", Metadata: owned(of)}
	return c.publish(ctx, path, m, func([]metav1.Condition) any { return s })
}

// PublishUpdate implements node.Cluster.
func (c *Cluster) PublishUpdate(ctx context.Context, of node.Node, p api.Progressed) error {
	path := "/apis/" + api.OperatorGroup + "/" + api.OperatorVersion + "/" + api.MachineConfigNodes + "/" + c.Name
	m := manifest{APIVersion: api.OperatorGroup + "/" + api.OperatorVersion, Kind: "MachineConfigNode", Metadata: owned(of), Spec: map[string]any{
		"node": named{c.Name}, "pool": named{poolOf(of, p.Config)}, "configVersion": map[string]string{"desired": p.Config},
	}}
	return c.publish(ctx, path, m, func(before []metav1.Condition) any {
		return p.Status(of.Annotations[api.CurrentConfig], before, c.Now())
	})
}

// poolOf returns the pool of a node with config as its desired MachineConfig. An agent may not read the pools: the name
// of what was rendered for one of them says which one that is.
func poolOf(of node.Node, config string) string {
	switch pool := api.PoolOf(config); {
	case pool != "":
		return pool
	case of.ControlPlane:
		return "master"
	}
	return "worker"
}

// manifest is an object that the agent applies.
type manifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       any               `json:"spec,omitempty"`
	Status     any               `json:"status,omitempty"`
}

type named struct {
	Name string `json:"name"`
}

// owned returns the metadata of an object that is deleted with its node.
func owned(of node.Node) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: of.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: of.Name, UID: types.UID(of.UID)}}}
}

// publish applies an object as a whole, as it is now: its status, and before that all else, if that is not what was
// applied last. So an object that does not exist is created, also if it was deleted since. status returns its status, by
// the conditions that it has; a process that has not applied it yet learns of these from the first answer.
func (c *Cluster) publish(ctx context.Context, path string, m manifest, status func(before []metav1.Condition) any) error {
	err := c.applyWhole(ctx, path, m, status)
	if !apierrors.IsNotFound(err) {
		return err
	}
	delete(c.applied, path)
	return c.applyWhole(ctx, path, m, status)
}

func (c *Cluster) applyWhole(ctx context.Context, path string, m manifest, status func(before []metav1.Condition) any) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if c.applied == nil {
		c.applied = map[string]applied{}
	}
	last := c.applied[path]
	if last.manifest != string(text) {
		if last.conditions, err = c.apply(ctx, path, m); err != nil {
			return err
		}
		last.manifest = string(text)
		c.applied[path] = last
	}
	withStatus := manifest{APIVersion: m.APIVersion, Kind: m.Kind, Metadata: metav1.ObjectMeta{Name: m.Metadata.Name}, Status: status(last.conditions)}
	if last.conditions, err = c.apply(ctx, path+"/status", withStatus); err != nil {
		return err
	}
	c.applied[path] = last
	return nil
}

// apply applies an object on the server's side, and returns the conditions that it then has. The agent is the only writer
// of these fields, so it takes those of an earlier writer over.
func (c *Cluster) apply(ctx context.Context, path string, m manifest) ([]metav1.Condition, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	err = c.do(ctx, c.API.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", fieldManager).Param("force", "true").Body(body), "write "+path, &answer)
	return answer.Status.Conditions, err
}
