package fleet_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// TestPlacement: controllers and servers run on nodes with a role of the control plane, whatever the label's value is, and
// on those that an administrator names for them. A node cannot name itself: the API server's admission plugin NodeRestriction
// keeps labels with that prefix from kubelets.
func TestPlacement(t *testing.T) {
	for _, file := range []string{"controller", "server"} {
		t.Run(file, func(t *testing.T) { placement(t, "../../../deploy/fleet/"+file+".yaml") })
	}
}

func placement(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if bytes.Contains(part, []byte("kind: Deployment")) {
			if err := yaml.UnmarshalStrict(part, &d); err != nil {
				t.Fatal(err)
			}
		}
	}
	runs := func(on labels.Set) bool {
		for _, term := range d.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			matches := len(term.MatchExpressions) > 0 && len(d.Spec.Template.Spec.NodeSelector) == 0
			for _, e := range term.MatchExpressions {
				s, err := v1.LabelSelectorAsSelector(&v1.LabelSelector{MatchExpressions: []v1.LabelSelectorRequirement{{Key: e.Key, Operator: v1.LabelSelectorOperator(e.Operator), Values: e.Values}}})
				if err != nil {
					t.Fatal(err)
				}
				matches = matches && s.Matches(on)
			}
			if matches {
				return true
			}
		}
		return false
	}
	for name, c := range map[string]struct {
		on   labels.Set
		runs bool
	}{
		"kubeadm":         {labels.Set{"node-role.kubernetes.io/control-plane": ""}, true},
		"k3s and RKE2":    {labels.Set{"node-role.kubernetes.io/control-plane": "true", "node-role.kubernetes.io/etcd": "true"}, true},
		"older clusters":  {labels.Set{"node-role.kubernetes.io/master": ""}, true},
		"named for them":  {labels.Set{"node-restriction.kubernetes.io/pivot-controllers": ""}, true},
		"named by itself": {labels.Set{"machine-pivot.io/controllers": ""}, false},
		"a worker":        {labels.Set{"node-role.kubernetes.io/worker": ""}, false},
	} {
		if got := runs(c.on); got != c.runs {
			t.Errorf("%s: they run there: %v", name, got)
		}
	}
}

// TestNoBudgets: no budget of ours keeps our own pods on a node. Where all replicas run on the one node of a control plane,
// it would never be drained.
func TestNoBudgets(t *testing.T) {
	files, err := filepath.Glob("../../../deploy/*/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("kind: PodDisruptionBudget")) {
			t.Errorf("%s has a budget", file)
		}
	}
}
