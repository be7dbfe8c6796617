package provision

import (
	"errors"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/document"
)

// IntoButane returns a Butane config of Fedora CoreOS that merges an Ignition config, in addition to what it has, which keeps
// its form.
func IntoButane(text, config []byte) ([]byte, error) {
	var wrong error
	edited, report := document.Edit("", text, func(root document.Node) { wrong = addMerge(root, string(config)) })
	if wrong == nil && report.Failed() {
		wrong = errors.New(report[0].Message)
	}
	if wrong != nil {
		return nil, fault.New(fault.BadInput, "cannot use the Butane config: %w", wrong).WithHint("Butane of Fedora CoreOS begins with variant: fcos and version: 1.5.0")
	}
	return edited, nil
}

// addMerge adds a config to the list ignition.config.merge.
func addMerge(n document.Node, config string) error {
	switch {
	case !n.Object():
		return errors.New("it is no object")
	case !n.Get("variant").Is("fcos"):
		return errors.New("it has no \"variant: fcos\"")
	}
	for _, key := range []string{"ignition", "config"} {
		if next := n.Get(key); !next.IsNull() && !next.Object() {
			return errors.New(key + " has another type than in Butane")
		}
		n = n.Ensure(key)
	}
	if !n.Get("replace").IsNull() {
		return errors.New("ignition.config.replace would replace what pivot adds")
	}
	if !n.Append("merge", "inline", config) {
		return errors.New("merge has another type than in Butane")
	}
	return nil
}
