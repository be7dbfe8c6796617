package follow

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
)

// TestLeft: a record that is in the future, because a clock was set back, keeps no tag from being resolved.
func TestLeft(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	f := &follower{Options: Options{Now: func() time.Time { return now }}}
	for ago, due := range map[time.Duration]bool{0: false, 9 * time.Minute: false, 10 * time.Minute: true, -time.Second: true, -24 * 365 * time.Hour: true} {
		r := &api.PoolRollout{}
		r.Spec.Image = &api.PoolImage{Ref: "registry.example/os:stable"}
		r.Status.Image = &api.ResolvedImage{Ref: r.Spec.Image.Ref, Image: "i", Checked: metav1.NewTime(now.Add(-ago))}
		if got := f.due(r, &api.MachineConfigPool{}); got != due {
			t.Errorf("asked %s ago: %t, want %t", ago, got, due)
		}
	}
}

// changes is an API server in which somebody changes the MachineConfig after each read.
type changes struct {
	client.Client
	mc    api.MachineConfig
	patch []map[string]any
}

func (c *changes) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	*into.(*api.MachineConfig) = c.mc
	return nil
}

func (c *changes) Patch(_ context.Context, _ client.Object, p client.Patch, _ ...client.PatchOption) error {
	text, err := p.Data(nil)
	if err == nil {
		err = json.Unmarshal(text, &c.patch)
	}
	if err != nil {
		return err
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: "machineconfigs"}, c.mc.Name, nil)
}

// TestChangedMeanwhile: a patch of the MachineConfig carries the version that was read, for which API servers answer that
// there is a conflict, and nobody is told of that.
func TestChangedMeanwhile(t *testing.T) {
	r := &api.PoolRollout{}
	r.Name, r.UID = "edge", "u"
	server := &changes{mc: api.MachineConfig{Spec: runtime.RawExtension{Raw: []byte(`{}`)}}}
	server.mc.Name, server.mc.ResourceVersion, server.mc.OwnerReferences = configName(r), "7", owner(r)
	f := &follower{cached: server, direct: server}
	err := f.write(t.Context(), r, contents{arguments: []string{"quiet"}})
	if !api.HasChanged(err) || len(server.patch) == 0 || server.patch[0]["op"] != "replace" || server.patch[0]["value"] != "7" {
		t.Errorf("%v, %v", err, server.patch)
	}
	if err := f.report(t.Context(), r, nil, err); err != nil || r.Status.Problem != "" {
		t.Errorf("%v, %q", err, r.Status.Problem)
	}
}
