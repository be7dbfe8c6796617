package disruption

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/BurntSushi/toml"
)

// registries is what counts of a registries.conf.
type registries struct {
	Search     []string   `toml:"unqualified-search-registries"`
	Registries []registry `toml:"registry"`
}

type registry struct {
	Prefix     string   `toml:"prefix"`
	Location   string   `toml:"location"`
	Blocked    bool     `toml:"blocked"`
	Insecure   bool     `toml:"insecure"`
	DigestOnly bool     `toml:"mirror-by-digest-only"`
	Mirrors    []mirror `toml:"mirror"`
}

type mirror struct {
	Location string `toml:"location"`
	Insecure bool   `toml:"insecure"`
	Pull     string `toml:"pull-from-mirror"`
}

// digestOnly is the value of pull-from-mirror that excludes images by tag.
const digestOnly = "digest-only"

// maxRegistries is the maximal size of a registries.conf that is compared, in bytes.
const maxRegistries = 1 << 20

// RegistriesDrain returns why the operator drains a node before a change of registries.conf. It does not ("") if no
// running workload can notice what is added: registries for short names at the end, and mirrors for images by digest
// only. The arguments are the contents before and after; nil if there is no file. What cannot be compared is a reason.
func RegistriesDrain(before, after []byte) string {
	var old, new registries
	for _, file := range []struct {
		content []byte
		into    *registries
	}{{before, &old}, {after, &new}} {
		if len(file.content) > maxRegistries {
			return fmt.Sprintf("it cannot be compared: it has more than %d bytes", maxRegistries)
		}
		if _, err := toml.Decode(string(file.content), file.into); err != nil {
			return fmt.Sprintf("it cannot be compared: %v", err)
		}
	}
	return old.drainFor(new)
}

func (r registries) drainFor(new registries) string {
	for i, name := range r.Search {
		if i >= len(new.Search) || new.Search[i] != name {
			return "the registries for short names change otherwise than at the end"
		}
	}
	before, after := r.byScope(), new.byScope()
	for _, old := range r.Registries {
		if _, stays := after[old.scope()]; !stays {
			return "registry " + old.scope() + " is removed"
		}
	}
	for _, reg := range new.Registries {
		scope, why := reg.scope(), ""
		switch old, was := before[scope]; {
		case was:
			why = old.drainFor(after[scope])
		case !after[scope].onlyByDigest():
			why = "it is added, and not only with mirrors by digest"
		}
		if why != "" {
			return "registry " + scope + ": " + why
		}
	}
	return ""
}

// byScope returns the registries by what they are for; of several for the same, the last.
func (r registries) byScope() map[string]registry {
	all := map[string]registry{}
	for _, reg := range r.Registries {
		all[reg.scope()] = reg
	}
	return all
}

// scope returns the names of images that a registry is for.
func (r registry) scope() string { return cmp.Or(r.Prefix, r.Location) }

// onlyByDigest reports whether a registry that is added changes only how images by digest are
// pulled.
func (r registry) onlyByDigest() bool {
	if len(r.Mirrors) == 0 {
		return r.DigestOnly
	}
	return !slices.ContainsFunc(r.Mirrors, func(m mirror) bool { return m.Pull != digestOnly })
}

// drainFor returns why a change of a registry needs a drain; "" if it does not.
func (r registry) drainFor(new registry) string {
	switch {
	case reflect.DeepEqual(r, new):
		return ""
	case r.Prefix != new.Prefix:
		return "its prefix changes"
	case r.Location != new.Location:
		return "its location changes"
	case r.Blocked != new.Blocked:
		return "whether it is blocked changes"
	case r.Insecure != new.Insecure:
		return "whether it is insecure changes"
	}
	for _, m := range r.Mirrors {
		if _, stays := new.mirror(m.Location); !stays {
			return "mirror " + m.Location + " is removed"
		}
	}
	for _, m := range new.Mirrors {
		old, was := r.mirror(m.Location)
		switch {
		case was && m.Pull != old.Pull && m.Pull != digestOnly:
			return "mirror " + m.Location + " is no longer by digest only"
		case !was && m.Pull != digestOnly && !new.DigestOnly:
			return "mirror " + m.Location + " is added, and not by digest only"
		}
	}
	return ""
}

// mirror returns the first mirror with a location.
func (r registry) mirror(location string) (mirror, bool) {
	i := slices.IndexFunc(r.Mirrors, func(m mirror) bool { return m.Location == location })
	if i < 0 {
		return mirror{}, false
	}
	return r.Mirrors[i], true
}
