package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/machineconfig"
)

// fleet is what the judgement needs of the cluster, from caches.
type fleet struct {
	reader client.Reader

	mu  sync.Mutex
	all map[string]*authored.MachineConfig // without Ignition configs, by name
}

// watch keeps the MachineConfigs, as the cache sees them change. It returns what waits until all were seen.
func (f *fleet) watch(ctx context.Context, c cache.Cache) (seen func(context.Context) bool, err error) {
	if seen, err = follow(ctx, c, "MachineConfigs", &api.MachineConfig{}, f.keep, f.forget); err != nil {
		return nil, err
	}
	for _, o := range []client.Object{&api.MachineConfigPool{}, &corev1.Node{}, &corev1.LimitRange{}, namespaces()} { // filled before they are asked
		if _, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("cannot watch what the webhooks read: %w", err)
		}
	}
	return seen, nil
}

// keep keeps the parts of a MachineConfig that can contradict those of another one. One of the renderer's is no
// part of any pool.
func (f *fleet) keep(m *api.MachineConfig) {
	if api.IsResult(m.Name) {
		return
	}
	var s kept
	if json.Unmarshal(m.Spec.Raw, &s) != nil {
		return // it was written without this webhook; the renderer reports it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[m.Name] = &authored.MachineConfig{Name: m.Name, Labels: maps.Clone(m.Labels), Spec: machineconfig.Spec{
		KernelArguments: s.KernelArguments, Extensions: s.Extensions, FIPS: s.FIPS, KernelType: s.KernelType,
	}}
}

// kept are the members of a MachineConfig's spec that fleet.keep reads.
type kept struct {
	KernelArguments []string `json:"kernelArguments,omitempty"`
	Extensions      []string `json:"extensions,omitempty"`
	FIPS            bool     `json:"fips,omitempty"`
	KernelType      string   `json:"kernelType,omitempty"`
}

// Caches returns what a manager's cache must keep of MachineConfigs: not their Ignition configs, which can have
// megabytes each. Whoever wants one whole reads it from the API server.
func Caches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&api.MachineConfig{}: {Transform: trim}}
}

func trim(o any) (any, error) {
	m, ok := o.(*api.MachineConfig)
	if !ok {
		return o, nil
	}
	m.ManagedFields = nil
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	var s kept
	if json.Unmarshal(m.Spec.Raw, &s) != nil {
		m.Spec.Raw = []byte(`""`) // stays what keep cannot read
		return m, nil
	}
	raw, err := json.Marshal(s)
	m.Spec.Raw = raw
	return m, err
}

// forget is keep for a MachineConfig that is deleted.
func (f *fleet) forget(m *api.MachineConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, m.Name)
}

// known returns what Judge needs of the cluster.
func (f *fleet) known(ctx context.Context) Known {
	f.mu.Lock()
	others := slices.Collect(maps.Values(f.all))
	f.mu.Unlock()
	return Known{
		Others: others,
		Users:  func(name string) []string { return f.users(ctx, name) },
		Pools:  func(labels map[string]string) []string { return f.choosing(ctx, labels) },
	}
}

// choosing returns the pools that choose a MachineConfig with these labels. One with an unreadable selector chooses
// none, as for the renderer; and none is known if the pools cannot be read.
func (f *fleet) choosing(ctx context.Context, of map[string]string) (names []string) {
	var pools api.MachineConfigPoolList
	if err := f.reader.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for _, p := range pools.Items {
		selector, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector)
		if err == nil && selector.Matches(labels.Set(of)) {
			names = append(names, p.Name)
		}
	}
	return names
}

// users returns the pools and nodes that have a rendered MachineConfig, or should. If they cannot be read, that
// is a user, too: nothing is deleted in doubt.
func (f *fleet) users(ctx context.Context, name string) (all []string) {
	var pools api.MachineConfigPoolList
	var nodes corev1.NodeList
	if err := f.reader.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return []string{"pools that cannot be read: " + err.Error()}
	}
	if err := f.reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return []string{"nodes that cannot be read: " + err.Error()}
	}
	for _, p := range pools.Items {
		if p.Spec.Configuration.Name == name || p.Status.Configuration.Name == name {
			all = append(all, "the pool "+p.Name)
		}
	}
	for _, n := range nodes.Items {
		if n.Annotations[api.CurrentConfig] == name || n.Annotations[api.DesiredConfig] == name {
			all = append(all, "the node "+n.Name)
		}
	}
	return all
}
