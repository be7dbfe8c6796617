package day2

import (
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
)

// The files of the daemon. Source: pkg/daemon/constants, daemon.go, file_writers.go and on_disk_validation.go of the
// machine-config operator.
const (
	daemonDir = "/etc/machine-config-daemon"
	// daemonImage names the image that replaces that of the MachineConfig; it is empty if none does.
	daemonImage = daemonDir + "/currentimage"
	// nodeAnnotations has the annotations of a node that the daemon has never run on. As long as it exists, the daemon
	// takes the node for one in its first boot. A Node object that is created anew then gets the MachineConfig of that
	// file, whatever the machine has become.
	nodeAnnotations = daemonDir + "/node-annotations.json"
	usedAnnotations = daemonDir + "/node-annotation.json.bak" // where the daemon moves it
)

// daemonOriginal returns where the daemon keeps the file that it has replaced at a path.
func daemonOriginal(path string) string { return daemonDir + "/orig" + path + ".mcdorig" }

// daemonStamp returns where the daemon notes that it has replaced no file of the image at a path.
func daemonStamp(path string) string { return daemonDir + "/noorig" + path + ".mcdnoorig" }

// handBackFacts are what decides whether a machine can be given back.
type handBackFacts struct {
	Recorded    bool     // it has a MachineConfig by pivot
	Interrupted bool     // a change of the running system was
	Trial       bool     // the running system, or the next one, is on trial
	Pending     bool     // the next boot starts another deployment
	Asked       bool     // what pivot was last asked for is that MachineConfig
	Differences []string // between the running system and that MachineConfig
	Image       string   // of the MachineConfig
	Booted      string   // image that runs, as its deployment names it
}

// check returns why a machine is not given back: an error of kind fault.Refused. The daemon would report
// a node as degraded that has not exactly its MachineConfig.
func (f handBackFacts) check() error {
	refuse := func(why, hint string) error {
		return fault.New(fault.Refused, "cannot give this machine back to the machine-config-daemon: %s", why).WithHint("%s", hint)
	}
	switch {
	case f.Interrupted:
		return refuse("a change of the running system was interrupted", "finish it: pivot apply --finish")
	case f.Trial:
		return refuse("a system is on trial", "wait for its end, or end it: pivot confirm keeps it, a reboot starts the old system")
	case f.Pending:
		return refuse("the next boot starts another deployment than the running one", "reboot into it, or take it back: pivot rollback")
	case !f.Recorded:
		return refuse("pivot has applied no MachineConfig to it", "apply the one that it has: pivot apply --reboot=never FILE")
	case !f.Asked:
		return refuse("the last change was not to the MachineConfig that it has, so that nothing proves it",
			"pivot status says what the last change was; to have it compared: pivot apply --reboot=never "+machineconfig.RecordPath)
	case len(f.Differences) > 0:
		return refuse("it differs from its MachineConfig: "+strings.Join(firstOf(f.Differences), "; "), "pivot apply --repair")
	case f.Image != f.Booted:
		return refuse("its MachineConfig names the image "+orNone(f.Image)+", and its deployment "+orNone(f.Booted)+", which the daemon compares as text",
			"apply a MachineConfig that names the image as the deployment does, by its digest")
	}
	return nil
}

// firstOf returns the first of several texts.
func firstOf(texts []string) []string {
	const most = 5
	if len(texts) <= most {
		return texts
	}
	return append(slices.Clone(texts[:most]), "…")
}

func orNone(image string) string {
	if image == "" {
		return "(none)"
	}
	return image
}

// handedBack is what a host has when it is given back.
type handedBack struct {
	Config   []byte                    // its MachineConfig as JSON
	Paths    []string                  // of the files of that MachineConfig
	Defaults map[string]hostfiles.File // of the running image, at these paths
	Kept     map[string]bool           // paths of which the daemon has an original or a stamp
	// Annotations is the file at AnnotationsPath; nil if there is none.
	Annotations *hostfiles.File
}

// daemonFile is a file to be written for the daemon.
type daemonFile struct {
	hostfiles.File
	LabelAs string // the path that determines its SELinux label; "": its own
}

// daemonFiles returns what is written so that a host is the daemon's, in this order.
//
// A file in place of the image's own needs an original: the daemon would back up the content of the
// MachineConfig as that, and would never restore the image's. Any other gets a stamp.
func daemonFiles(h handedBack) (all []daemonFile) {
	write := func(path string, content []byte) {
		all = append(all, daemonFile{File: hostfiles.NewFile(path, 0o644, content)})
	}
	for _, path := range h.Paths {
		if h.Kept[path] || !strings.HasPrefix(path, "/etc/") {
			continue
		}
		if original, there := h.Defaults[path]; there {
			original.Path = daemonOriginal(path)
			all = append(all, daemonFile{original, path})
			continue
		}
		write(daemonStamp(path), nil)
	}
	write(daemonImage, nil)
	all = append(all, daemonFile{File: hostfiles.NewFile(machineconfig.DaemonPath, 0o600, h.Config)})
	if h.Annotations != nil {
		used := *h.Annotations
		used.Path = usedAnnotations
		all = append(all, daemonFile{File: used}, daemonFile{File: hostfiles.Default(nodeAnnotations)})
	}
	return all
}

// ownRecords returns the removals of pivot's own files, which come after all else: until the last of them, the
// MachineConfig of the host is pivot's.
func ownRecords() []hostfiles.File {
	return []hostfiles.File{hostfiles.Default(machineconfig.LeftOutPath), hostfiles.Default(machineconfig.RecordPath)}
}
