package render

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

// metadata returns an empty list of MachineConfigs without their content.
func metadata() *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: machineconfig.APIVersion, Kind: machineconfig.Kind + "List"}}
}

// source is a MachineConfig of a pool, as the cluster has it and decoded.
type source struct {
	object  *api.MachineConfig
	decoded *authored.MachineConfig // nil: it cannot be decoded
}

// sources returns the MachineConfigs that a pool selects, sorted by name, and the problems in them. A cache
// says which they are; their content is read from the API server, and so may be newer, in which case another
// event follows.
func (r *renderer) sources(ctx context.Context, pool *api.MachineConfigPool) ([]source, problem.Report, error) {
	var report problem.Report
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil {
		report.Fail("$.spec.machineConfigSelector", "%v", err)
		return nil, report.In("pool " + pool.Name), nil
	}
	if selector.Empty() { // as the operator: an empty selector is a mistake, not everything
		selector = labels.Nothing()
	}
	list := metadata()
	if err := r.cached.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(a.Name, b.Name) })
	rules := r.rules
	rules.Room = authored.NewRoom()
	var all []source
	for i := range list.Items {
		if api.IsResult(list.Items[i].Name) {
			continue
		}
		mc := &api.MachineConfig{}
		err := r.direct.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), mc)
		if apierrors.IsNotFound(err) || err == nil && !selector.Matches(labels.Set(mc.Labels)) {
			continue // it was deleted, or changed, since
		}
		if err != nil {
			return nil, nil, err
		}
		decoded, problems := decode(mc, rules)
		report = append(report, problems...)
		all = append(all, source{mc, decoded})
	}
	return all, report, nil
}

// decode reads a MachineConfig of the cluster.
func decode(mc *api.MachineConfig, rules authored.Rules) (*authored.MachineConfig, problem.Report) {
	mc.TypeMeta = metav1.TypeMeta{APIVersion: machineconfig.APIVersion, Kind: machineconfig.Kind}
	name := "MachineConfig " + mc.Name
	text, err := json.Marshal(mc)
	if err != nil {
		var report problem.Report
		report.Fail("$", "%v", err)
		return nil, report.In(name)
	}
	decoded, report := authored.Decode(name, text, rules)
	for i := range report {
		report[i].Line, report[i].Column = 0, 0 // of a text that nobody has written
	}
	if len(decoded) != 1 {
		return nil, report
	}
	return decoded[0], report
}

// canonical returns JSON with sorted members, so that equal values have equal texts.
func canonical(text []byte) (string, error) {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return "", err
	}
	sorted, err := json.Marshal(value)
	return string(sorted), err
}

// sameSpec reports whether two specs are the same.
func sameSpec(a, b []byte) bool {
	first, err1 := canonical(a)
	second, err2 := canonical(b)
	return errors.Join(err1, err2) == nil && first == second
}
