package configserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
)

// content is the rendered MachineConfigs that are served, by pool.
type content struct {
	mu     sync.Mutex
	byPool map[string]*authored.MachineConfig
}

func newContent() *content { return &content{byPool: map[string]*authored.MachineConfig{}} }

// roles returns a copy of the map.
func (c *content) roles() map[string]*authored.MachineConfig {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byPool)
}

// set sets what is served for a pool; nil: nothing.
func (c *content) set(pool string, m *authored.MachineConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m == nil {
		delete(c.byPool, pool)
		return
	}
	c.byPool[pool] = m
}

// serves reports whether a MachineConfig is served for a pool; its name is that of its content.
func (c *content) serves(pool, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.byPool[pool]
	return m != nil && m.Name == name
}

// poolReconciler gives the content what the pools name. A failure leaves what is served, and is tried again.
type poolReconciler struct {
	client  client.Reader
	live    client.Reader // of MachineConfigs, which are too large to keep all of them in memory
	rules   authored.Rules
	content *content
	changed func(context.Context) error
}

// Reconcile implements reconcile.Reconciler.
func (p *poolReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pool api.MachineConfigPool
	err := p.client.Get(ctx, request.NamespacedName, &pool)
	if apierrors.IsNotFound(err) {
		if len(p.content.roles()) == 0 {
			return ctrl.Result{}, nil
		}
		p.content.set(request.Name, nil)
		return ctrl.Result{}, p.changed(ctx)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	rollout := &api.PoolRollout{}
	if err := p.client.Get(ctx, request.NamespacedName, rollout); apierrors.IsNotFound(err) {
		rollout = nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	name := choose(&pool, rollout)
	if name == "" || p.content.serves(pool.Name, name) {
		return ctrl.Result{}, nil
	}
	m, err := p.read(ctx, name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("pool %s is served as before: %w", pool.Name, err)
	}
	p.content.set(pool.Name, m)
	return ctrl.Result{}, p.changed(ctx)
}

// read reads a rendered MachineConfig.
func (p *poolReconciler) read(ctx context.Context, name string) (*authored.MachineConfig, error) {
	var object api.MachineConfig
	if err := p.live.Get(ctx, client.ObjectKey{Name: name}, &object); err != nil {
		return nil, fault.New(fault.Unavailable, "cannot read MachineConfig %s: %w", name, err)
	}
	return decode(&object, p.rules)
}

// decode reads a MachineConfig as its author's program does.
func decode(object *api.MachineConfig, rules authored.Rules) (*authored.MachineConfig, error) {
	object.APIVersion, object.Kind = machineconfig.APIVersion, machineconfig.Kind // a client leaves them out
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fault.New(fault.Internal, "cannot write MachineConfig %s as JSON: %w", object.Name, err)
	}
	all, report := authored.Decode("", text, rules)
	if err := report.Err("MachineConfig " + object.Name); err != nil {
		return nil, err
	}
	m := all[0]
	// As rendered, they are lists, also when they are empty.
	m.Spec.KernelArguments = append([]string{}, m.Spec.KernelArguments...)
	m.Spec.Extensions = append([]string{}, m.Spec.Extensions...)
	if m.Spec.Config == nil {
		m.Spec.Config = new(ignition.Empty())
	}
	return m, nil
}
