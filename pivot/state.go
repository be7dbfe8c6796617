package pivot

import (
	"machine-pivot/hostfiles"
	"machine-pivot/kargs"
)

// State is what a machine is, as observed at the start of a run.
type State struct {
	BootID  string
	Booted  Deployment // what runs
	Default Deployment // what the next boot starts; the booted one unless something is pending
	Cmdline kargs.Line // the running kernel's, from /proc/cmdline
	// Files holds the running /etc's file for each path asked about; a path
	// that has no file is absent.
	Files map[string]hostfiles.Entry
	// DefaultFiles is the same for the default deployment's /etc.
	DefaultFiles map[string]hostfiles.Entry
}

// Deployment is one deployment of the host with its boot entry.
type Deployment struct {
	Stateroot string     `json:"stateroot"`
	Commit    string     `json:"commit"`
	Serial    int        `json:"serial"`
	Base      string     `json:"base,omitempty"` // the image's commit, where rpm-ostree has layered packages or changes on it
	Image     Image      `json:"image,omitzero"` // from its origin; zero if not made from an image
	Options   kargs.Line `json:"kernelArguments"`
}

func (d Deployment) sameAs(other Deployment) bool {
	return d.Stateroot == other.Stateroot && d.Commit == other.Commit && d.Serial == other.Serial
}

// carries reports whether the deployment is of an image's commit.
func (d Deployment) carries(commit string) bool { return d.Commit == commit || d.Base == commit }

// Pending reports whether the next boot starts another deployment than the booted one.
func (s State) Pending() bool { return !s.Default.sameAs(s.Booted) }

// AsIfRebooted is the state that the next boot will find.
func (s State) AsIfRebooted() State {
	s.Booted, s.Files, s.Cmdline = s.Default, s.DefaultFiles, s.Default.Options
	return s
}
