package machineconfig

import (
	"slices"

	"machine-pivot/internal/machineconfig/document"
)

// Objects returns the objects of a document that have to be MachineConfigs, for each command alike. A document is an
// object or a list of objects. Clients print other kinds of the operator beside MachineConfigs: they are left out with a
// warning, unless taken takes them. It may be nil.
func Objects(root document.Node, taken func(document.Node) bool) (all []document.Node) {
	if !root.Object() {
		if root.IsNull() {
			root.Fail("it is null, not an object")
		}
		return nil
	}
	all = []document.Node{root}
	if kind := root.Get("kind"); kind.Is("List", Kind+"List") {
		root.Known("a list", "kind", "apiVersion", "metadata", "items")
		all = root.Get("items").Items()
	}
	return slices.DeleteFunc(all, func(n document.Node) bool { return taken != nil && taken(n) || leftOut(n) })
}

// leftOut warns about an object of another kind of the operator.
func leftOut(n document.Node) bool {
	kind := n.Get("kind")
	other := kind.Is("MachineConfigPool", "ContainerRuntimeConfig", "KubeletConfig", "ControllerConfig", "MachineConfigNode",
		"MachineOSConfig", "MachineOSBuild", "PinnedImageSet")
	if other {
		kind.Warn("it is left out: it is a %s, not a %s", kind.Text(), Kind)
	}
	return other
}
