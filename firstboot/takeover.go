package firstboot

import (
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/varentries"
)

// A machine that the machine-config-daemon managed is taken over by the first "pivot apply":
// what it has is in that daemon's own files, which stay as they are.
// Source: pkg/daemon/file_writers.go and constants.go of the machine-config operator.
const (
	// daemonRecord is the MachineConfig that the daemon applied last.
	daemonRecord = "/etc/machine-config-daemon/currentconfig"
	// daemonOriginals has what stood at a path before the daemon's first file there, below its
	// own path and with this suffix. Where nothing did there is none.
	daemonOriginals  = "/etc/machine-config-daemon/orig"
	daemonOrigSuffix = ".mcdorig"
)

// without is what shall stand at a path that no MachineConfig asks for any more: what the
// image has; on a machine that is taken over what its administrator had there, where the
// daemon has kept that and it is not an image's default.
func (a *Apply) without(path string, takenOver bool) (hostfiles.File, error) {
	none := hostfiles.Default(path)
	if !takenOver || varentries.Outside(path) || none.OnDisk() != path {
		return none, nil
	}
	kept, there, err := hostfiles.Read(a.Host.Path(daemonOriginals), path+daemonOrigSuffix)
	if err != nil || !there || kept.Kind != hostfiles.KindFile {
		return none, err
	}
	kept.Path = path
	shipped, _, err := hostfiles.Read(a.Host.Path("/usr"), path)
	if err != nil || shipped.Entry == kept.Entry {
		return none, err
	}
	a.Progress.Note(path + ": what stood there before the machine-config-daemon's file comes back")
	return kept, nil
}
