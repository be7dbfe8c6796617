package ostree

import (
	"fmt"
	"slices"
	"strings"
)

// Origin is the content of a deployment's .origin file, which records where the deployment
// came from.
type Origin struct{ file KeyFile }

// transientGroup is the group that a new deployment does not inherit
// (ostree-sysroot-deploy.c).
const transientGroup = "libostree-transient"

// LegacyOrigin returns the origin of a commit from a legacy OS image, as rpm-ostree writes and accepts it
// (rust/src/origin.rs). The refspec is the commit, and the custom URL names the image.
func LegacyOrigin(commit, url, description string) Origin {
	return originOf([]KeySetting{{Key: "refspec", Value: commit}, {Key: "custom-url", Value: url}, {Key: "custom-description", Value: description}})
}

// ContainerOrigin returns the origin of an ostree-native container, named by an ostree
// image reference such as "ostree-unverified-registry:quay.io/a/b:tag".
func ContainerOrigin(reference string) Origin {
	return originOf([]KeySetting{{Key: "container-image-reference", Value: reference}})
}

// originOf returns an origin with settings in the group [origin], followed by other groups.
func originOf(origin []KeySetting, others ...KeyGroup) Origin {
	return Origin{NewKeyFile(append([]KeyGroup{{Name: "origin", Settings: origin}}, others...)...)}
}

// ParseOrigin parses an origin. It keeps all groups, because a new deployment inherits those
// that this program does not interpret, such as layered packages.
func ParseOrigin(text []byte) (Origin, error) {
	file, err := ParseKeyFile(text)
	if err != nil {
		return Origin{}, fmt.Errorf("cannot read origin: %w", err)
	}
	return Origin{file}, nil
}

// Get returns the value of a key in the group [origin], or "".
func (o Origin) Get(key string) string { return o.Value("origin", key) }

// Value returns the value of a key in a group, or "".
func (o Origin) Value(group, key string) string {
	value, _ := o.file.Value(group, key)
	return value
}

// ContainerImageReference returns the image reference of a deployment made from an
// ostree-native container, or "".
func (o Origin) ContainerImageReference() string { return o.Get("container-image-reference") }

// CustomURL returns the custom URL, which names the image of a deployment made from a legacy
// OS image, or "".
func (o Origin) CustomURL() string { return o.Get("custom-url") }

// Commit returns the commit to which the origin is pinned, or "".
func (o Origin) Commit() string {
	for _, key := range []string{"refspec", "baserefspec"} {
		if _, err := ParseChecksum(o.Get(key)); err == nil {
			return o.Get(key)
		}
	}
	return ""
}

// WithContainer returns the origin with an image reference as the only source of the
// deployment. Layered packages stay.
func (o Origin) WithContainer(reference string) Origin {
	settings := []KeySetting{{Key: "container-image-reference", Value: reference}}
	var others []KeyGroup
	for _, g := range o.file.Groups() {
		if g.Name != "origin" {
			others = append(others, g)
			continue
		}
		for _, s := range g.Settings {
			if !slices.Contains([]string{"refspec", "baserefspec", "container-image-reference", "custom-url", "custom-description"}, s.Key) {
				settings = append(settings, s)
			}
		}
	}
	return originOf(settings, others...)
}

// Layered reports whether the origin requests changes to the image: packages,
// overrides, or a local initramfs (rust/src/origin.rs). Only rpm-ostree can make
// a new deployment that keeps them.
func (o Origin) Layered() bool { return len(o.Layers()) > 0 || o.Get("baserefspec") != "" }

// Layers returns the changes to the image that the origin requests: the parts of each value, sorted, by GROUP/KEY.
func (o Origin) Layers() map[string][]string {
	layers := map[string][]string{}
	for _, g := range o.file.Groups() {
		if g.Name != "packages" && g.Name != "overrides" && g.Name != "rpmostree" {
			continue
		}
		for _, s := range g.Settings {
			if parts := o.list(g.Name, s.Key); len(parts) > 0 && s.Value != "false" {
				layers[g.Name+"/"+s.Key] = slices.Sorted(slices.Values(parts))
			}
		}
	}
	return layers
}

// HasInitramfsFiles reports whether the origin requests files of the machine's /etc in the initramfs, which rpm-ostree
// gives to a new deployment as a second initramfs (rpm-ostree initramfs-etc).
func (o Origin) HasInitramfsFiles() bool { return len(o.list("rpmostree", "initramfs-etc")) > 0 }

// LayeredPackages returns the names of the packages that rpm-ostree adds to the image, from
// repositories or from local files (rust/src/origin.rs).
func (o Origin) LayeredPackages() []string {
	names := o.RequestedPackages()
	for _, group := range []string{"requested-local", "requested-local-fileoverride"} {
		for _, local := range o.list("packages", group) {
			_, nevra, _ := strings.Cut(local, ":")
			names = append(names, PackageName(nevra))
		}
	}
	return names
}

// RequestedPackages returns the names of the packages that rpm-ostree layers from a package
// repository, and looks for there again for another image.
func (o Origin) RequestedPackages() []string { return o.list("packages", "requested") }

// RemovedPackages returns the names of the packages that rpm-ostree removes from the image.
func (o Origin) RemovedPackages() []string { return o.list("overrides", "remove") }

// list returns the parts of a value that is a list separated by semicolons.
func (o Origin) list(group, key string) []string {
	return slices.DeleteFunc(strings.Split(o.Value(group, key), ";"), func(s string) bool { return s == "" })
}

// PackageName returns the name in NAME-[EPOCH:]VERSION-RELEASE.ARCH. It returns any other text
// unchanged.
func PackageName(nevra string) string {
	if release := strings.LastIndexByte(nevra, '-'); release > 0 {
		if version := strings.LastIndexByte(nevra[:release], '-'); version > 0 {
			return nevra[:version]
		}
	}
	return nevra
}

// Pinned reports whether libostree keeps the deployment until somebody removes it (ostree admin pin).
func (o Origin) Pinned() bool {
	pinned := o.Value(transientGroup, "pinned")
	return pinned == "true" || pinned == "1" // g_key_file_get_boolean
}

// Bytes returns the .origin file for a new deployment, without the transient group.
func (o Origin) Bytes() []byte { return NewKeyFile(o.lasting()...).Bytes() }

// PinnedBytes returns the .origin file with which libostree keeps the deployment.
func (o Origin) PinnedBytes() []byte {
	pinned := KeyGroup{Name: transientGroup, Settings: []KeySetting{{Key: "pinned", Value: "true"}}}
	return NewKeyFile(append(o.lasting(), pinned)...).Bytes()
}

// lasting returns the groups other than the transient one.
func (o Origin) lasting() []KeyGroup {
	return slices.DeleteFunc(slices.Clone(o.file.Groups()), func(g KeyGroup) bool { return g.Name == transientGroup })
}
