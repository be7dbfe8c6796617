package admission

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/fault"
)

// The paths of the webhooks, as deploy/fleet/webhooks.yaml names them.
const (
	PathValidate = "/validate"
	PathPods     = "/pods"
)

// Options are the options of Setup.
type Options struct {
	// Listen is the address of the webhooks, [HOST]:PORT. Empty: there are none, and Setup does nothing.
	Listen string
	// Certificates is a directory with tls.crt and tls.key, which are read again when they change. Empty: the
	// controller makes its own, and has API servers trust them.
	Certificates string
	// Names are names or IP addresses by which API servers call the webhooks, beside that of the Service.
	Names []string
	// Namespace has the Service of the webhooks, and what they keep.
	Namespace string
	// Platform are users that may write the platform's own MachineConfigs, beside the controller itself.
	Platform []string
}

// Setup adds the webhooks to a manager. Every replica serves them, also without the Lease.
func Setup(ctx context.Context, m manager.Manager, o Options) error {
	if o.Listen == "" {
		return nil
	}
	server, err := o.server(m)
	if err != nil {
		return err
	}
	own, err := whoAmI(ctx, m)
	if err != nil {
		return err
	}
	f := &fleet{reader: m.GetClient(), all: map[string]*authored.MachineConfig{}}
	seen, err := f.watch(ctx, m.GetCache())
	if err != nil {
		return err
	}
	state, err := o.partitioned(m)
	if err != nil {
		return err
	}
	counted, err := state.census.watch(ctx, m.GetCache())
	if err != nil {
		return err
	}
	ready := &readiness{caches: []func(context.Context) bool{m.GetCache().WaitForCacheSync, state.cache.WaitForCacheSync, seen, counted}}
	for path, h := range map[string]admission.Handler{
		PathValidate: newValidator(append([]string{own}, o.Platform...), f, m.GetClient()),
		PathPods:     &partitioner{reader: m.GetClient(), state: state},
	} {
		server.Register(path, ready.first(&admission.Webhook{Handler: h}))
	}
	return errors.Join(m.Add(server), m.Add(connect.EachReplica(ready.wait)), m.AddReadyzCheck("webhooks", ready.check(server.StartedChecker())))
}

// server returns the server of the webhooks, and adds what keeps its certificate.
func (o Options) server(m manager.Manager) (webhook.Server, error) {
	_, number, err := net.SplitHostPort(o.Listen)
	_, invalid := strconv.ParseUint(number, 10, 16)
	if err = errors.Join(err, invalid); err != nil {
		return nil, fault.New(fault.BadInput, "cannot listen on %q: %w", o.Listen, err).WithHint("write it as [HOST]:PORT")
	}
	options := webhook.Options{CertDir: o.Certificates}
	if o.Certificates != "" {
		return newServer(o.Listen, options), nil
	}
	k := &keeper{reader: m.GetAPIReader(), writer: m.GetClient(), namespace: o.Namespace, more: byKind(o.Names), now: time.Now, log: m.GetLogger().WithName("webhooks")}
	options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = k.GetCertificate }}
	return newServer(o.Listen, options), m.Add(connect.EachReplica(k.run))
}

// byKind sorts IP addresses after names, as they come out of a certificate.
func byKind(names []string) []string {
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(len(net.ParseIP(a)), len(net.ParseIP(b)))
	})
	return names
}

// whoAmI returns the user name of the controller, which may write what users may not.
func whoAmI(ctx context.Context, m manager.Manager) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := m.GetClient().Create(ctx, review); err != nil {
		return "", fault.New(fault.Unavailable, "cannot ask the API server for the controller's user name: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// partitioned adds what remembers the workload types that all nodes report.
func (o Options) partitioned(m manager.Manager) (*partitioned, error) {
	memory, err := cache.New(m.GetConfig(), cache.Options{
		Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), HTTPClient: m.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", PartitionedName)}},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the ConfigMap %s: %w", PartitionedName, err)
	}
	p := &partitioned{namespace: o.Namespace, nodes: m.GetClient(), census: countOf(nil), memory: memory, cache: memory, writer: m.GetClient(), events: m.GetEventRecorder("pivot-fleet")}
	toAll := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	err = ctrl.NewControllerManagedBy(m).Named("partitioned-workloads").
		Watches(&corev1.Node{}, toAll, builder.WithPredicates(predicate.Funcs{UpdateFunc: otherWorkloads})).Complete(p)
	return p, errors.Join(err, m.Add(connect.EachReplica(memory.Start)))
}

// otherWorkloads reports whether a node reports other workload types than before.
func otherWorkloads(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	now, also := e.ObjectNew.(*corev1.Node)
	if !ok || !also {
		return true
	}
	return !slices.Equal(workloadsOf(before), workloadsOf(now))
}
