package rehearsal

import (
	"path"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/rehearse"
	"machine-pivot/pivot"
)

// own returns what a plan's new system has besides its image's files: those of the running machine, and those of the plan.
func (f *feature) own(plan pivot.Plan) *rehearse.Own {
	own := machine.OwnOf(f.m.Host)
	files, err := plan.Contents("/etc/")
	if err != nil {
		return own
	}
	for _, f := range files {
		delete(own.Files, f.Path)
		switch f.Kind {
		case hostfiles.KindFile:
			own.Add(f.Path, rehearse.File{Content: f.Content, Mode: uint32(f.Mode.Perm()), GID: f.GID})
		case hostfiles.KindLink:
			own.Enabled = append(own.Enabled, path.Base(f.Path))
		}
	}
	for _, wish := range plan.To().Units.Wishes {
		if wish.State == enable.Enabled {
			own.Enabled = append(own.Enabled, wish.Name)
		}
	}
	return own
}
