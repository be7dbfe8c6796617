package pivot

import (
	"cmp"
	"fmt"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/pid1"
	"machine-pivot/kargs"
)

// State is the state of a machine, as observed at the start of a run.
type State struct {
	BootID  pid1.StartID // of the running system
	Booted  Deployment   // the running deployment
	Default Deployment   // started by the next boot after an orderly shutdown; Booted unless another is pending
	// HeldBack is a staged deployment that is locked, so that a shutdown does not make it the next boot; nil if there
	// is none. Others lock what they only download (bootc upgrade --download-only, rpm-ostree's
	// --lock-finalization), and a run that was killed leaves one.
	HeldBack    *Deployment
	Deployments int        // number of bootable deployments
	Cmdline     kargs.Line // the running kernel's, from /proc/cmdline
	ByLoader    kargs.Line // what the boot loader puts before the arguments of a boot entry
	// Etc is the running system's /etc. DefaultEtc is the default deployment's, as the next boot
	// will see it.
	Etc, DefaultEtc Etc
	// Packages are those of the booted deployment, DefaultPackages those of the default one.
	Packages, DefaultPackages SystemPackages
}

// Deployment is one deployment of the host with its boot entry.
type Deployment struct {
	Stateroot string `json:"stateroot"`
	Commit    string `json:"commit"`
	Serial    int    `json:"serial"`
	Base      string `json:"base,omitempty"` // the image's commit, if rpm-ostree has layered something on it
	Image     Image  `json:"image,omitzero"` // as its origin names it; zero if not made from an image
	// Manifest is the digest of the manifest that the image's commit was imported from, as that commit
	// itself says; "" if it does not, as that of a legacy image. It says what the image is, whatever its origin
	// calls it.
	Manifest string     `json:"manifest,omitempty"`
	Options  kargs.Line `json:"kernelArguments"`
	// Sources are the programs that own some of the arguments, as its boot entry says.
	Sources []ostree.OptionsSource `json:"kernelArgumentSources,omitempty"`
	// Staged says that the deployment is not finalized yet: libostree merges the running /etc
	// into it and writes its boot entry during an orderly shutdown.
	Staged bool `json:"staged,omitempty"`
}

// ID returns STATEROOT-COMMIT.SERIAL, which is also rpm-ostree's name for the deployment.
func (d Deployment) ID() string { return fmt.Sprintf("%s-%s.%d", d.Stateroot, d.Commit, d.Serial) }

// Runs reports whether the deployment was made from an image, whatever that is called.
func (d Deployment) Runs(image Image) bool { return d.Image.Same(image) || image.is(d.Manifest) }

// carries reports whether the deployment's commit is commit, or is based on it.
func (d Deployment) carries(commit string) bool { return d.Commit == commit || d.Base == commit }

// Pending reports whether the next boot starts another deployment than the booted one.
func (s State) Pending() bool { return s.Default.ID() != s.Booted.ID() }

// drops returns the commits of the images that are staged, and that another deployment replaces: libostree keeps one
// staged deployment.
func (s State) drops() (commits []string) {
	staged := []*Deployment{s.HeldBack}
	if s.Default.Staged {
		staged = append(staged, &s.Default)
	}
	for _, d := range staged {
		if d != nil {
			commits = append(commits, cmp.Or(d.Base, d.Commit))
		}
	}
	return commits
}

// AsIfRebooted returns the state as the next boot will observe it.
func (s State) AsIfRebooted() State {
	s.Booted, s.Etc, s.Packages, s.Cmdline = s.Default, s.DefaultEtc, s.DefaultPackages, s.Default.Options
	return s
}
