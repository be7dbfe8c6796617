package render

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/problem"
)

func TestPlanned(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(name string, age, marked time.Duration) candidate {
		c := candidate{name: name, created: now.Add(-age)}
		if marked != 0 {
			c.marked = now.Add(-marked)
		}
		return c
	}
	const h = time.Hour
	for name, test := range map[string]struct {
		all    []candidate
		needed string
		keep   int
		want   plan
	}{
		"none":                    {nil, "", 0, plan{}},
		"the newest are kept":     {[]candidate{at("a", 3*h, 0), at("b", 2*h, 0), at("c", h, 0)}, "", 2, plan{mark: []string{"a"}, next: h}},
		"needed ones do not fill": {[]candidate{at("a", 3*h, 0), at("b", 2*h, 0), at("c", h, 0)}, "c", 1, plan{mark: []string{"a"}, next: h}},
		"deleted after the grace": {[]candidate{at("a", 3*h, h), at("b", 3*h, h-time.Minute)}, "", 0, plan{remove: []string{"a"}, next: time.Minute}},
		"needed again":            {[]candidate{at("a", 3*h, 9*h)}, "a", 0, plan{unmark: []string{"a"}}},
		"kept again":              {[]candidate{at("a", 3*h, 9*h)}, "", 1, plan{unmark: []string{"a"}}},
		"a mark of the future":    {[]candidate{at("a", 3*h, -9*h)}, "", 0, plan{mark: []string{"a"}, next: h}},
		"the same age":            {[]candidate{at("b", h, 0), at("a", h, 0)}, "", 1, plan{mark: []string{"b"}, next: h}},
	} {
		if got := planned(test.all, map[string]bool{test.needed: true}, test.keep, h, now); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestDecide(t *testing.T) {
	var wrong, warned problem.Report
	wrong.Fail("$.a", "first")
	wrong.Fail("$.b", "second")
	warned.Warn("$.c", "mind it")
	for name, test := range map[string]struct {
		done   rendered
		failed error
		want   verdict
	}{
		"rendered":    {rendered{}, nil, verdict{api.False, "Rendered", ""}},
		"warning":     {rendered{problems: warned}, nil, verdict{api.False, "Rendered", "warning: $.c: mind it"}},
		"problems":    {rendered{problems: wrong}, nil, verdict{api.True, "InvalidMachineConfigs", "error: $.a: first\nerror: $.b: second"}},
		"none":        {rendered{none: true}, nil, verdict{api.True, "NoMachineConfigs", "no MachineConfig matches spec.machineConfigSelector"}},
		"unavailable": {rendered{problems: wrong}, fault.New(fault.Unavailable, "down"), verdict{api.True, "ContentUnavailable", "down\nerror: $.a: first\nerror: $.b: second"}},
		"failed":      {rendered{}, errors.New("odd"), verdict{api.True, "RenderFailed", "odd"}},
	} {
		if got := decide(test.done, test.failed); got != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for i := range 500 {
		wrong.Fail("$", "%d %s", i, strings.Repeat("é", 300))
	}
	if got := decide(rendered{problems: wrong}, nil).message; len(got) > maxMessage || !strings.HasSuffix(got, "é…\n…") || !strings.HasPrefix(got, "error: $.a: first\n") {
		t.Errorf("%d bytes, end %q", len(got), got[len(got)-20:])
	}
}

// The time of a condition is that of the last change of its status, and the other conditions stay.
func TestSet(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	other := metav1.Condition{Type: "Updated", Status: api.True}
	all := []metav1.Condition{other}
	if changed := set(&all, "X", verdict{api.True, "r", "m"}, now); !changed || len(all) != 2 || all[0] != other {
		t.Fatalf("%v %+v", changed, all)
	}
	if set(&all, "X", verdict{api.True, "r", "m"}, now.Add(time.Hour)) {
		t.Error("the same condition is a change")
	}
	if changed := set(&all, "X", verdict{api.True, "r", "n"}, now.Add(time.Hour)); !changed || !all[1].LastTransitionTime.Time.Equal(now) {
		t.Errorf("%v %+v", changed, all)
	}
	if set(&all, "X", verdict{api.False, "r", "n"}, now.Add(time.Hour)); !all[1].LastTransitionTime.Time.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v", all)
	}
}

// The name of a copy depends on what decides about its content, and on nothing else.
func TestCopyName(t *testing.T) {
	seen := map[string]string{}
	for i, test := range []struct{ name, spec, refetch, label string }{
		{"a", `{"x":1,"y":2}`, "", ""}, {"b", `{"x":1,"y":2}`, "", ""}, {"a", `{"x":1}`, "", ""}, {"a", `{"x":1,"y":2}`, "1", ""},
		{"a", `{ "y":2, "x":1}`, "", "z"}, // as the first
	} {
		mc := &api.MachineConfig{}
		mc.Name, mc.Spec.Raw = test.name, []byte(test.spec)
		mc.Annotations = map[string]string{api.Refetch: test.refetch, "other": test.label}
		name, err := copyName(mc)
		if err != nil || !strings.HasPrefix(name, api.FetchedPrefix) {
			t.Fatal(name, err)
		}
		if other, again := seen[name]; again != (i == 4) {
			t.Errorf("%d: %s, as of %q", i, name, other)
		}
		seen[name] = fmt.Sprint(i)
	}
}
