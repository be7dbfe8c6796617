package pivot

import (
	"fmt"

	"machine-pivot/kargs"
)

// State is what a machine is, as observed at the start of a run.
type State struct {
	BootID  string
	Booted  Deployment // what runs
	Default Deployment // what the next boot starts, if it comes in order; the booted one unless something is pending
	Entries int        // how many deployments can be booted
	Cmdline kargs.Line // the running kernel's, from /proc/cmdline
	// Etc is the running system's /etc; DefaultEtc the default deployment's, as the next
	// boot finds it.
	Etc, DefaultEtc Etc
	// Packages are those of the booted deployment, DefaultPackages those of the default one.
	Packages, DefaultPackages SystemPackages
}

// Deployment is one deployment of the host with its boot entry.
type Deployment struct {
	Stateroot string     `json:"stateroot"`
	Commit    string     `json:"commit"`
	Serial    int        `json:"serial"`
	Base      string     `json:"base,omitempty"` // the image's commit, where rpm-ostree has layered packages or changes on it
	Image     Image      `json:"image,omitzero"` // from its origin; zero if not made from an image
	Options   kargs.Line `json:"kernelArguments"`
	// Staged says that there is no boot entry for it yet: libostree makes it when the
	// system shuts down in order, and merges the /etc that runs into it.
	Staged bool `json:"staged,omitempty"`
}

// ID is STATEROOT-COMMIT.SERIAL, as rpm-ostree names a deployment.
func (d Deployment) ID() string { return fmt.Sprintf("%s-%s.%d", d.Stateroot, d.Commit, d.Serial) }

// carries reports whether the deployment is of an image's commit.
func (d Deployment) carries(commit string) bool { return d.Commit == commit || d.Base == commit }

// Pending reports whether the next boot starts another deployment than the booted one.
func (s State) Pending() bool { return s.Default.ID() != s.Booted.ID() }

// AsIfRebooted is the state that the next boot will find.
func (s State) AsIfRebooted() State {
	s.Booted, s.Etc, s.Packages, s.Cmdline = s.Default, s.DefaultEtc, s.DefaultPackages, s.Default.Options
	return s
}
