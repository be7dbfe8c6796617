package api_test

import (
	"testing"

	"machine-pivot/internal/api"
)

func TestMarshal(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"members": {struct {
			A string `json:"a"`
		}{"<b>"}, "{\"apiVersion\":\"pivot/v1\",\"kind\":\"Plan\",\"a\":\"<b>\"}\n"},
		"empty": {struct{}{}, "{\"apiVersion\":\"pivot/v1\",\"kind\":\"Plan\"}\n"},
	} {
		if got, err := api.Marshal(api.Plan, c.value); err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	for _, value := range []any{[]string{"a"}, nil, "text", func() {}} {
		if got, err := api.MarshalIndent(api.Plan, value); err == nil {
			t.Errorf("%T became %q", value, got)
		}
	}
}
