// Package configserver serves the Ignition configs of a cluster's pools to new machines. Package serve is the server.
// This package feeds it from MachineConfigPools and their rendered MachineConfigs, and asks each client for a token or
// a certificate of its pool.
//
// What was read once is served on when the API server cannot be reached, or when an object is wrong or gone.
package configserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/kargs"
)

// Options are the settings of a server.
type Options struct {
	Listener  net.Listener
	TLS       *tls.Config // its ClientCAs, if any, issue the certificates of clients
	Namespace string      // of the tokens' Secrets
	// KargPolicy is rules for kernel arguments in addition to the built-in ones. Machines get it, too.
	KargPolicy []byte
	// Program is the static binary of pivot that machines get with its units; none: they have it.
	Program []byte
	// MaxConnections and MaxPerAddress are limits of open connections, as provision.Server has them.
	MaxConnections, MaxPerAddress int
	Metrics                       prometheus.Registerer
}

// Cache returns what a manager's cache has to have for Setup: of Secrets, only the tokens of a namespace.
func Cache(namespace string) cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("type", provision.TokenSecretType)},
		}},
	}}
}

// Setup adds a server to a manager. Each replica serves, so it does not wait to be a leader.
func Setup(m manager.Manager, o Options) error {
	rules, more, err := o.forMachines()
	if err != nil {
		return err
	}
	requests := newRequests()
	if err := o.Metrics.Register(requests); err != nil {
		return err
	}
	log := m.GetLogger().WithName("server")
	gate := newGate(&secrets{client: m.GetClient(), live: m.GetAPIReader(), namespace: o.Namespace}, time.Now)
	content := newContent()
	server := &provision.Server{
		Load: func(context.Context) (provision.Content, error) {
			return provision.Content{Roles: content.roles(), More: more}, nil
		},
		Stamp: func() (string, error) { return "", nil }, // it is reloaded when something has changed
		Log:   func(line string) { log.Info(line) },
		Guard: gate, TLS: o.TLS, Answered: func(role string, status int) { count(requests, role, status) },
		MaxConnections: o.MaxConnections, MaxPerAddress: o.MaxPerAddress,
	}
	if err := server.Reload(context.Background()); err != nil {
		return err
	}
	pools := &poolReconciler{client: m.GetClient(), live: m.GetAPIReader(), rules: rules, content: content, changed: server.Reload}
	everywhere := controller.Options{NeedLeaderElection: new(false)}
	if err := ctrl.NewControllerManagedBy(m).Named("ignition-pools").WithOptions(everywhere).
		For(&api.MachineConfigPool{}).
		Watches(&api.PoolRollout{}, &handler.EnqueueRequestForObject{}). // it has the name of its pool
		Complete(pools); err != nil {
		return err
	}
	tokens := &tokenReconciler{client: m.GetClient(), gate: gate}
	if err := ctrl.NewControllerManagedBy(m).Named("ignition-tokens").WithOptions(everywhere).
		For(&corev1.Secret{}).Complete(tokens); err != nil {
		return err
	}
	if err := m.AddReadyzCheck("content", func(*http.Request) error {
		if len(content.roles()) == 0 {
			return errors.New("there is no pool with a rendered MachineConfig yet")
		}
		return nil
	}); err != nil {
		return err
	}
	return m.Add(connect.EachReplica(func(ctx context.Context) error { return server.Serve(ctx, o.Listener) }))
}

// forMachines returns the rules for MachineConfigs, and what each machine gets beside its own.
func (o Options) forMachines() (rules authored.Rules, more []ignition.Config, err error) {
	rules = authored.Rules{KernelArguments: kargs.DefaultPolicy()}
	if rules.KernelArguments, err = rules.KernelArguments.Extend(string(o.KargPolicy)); err != nil {
		return rules, nil, fault.New(fault.BadInput, "cannot use the policy for kernel arguments:\n%w", err)
	}
	if len(o.KargPolicy) > 0 {
		more = append(more, provision.KargPolicy(o.KargPolicy))
	}
	if len(o.Program) > 0 {
		config, err := provision.Embed(o.Program)
		if err != nil {
			return rules, nil, err
		}
		more = append(more, config)
	}
	return rules, more, nil
}
