package machineconfig

import (
	"encoding/json"
	"fmt"
	"slices"

	"machine-pivot/internal/problem"
)

// Bounds of a value in a report, in bytes.
const (
	maxShown     = 2000 // in a document for programs
	maxDescribed = 120  // in a line for people
)

// hidden replaces what a report must not show.
const hidden = "(hidden)"

// isSecret reports whether a member of an Ignition config can contain a secret: a password's hash, a content or key as
// a data URL, credentials, or a key server's configuration.
func isSecret(member string) bool {
	return slices.Contains([]string{"passwordHash", "source", "httpHeaders", "config", "httpProxy", "httpsProxy"}, member)
}

// shown returns the value of a part for a report, without secrets. It returns null for "".
func shown(value string) json.RawMessage {
	var v any
	if value == "" || json.Unmarshal([]byte(value), &v) != nil {
		return json.RawMessage("null")
	}
	text, err := json.Marshal(withoutSecrets(v))
	if err != nil || len(text) > maxShown {
		text = fmt.Appendf(nil, `"(%d bytes)"`, len(value))
	}
	return text
}

// withoutSecrets replaces the secrets in a value.
func withoutSecrets(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = withoutSecrets(v[i])
		}
	case map[string]any:
		for name := range v {
			if v[name] = withoutSecrets(v[name]); isSecret(name) {
				v[name] = hidden
			}
		}
	}
	return value
}

// describe describes a change that is not possible, for people.
func describe(c problem.Change) string {
	brief := func(value json.RawMessage) string {
		switch {
		case string(value) == "null":
			return "nothing"
		case len(value) > maxDescribed:
			return fmt.Sprintf("%d bytes", len(value))
		}
		return string(value)
	}
	return fmt.Sprintf("%s differs from what the machine has, and only an installation can change it: the machine has %s, the MachineConfig %s",
		c.Field, brief(c.Old), brief(c.New))
}
