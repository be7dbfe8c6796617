package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/problem"
)

// oneSecret is an API server without the Secret of the webhooks, which answers attempts to create it in turn.
type oneSecret struct {
	client.Client
	answers []error
	created int
	done    func()
}

func (o *oneSecret) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if _, ok := object.(*corev1.Secret); ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	return nil
}

func (o *oneSecret) Create(context.Context, client.Object, ...client.CreateOption) error {
	o.created++
	err := o.answers[min(o.created, len(o.answers))-1]
	if err == nil {
		o.done()
	}
	return err
}

// TestKeeper: a race that another replica has won is run again at once, a few times; any other failure is logged, and
// waits. What was written is served.
func TestKeeper(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	lost, changed := apierrors.NewAlreadyExists(secrets, SecretName), apierrors.NewConflict(secrets, SecretName, errors.New("changed"))
	refused := apierrors.NewForbidden(secrets, SecretName, errors.New("no right"))
	for name, c := range map[string]struct {
		answers []error
		created int
		logged  string
	}{
		"at once":        {[]error{nil}, 1, ""},
		"lost twice":     {[]error{lost, changed, nil}, 3, ""},
		"lost each time": {[]error{lost}, 6, "already exists"},
		"refused":        {[]error{refused}, 1, "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var logged []string
			server := &oneSecret{answers: c.answers, done: cancel}
			k := &keeper{reader: server, writer: server, namespace: "fleet", now: time.Now, log: funcr.New(func(_, text string) {
				logged = append(logged, text)
				cancel()
			}, funcr.Options{})}
			if err := k.run(ctx); err != nil || server.created != c.created {
				t.Errorf("%d attempts, want %d; %v", server.created, c.created, err)
			}
			if said := strings.Join(logged, "\n"); len(logged) > 1 || !strings.Contains(said, c.logged) || (said == "") != (c.logged == "") {
				t.Errorf("logged %q, want %q", said, c.logged)
			}
			if p, err := k.GetCertificate(nil); (err == nil) != (c.logged == "") || err == nil && len(p.Certificate) == 0 {
				t.Errorf("served: %v", err)
			}
		})
	}
}

// TestEachReplica: what serves and what fills its caches runs in each replica, and not only where the Lease is.
func TestEachReplica(t *testing.T) {
	var r manager.LeaderElectionRunnable = connect.EachReplica((&keeper{}).run)
	if r.NeedLeaderElection() {
		t.Error("it runs in one replica only")
	}
}

// noInformers is a cache that cannot watch.
type noInformers struct{ cache.Cache }

func (noInformers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errors.New("no informer")
}

// deaf is a cache with informers that take no handlers.
type deaf struct{ cache.Cache }

func (deaf) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return deafInformer{}, nil
}

type deafInformer struct{ cache.Informer }

func (deafInformer) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, errors.New("no handler")
}

// TestFleet: what is kept of MachineConfigs, also of one that nobody can read.
func TestFleet(t *testing.T) {
	f := &fleet{all: map[string]*authored.MachineConfig{}}
	if _, err := f.watch(t.Context(), noInformers{}); err == nil || !strings.Contains(err.Error(), "cannot watch MachineConfigs: no informer") {
		t.Error(err)
	}
	if _, err := f.watch(t.Context(), deaf{}); err == nil || !strings.Contains(err.Error(), "cannot watch MachineConfigs: no handler") {
		t.Error(err)
	}
	config := func(name, spec string) *api.MachineConfig {
		return &api.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{}},
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: spec}}, Spec: runtime.RawExtension{Raw: []byte(spec)}}
	}
	for _, c := range []struct{ spec, kept string }{
		{`{"kernelArguments":["a=1"],"fips":true,"config":{"ignition":{"version":"3.4.0"}}}`, `{"kernelArguments":["a=1"],"fips":true}`},
		{`{"kernelArguments":"` + strings.Repeat("x", 1000) + `"}`, `""`},
	} {
		o, err := trim(config("99-a", c.spec))
		m := o.(*api.MachineConfig)
		if err != nil || string(m.Spec.Raw) != c.kept || len(m.ManagedFields)+len(m.Annotations) > 0 {
			t.Errorf("%s is kept as %s with %v: %v", c.spec, m.Spec.Raw, m.Annotations, err)
		}
		typed(f.keep)(o)
		typed(f.keep)(o)
	}
	if got := f.known(t.Context()).Others; len(got) != 1 || !slices.Equal(got[0].Spec.KernelArguments, []string{"a=1"}) || !got[0].Spec.FIPS {
		t.Errorf("known: %+v", got)
	}
	f.forget(config("99-a", `{}`))
	if got := f.known(t.Context()).Others; len(got) != 0 {
		t.Errorf("known: %+v", got)
	}
}

// partitionedTypes is a ConfigMap with the workload types that are partitioned, or the error of reading it.
type partitionedTypes struct {
	client.Reader
	types map[string]string
	err   error
}

func (p partitionedTypes) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.(*corev1.ConfigMap).Data = p.types
	return p.err
}

// TestOff: a type that was partitioned stays so, whatever the nodes say; without the ConfigMap, they say it; and if the
// ConfigMap cannot be read, nothing is partitioned.
func TestOff(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	for name, c := range map[string]struct {
		memory partitionedTypes
		off    string
	}{
		"remembered":  {partitionedTypes{types: map[string]string{"management": "2026"}}, ""},
		"another one": {partitionedTypes{types: map[string]string{"other": "2026"}}, countOf(nil).lacking("management")},
		"none":        {partitionedTypes{err: apierrors.NewNotFound(maps, PartitionedName)}, countOf(nil).lacking("management")},
		"unreadable":  {partitionedTypes{err: errors.New("no answer")}, "it is not known whether the workload is partitioned: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &partitioned{namespace: "fleet", census: countOf(nil), memory: c.memory}
			if got := p.off(t.Context(), "management"); got != c.off {
				t.Errorf("%q, want %q", got, c.off)
			}
		})
	}
}

// TestTexts: errors are the message, warnings are the warnings, and neither has what belongs to the other.
func TestTexts(t *testing.T) {
	report := problem.Report{
		{Path: "spec.a", Message: "is wrong", Severity: problem.Error},
		{Path: "spec.b", Message: "is unusual", Severity: problem.Warning},
	}
	if got := fmt.Sprintf("%s; %q", message(report), warnings(report)); got != `spec.a: is wrong; ["spec.b: is unusual"]` {
		t.Error(got)
	}
}
