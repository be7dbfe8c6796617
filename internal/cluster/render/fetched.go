package render

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/snapshot"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// What a MachineConfig fetches is kept in a second MachineConfig, a self-contained copy of the first. It has the same
// secrets as the first one, and so needs the same rights. It is as large as the part of the rendered MachineConfig that
// comes from it, so it fits in if that does. Kubernetes deletes it with its owner, the first one. Its name is a hash of
// all that decides about its content: the first one's name and spec, and when a refetch was asked for. So a copy is
// never changed, and of two controllers that fetch, the first one's copy is used by both.

// copyName returns the name of the self-contained copy of a MachineConfig.
func copyName(mc *api.MachineConfig) (string, error) {
	text, err := canonical(mc.Spec.Raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", mc.Name, mc.Annotations[api.Refetch], text))
	return fmt.Sprintf("%s%x", api.FetchedPrefix, sum[:16]), nil
}

// fetches reports whether a MachineConfig needs a self-contained copy. A config that it refers to may have
// something to fetch even if it is inline itself.
func fetches(mc *authored.MachineConfig) bool {
	config := mc.Spec.Config
	return config != nil && len(ignition.Remote(config))+len(ignition.Configs(config)) > 0
}

// complete returns the decoded sources, self-contained. The report has the problems of all of them. The error
// is not nil if a later attempt may succeed, and has all such failures.
func (r *renderer) complete(ctx context.Context, all []source) ([]*authored.MachineConfig, problem.Report, error) {
	var whole []*authored.MachineConfig
	var report problem.Report
	var later []error
	for _, s := range all {
		mc := s.decoded
		if mc == nil {
			continue // the report of its decoding says why
		}
		if fetches(mc) {
			kept, problems, err := r.keptCopy(ctx, s)
			report = append(report, problems...)
			if err != nil {
				later = append(later, err)
			}
			if mc = kept; mc == nil {
				continue
			}
		}
		whole = append(whole, mc)
	}
	return whole, report, errors.Join(later...)
}

// keptCopy returns the self-contained copy of a source. It is fetched if there is none; nil: there cannot be one.
func (r *renderer) keptCopy(ctx context.Context, s source) (*authored.MachineConfig, problem.Report, error) {
	name, err := copyName(s.object)
	if err != nil {
		return nil, nil, err
	}
	kept := &api.MachineConfig{}
	err = r.direct.Get(ctx, client.ObjectKey{Name: name}, kept)
	if err == nil && !metav1.IsControlledBy(kept, s.object) {
		return nil, foreign(s, name), nil
	}
	var report problem.Report
	if apierrors.IsNotFound(err) {
		kept, report, err = r.fetch(ctx, s, name)
	}
	if err != nil || kept == nil {
		return nil, report, err
	}
	rules := r.rules
	rules.Room = authored.NewRoom()
	decoded, problems := decode(kept, rules)
	report = append(report, problems.Errors()...) // the source's own report has the warnings
	if decoded == nil || problems.Failed() {
		return nil, report, nil
	}
	whole := *s.decoded // its name decides about the order, its role about the rank
	whole.Spec = decoded.Spec
	return &whole, report, nil
}

// foreign reports that the name of a copy is taken by an object of another owner.
func foreign(s source, name string) problem.Report {
	var report problem.Report
	report.Fail("", "what it fetches is kept in the MachineConfig %s, and that is not of this MachineConfig; delete it", name)
	return report.In("MachineConfig " + s.object.Name)
}

// fetch makes the self-contained copy of a source and creates it.
func (r *renderer) fetch(ctx context.Context, s source, name string) (*api.MachineConfig, problem.Report, error) {
	taker := snapshot.New(r.rules.KernelArguments)
	taker.Lock, _ = snapshot.ParseLock(nil) // the copy is the lock; without one, there would be a warning about it
	whole, report, err := taker.Inline(ctx, []*authored.MachineConfig{s.decoded})
	if err != nil || report.Failed() {
		return nil, report, err
	}
	copied := &authored.MachineConfig{Name: name, Spec: whole[0].Spec}
	made, err := object(copied)
	if err != nil {
		return nil, report, err
	}
	made.Annotations = map[string]string{machineconfig.GeneratedBy: r.Version}
	made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.object, api.Operator().WithKind(machineconfig.Kind))}
	what := "MachineConfig " + s.object.Name + " with what it fetches"
	err = r.create(ctx, made)
	if apierrors.IsAlreadyExists(err) { // another controller was faster
		existing := &api.MachineConfig{}
		if err := r.direct.Get(ctx, client.ObjectKey{Name: name}, existing); err != nil {
			return nil, report, err
		}
		if !metav1.IsControlledBy(existing, s.object) {
			return nil, append(report, foreign(s, name)...), nil
		}
		return existing, report, nil
	}
	if why := refusal(err, made); why != "" {
		var refused problem.Report
		refused.Fail("", "%s", why)
		return nil, append(report, refused.In(what)...), nil
	}
	if err != nil {
		return nil, report, err
	}
	return made, report, r.deleteCopies(ctx, s, name)
}

// deleteCopies deletes the copies of a source but one: those of another spec, or from before a refetch.
func (r *renderer) deleteCopies(ctx context.Context, s source, but string) error {
	list := metadata()
	if err := r.cached.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.Name == but || !strings.HasPrefix(o.Name, api.FetchedPrefix) || !metav1.IsControlledBy(o, s.object) {
			continue
		}
		if err := r.remove(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// object returns a MachineConfig for the cluster, without labels, annotations and owners.
func object(mc *authored.MachineConfig) (*api.MachineConfig, error) {
	text, err := mc.SpecJSON()
	if err != nil {
		return nil, err
	}
	made := &api.MachineConfig{Spec: runtime.RawExtension{Raw: text}}
	made.Name = mc.Name
	return made, nil
}
