package rollout_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/cluster/rollout"
)

func TestExpressions(t *testing.T) {
	node := map[string]any{
		"metadata": map[string]any{"name": "n1", "labels": map[string]any{"zone": "a"}},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}
	for _, c := range []struct {
		expression string
		holds      bool
		wrong      string // a part of the error; "" if there is none
	}{
		{"node.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", true, ""},
		{"node.metadata.labels.zone == 'b'", false, ""},
		{"node.metadata.?labels[?'rack'].orValue('') == ''", true, ""},
		{"has(node.spec)", false, ""},
		{"node.metadata.labels.rack == 'b'", false, "no such key: rack"},
		{"node.metadata.name", false, "is a string, not a bool"},
		{"node.status.images.exists(i, i.sizeBytes > 0)", false, "undefined field 'images'"},
		{"node.status.conditions.exists(c, c.message == '')", false, "undefined field 'message'"},
		{"node.?status.?images.hasValue()", false, "undefined field 'images'"},
		{"node.status.?capacity[?'cpu'].orValue('4') == '4' && node.?spec.?taints.orValue([]).all(t, t.key != 'x')", true, ""},
		{"1 + 1", false, "is a int, not a bool"},
		{"pod.status", false, "undeclared reference to 'pod'"},
		{"node.", false, "Syntax error"},
		{"", false, "Syntax error"},
		{"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e > 0)))))", false, "cost limit exceeded"},
	} {
		check, err := rollout.CompileCheck(c.expression)
		holds := false
		if err == nil {
			holds, err = check.Holds(node)
		}
		if holds != c.holds || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, %v", c.expression, holds, err)
		}
	}
}
