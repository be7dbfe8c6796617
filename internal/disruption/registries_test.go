package disruption_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/disruption"
)

// TestRegistriesDrain: which changes of registries.conf need a drain, as the operator decides
// it (isSafeContainerRegistryConfChanges in pkg/daemon/drain.go).
func TestRegistriesDrain(t *testing.T) {
	const (
		search   = "unqualified-search-registries = ['a.example', 'b.example']\n"
		reg      = "[[registry]]\nlocation = 'r.example'\n"
		mirror   = "[[registry.mirror]]\nlocation = 'm.example'\n"
		other    = "[[registry.mirror]]\nlocation = 'n.example'\n"
		byDigest = "pull-from-mirror = 'digest-only'\n"
	)
	for name, c := range map[string]struct{ before, after, want string }{
		"nothing":                         {"", "", ""},
		"other form":                      {search, "# a comment\n" + search, ""},
		"search grows":                    {search, strings.Replace(search, "]", ", 'c.example']", 1), ""},
		"search shrinks":                  {search, "unqualified-search-registries = ['a.example']\n", "the registries for short names"},
		"search in another order":         {search, "unqualified-search-registries = ['b.example', 'a.example']\n", "the registries for short names"},
		"search goes":                     {search, "", "the registries for short names"},
		"registry goes":                   {reg, "", "registry r.example is removed"},
		"registry comes":                  {"", reg, "registry r.example: it is added, and not only"},
		"registry by digest comes":        {"", reg + "mirror-by-digest-only = true\n", ""},
		"registry with mirror comes":      {"", reg + mirror, "registry r.example: it is added"},
		"registry with digests comes":     {"", reg + mirror + byDigest, ""},
		"registry, one mirror not":        {"", reg + mirror + byDigest + other, "registry r.example: it is added"},
		"by digest, mirror says nothing":  {"", reg + "mirror-by-digest-only = true\n" + mirror, "registry r.example: it is added"},
		"prefix counts as its name":       {"[[registry]]\nprefix = 'p.example'\nlocation = 'r.example'\n", reg, "registry p.example is removed"},
		"prefix is spelled out":           {reg, "[[registry]]\nprefix = 'r.example'\nlocation = 'r.example'\n", "registry r.example: its prefix changes"},
		"location changes":                {"[[registry]]\nprefix = 'p'\nlocation = 'r'\n", "[[registry]]\nprefix = 'p'\nlocation = 's'\n", "registry p: its location changes"},
		"blocked":                         {reg, reg + "blocked = true\n", "registry r.example: whether it is blocked"},
		"insecure":                        {reg, reg + "insecure = true\n", "registry r.example: whether it is insecure"},
		"mirror goes":                     {reg + mirror + byDigest, reg, "registry r.example: mirror m.example is removed"},
		"mirror comes":                    {reg, reg + mirror, "registry r.example: mirror m.example is added"},
		"mirror by digest comes":          {reg, reg + mirror + byDigest, ""},
		"mirror comes to one by digest":   {reg + "mirror-by-digest-only = true\n", reg + "mirror-by-digest-only = true\n" + mirror, ""},
		"mirror becomes by digest":        {reg + mirror, reg + mirror + byDigest, ""},
		"mirror stops being by digest":    {reg + mirror + byDigest, reg + mirror, "registry r.example: mirror m.example is no longer"},
		"mirror in another order":         {reg + mirror + other, reg + other + mirror, ""},
		"mirror twice, unchanged":         {reg + mirror + byDigest + mirror, "\n" + reg + mirror + byDigest + mirror, ""},
		"insecure mirror":                 {reg + mirror, reg + mirror + "insecure = true\n", ""},
		"registry twice, the last counts": {reg + reg + "blocked = true\n", reg, "registry r.example: whether it is blocked"},
		"no TOML":                         {reg, "[[", "it cannot be compared: "},
		"too large":                       {reg, strings.Repeat("#", 1<<20) + "\n", "it cannot be compared: it has more than 1048576 bytes"},
	} {
		got := disruption.RegistriesDrain([]byte(c.before), []byte(c.after))
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
