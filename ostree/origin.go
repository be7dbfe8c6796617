package ostree

import (
	"fmt"
	"slices"
	"strings"
)

// Origin says where a deployment came from: the key file beside it.
type Origin struct {
	groups []originGroup
}

type originGroup struct {
	name string
	keys [][2]string
}

// transientGroup is the group that does not pass on to the next deployment (ostree-sysroot-deploy.c).
const transientGroup = "libostree-transient"

// LegacyOrigin is the origin of a commit from a legacy OS image, as rpm-ostree
// writes and accepts it (rust/src/origin.rs): the commit is the refspec, and the
// custom URL names the image.
func LegacyOrigin(commit, url, description string) Origin {
	return Origin{groups: []originGroup{{name: "origin", keys: [][2]string{
		{"refspec", commit}, {"custom-url", url}, {"custom-description", description},
	}}}}
}

// ContainerOrigin is the origin of an ostree-native container, named by an ostree
// image reference such as "ostree-unverified-registry:quay.io/a/b:tag".
func ContainerOrigin(reference string) Origin {
	return Origin{groups: []originGroup{{name: "origin", keys: [][2]string{{"container-image-reference", reference}}}}}
}

// ParseOrigin reads a key file. All of it is kept: a deployment made from another
// takes over what this program knows nothing of, such as layered packages.
func ParseOrigin(text []byte) (Origin, error) {
	var o Origin
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && line[len(line)-1] == ']':
			o.groups = append(o.groups, originGroup{name: line[1 : len(line)-1]})
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || len(o.groups) == 0 {
				return Origin{}, fmt.Errorf("cannot parse origin: line %q", line)
			}
			g := &o.groups[len(o.groups)-1]
			g.keys = append(g.keys, [2]string{strings.TrimSpace(key), strings.TrimSpace(value)})
		}
	}
	return o, nil
}

// Get is the value of a key in the group [origin], or "".
func (o Origin) Get(key string) string { return o.Value("origin", key) }

// Value is the value of a key in a group, or "".
func (o Origin) Value(group, key string) string {
	value := ""
	for _, g := range o.groups {
		for _, k := range g.keys {
			if g.name == group && k[0] == key {
				value = k[1]
			}
		}
	}
	return value
}

// ContainerImageReference names the image of a deployment made from an ostree-native container.
func (o Origin) ContainerImageReference() string { return o.Get("container-image-reference") }

// CustomURL names the image of a deployment made from a legacy one.
func (o Origin) CustomURL() string { return o.Get("custom-url") }

// Commit is the commit that the origin is pinned to, or "".
func (o Origin) Commit() string {
	for _, key := range []string{"refspec", "baserefspec"} {
		if _, err := ParseChecksum(o.Get(key)); err == nil {
			return o.Get(key)
		}
	}
	return ""
}

// WithContainer is the origin with an image reference in place of whatever else
// it says that the deployment was made from. What is layered stays.
func (o Origin) WithContainer(reference string) Origin {
	with := ContainerOrigin(reference)
	for _, g := range o.groups {
		if g.name != "origin" {
			with.groups = append(with.groups, g)
			continue
		}
		for _, k := range g.keys {
			if !slices.Contains([]string{"refspec", "baserefspec", "container-image-reference", "custom-url", "custom-description"}, k[0]) {
				with.groups[0].keys = append(with.groups[0].keys, k)
			}
		}
	}
	return with
}

// Layered reports whether the origin asks rpm-ostree for more than the image:
// packages, overrides, an initramfs of its own (rust/src/origin.rs). Only
// rpm-ostree can make a new deployment that keeps them.
func (o Origin) Layered() bool {
	for _, g := range o.groups {
		if g.name != "packages" && g.name != "overrides" && g.name != "rpmostree" {
			continue
		}
		for _, k := range g.keys {
			if k[1] != "" && k[1] != "false" {
				return true
			}
		}
	}
	return o.Get("baserefspec") != ""
}

// Bytes is the key file, for a new deployment: what is transient is left out.
func (o Origin) Bytes() []byte {
	var b strings.Builder
	for _, g := range o.groups {
		if g.name == transientGroup {
			continue
		}
		fmt.Fprintf(&b, "[%s]\n", g.name)
		for _, k := range g.keys {
			fmt.Fprintf(&b, "%s=%s\n", k[0], k[1])
		}
	}
	return []byte(b.String())
}
