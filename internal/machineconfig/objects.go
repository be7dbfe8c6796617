package machineconfig

import (
	"slices"

	"machine-pivot/internal/machineconfig/document"
)

// Objects returns the objects of a document that have to be MachineConfigs, for each command alike. A document is an
// object or a list of objects. Clients print other kinds of the operator beside MachineConfigs: they are left out with a
// warning, unless taken takes them. It may be nil.
func Objects(root document.Node, taken func(document.Node) bool) (all []document.Node) {
	return slices.DeleteFunc(root.Objects(), func(n document.Node) bool {
		return taken != nil && taken(n) || !n.Get("kind").Is(Kind) && LeftOut(n, Kind)
	})
}

// LeftOut warns about an object of the operator, of another kind than the wanted one.
func LeftOut(n document.Node, wanted string) bool {
	kind := n.Get("kind")
	other := kind.IsText() && OfOperator(kind.Text())
	if other {
		kind.Warn("it is left out: it is a %s, not a %s", kind.Text(), wanted)
	}
	return other
}

// OfOperator reports whether a kind is one of the operator's, which clients print together.
func OfOperator(kind string) bool {
	return slices.Contains([]string{Kind, "MachineConfigPool", "ContainerRuntimeConfig", "KubeletConfig", "ControllerConfig", "MachineConfigNode",
		"MachineOSConfig", "MachineOSBuild", "PinnedImageSet"}, kind)
}
