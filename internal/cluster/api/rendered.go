package api

import "strings"

// RenderedPrefix begins the name of each MachineConfig that a cluster has rendered for the nodes of a pool.
const RenderedPrefix = "rendered-"

// FetchedPrefix begins the name of a MachineConfig that holds another one with everything that the other one
// fetches. It has no role, so no pool selects it.
const FetchedPrefix = "fetched-"

// IsResult reports whether a name is one that only the renderer gives: that of a rendered MachineConfig, or of a copy with
// what another one fetches. Such a MachineConfig is never merged, even if a pool's selector matches it: a selector such as
// "role is not master" matches objects without a role.
func IsResult(name string) bool {
	return strings.HasPrefix(name, RenderedPrefix) || strings.HasPrefix(name, FetchedPrefix)
}

// The annotations of MachineConfigs that are pivot's own.
const (
	// Refetch has a MachineConfig's remote content fetched again whenever its value changes. An administrator
	// writes it; each text will do, such as a date.
	Refetch = Prefix + "/refetch"
	// RenderedFor is the pool that a rendered MachineConfig was made for. The renderer writes it, and deletes only
	// what has it.
	RenderedFor = Prefix + "/rendered-for"
	// UnneededSince is since when nothing has needed a rendered MachineConfig, in RFC 3339. The renderer writes it.
	UnneededSince = Prefix + "/unneeded-since"
)

// GeneratedFinalizer keeps a ContainerRuntimeConfig until the MachineConfigs that were generated from it are
// deleted.
const GeneratedFinalizer = Prefix + "/generated-machineconfigs"

// EventRendered is the reason of the event about a pool that has got another rendered MachineConfig, and
// EventRenderFailed of the one about a pool with MachineConfigs that cannot be rendered. The first is the
// machine-config operator's.
const (
	EventRendered     = "RenderedConfigGenerated"
	EventRenderFailed = "RenderFailed"
)

// PoolOf returns the pool for which a MachineConfig was rendered, by its name, rendered-POOL-HASH; "" if it has another
// name.
func PoolOf(config string) string {
	rest, rendered := strings.CutPrefix(config, RenderedPrefix)
	i := strings.LastIndex(rest, "-")
	if !rendered || i < 0 {
		return ""
	}
	return rest[:i]
}
