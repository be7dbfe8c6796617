package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
)

// contents are those of the MachineConfig of a PoolRollout.
type contents struct {
	image     string // with its digest; "": none
	arguments []string
	secret    []byte // the pull secret; nil: none
}

func (c contents) equal(other contents) bool {
	return c.image == other.image && slices.Equal(c.arguments, other.arguments) && bytes.Equal(c.secret, other.secret)
}

// secretPath is where the nodes have the pull secret. Kubelet has its own one.
const secretPath = "/etc/ostree/auth.json"

// spec is the part of a MachineConfig's spec that is written.
type spec struct {
	OSImageURL      string         `json:"osImageURL,omitempty"`
	KernelArguments []string       `json:"kernelArguments,omitempty"`
	Config          map[string]any `json:"config"`
}

func (c contents) spec() spec {
	config := ignition.Empty()
	config.Ignition.Version = "3.2.0" // the oldest one that suffices
	if c.secret != nil {
		config.Storage.Files = []ignition.File{ignition.NewFile(secretPath, 0o600, c.secret)}
	}
	return spec{c.image, c.arguments, ignition.Tree(config)}
}

// secretIn returns the pull secret in the spec of a MachineConfig; nil if there is none.
func secretIn(text []byte) (secret []byte, err error) {
	var s struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Config == nil {
		return nil, err
	}
	config, problems := ignition.Parse(s.Config)
	if err := problems.Err("Ignition config"); err != nil {
		return nil, err
	}
	for _, f := range config.Storage.Files {
		if f.Path == secretPath {
			secret, err = ignition.Content(f.Contents, authored.NewRoom())
		}
	}
	return secret, err
}

// configName returns the name of the MachineConfig of a PoolRollout. It sorts behind those of users, and is one that the
// webhook keeps them from changing. It has no annotation of a generated one: the image of such is not used.
func configName(r *api.PoolRollout) string { return "99-" + r.Name + "-generated-rollout" }

// own returns the MachineConfig of a PoolRollout; nil if there is none.
func (f *follower) own(ctx context.Context, r *api.PoolRollout) (*api.MachineConfig, error) {
	mc := &api.MachineConfig{}
	err := f.direct.Get(ctx, client.ObjectKey{Name: configName(r)}, mc)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the MachineConfig %s: %w", configName(r), err)
	case !metav1.IsControlledBy(mc, r):
		return nil, fault.New(fault.BadInput, "cannot write the MachineConfig %s: there is one that this PoolRollout does not own", mc.Name).
			WithHint("kubectl delete machineconfig %s", mc.Name)
	}
	return mc, nil
}

// read returns what the nodes are given now.
func (f *follower) read(ctx context.Context, r *api.PoolRollout) (c contents, err error) {
	mc, err := f.own(ctx, r)
	if mc == nil {
		return c, err
	}
	var s spec
	if err := json.Unmarshal(mc.Spec.Raw, &s); err != nil {
		return c, fmt.Errorf("cannot read the MachineConfig %s: %w", mc.Name, err)
	}
	c.image, c.arguments = s.OSImageURL, s.KernelArguments
	if c.secret, err = secretIn(mc.Spec.Raw); err != nil {
		return c, fmt.Errorf("cannot read the MachineConfig %s: %w", mc.Name, err)
	}
	return c, nil
}

// write has the nodes given the contents: all in one MachineConfig, or none if there is nothing.
func (f *follower) write(ctx context.Context, r *api.PoolRollout, c contents) error {
	before, err := f.own(ctx, r)
	switch {
	case err != nil:
		return err
	case c.equal(contents{}):
		if before == nil {
			return nil
		}
		return client.IgnoreNotFound(f.cached.Delete(ctx, before, client.Preconditions{UID: &before.UID}))
	}
	text, err := json.Marshal(c.spec())
	if err != nil {
		return err
	}
	if before == nil {
		made := &api.MachineConfig{Spec: runtime.RawExtension{Raw: text}}
		made.Name, made.Labels, made.OwnerReferences = configName(r), role(r), owner(r)
		err = f.cached.Create(ctx, made)
	} else if has, wrong := f.read(ctx, r); wrong != nil || !has.equal(c) {
		patch := fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q},{"op":"replace","path":"/spec","value":%s}]`, before.ResourceVersion, text)
		err = f.cached.Patch(ctx, before, client.RawPatch(types.JSONPatchType, []byte(patch)))
	}
	if err != nil {
		return fmt.Errorf("cannot write the MachineConfig %s: %w", configName(r), err)
	}
	return nil
}

// nodesHave reports whether the rollout of a pull secret has ended.
func (f *follower) nodesHave(ctx context.Context, r *api.PoolRollout, secret []byte) (bool, error) {
	if secret == nil {
		return true, nil
	}
	if r.Status.Ended == "" {
		return false, nil
	}
	rendered := &api.MachineConfig{}
	if err := f.direct.Get(ctx, client.ObjectKey{Name: r.Status.Ended}, rendered); err != nil {
		return false, fmt.Errorf("cannot read the MachineConfig %s: %w", r.Status.Ended, err)
	}
	has, err := secretIn(rendered.Spec.Raw)
	if err != nil {
		return false, fmt.Errorf("cannot read the MachineConfig %s: %w", r.Status.Ended, err)
	}
	return bytes.Equal(has, secret), nil
}
