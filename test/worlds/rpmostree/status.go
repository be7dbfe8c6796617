package rpmostree

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/ostree"
)

var statusOptions = map[string]option{
	"json": {}, "jsonpath": {value: true}, "b": {}, "booted": {}, "v": {}, "pending-exit-77": {},
}

// deployment is a deployment in "status --json" (rust/src/daemon.rs,
// rpmostreed-deployment-utils.cxx). It has no kernel arguments.
type deployment struct {
	ID                 string   `json:"id"`
	OSName             string   `json:"osname"`
	Checksum           string   `json:"checksum"`
	Serial             int      `json:"serial"`
	Booted             bool     `json:"booted"`
	Staged             bool     `json:"staged"`
	FinalizationLocked bool     `json:"finalization-locked,omitempty"` // only for the lock by a file
	Pinned             bool     `json:"pinned"`
	Unlocked           string   `json:"unlocked"`
	Origin             string   `json:"origin,omitempty"`
	Container          string   `json:"container-image-reference,omitempty"`
	Digest             string   `json:"container-image-reference-digest,omitempty"`
	CustomOrigin       []string `json:"custom-origin,omitempty"`
	Version            string   `json:"version,omitempty"`
	Timestamp          int64    `json:"timestamp"`
	BaseChecksum       string   `json:"base-checksum,omitempty"` // only if something is layered
	RequestedPackages  []string `json:"requested-packages"`
	BaseRemovals       []string `json:"requested-base-removals,omitempty"`

	deployed ostree.Deployment
	kargs    []string
}

// statusDocument is the output of "status --json" (rpmostree-builtin-status.cxx).
type statusDocument struct {
	Deployments  []deployment      `json:"deployments"` // in boot order, a staged one first
	Transaction  []string          `json:"transaction"`
	CachedUpdate *struct{}         `json:"cached-update"`
	UpdateDriver map[string]string `json:"update-driver"`
}

func (c *call) status() (int, error) {
	all, err := c.deployments()
	if err != nil {
		return exitFailed, err
	}
	doc := statusDocument{Deployments: all, Transaction: c.transaction()}
	if d := c.control.Driver; d != nil {
		doc.UpdateDriver = map[string]string{"driver-name": d.Name, "driver-sd-unit": d.Unit}
	}
	if c.options.has("b") || c.options.has("booted") {
		doc.Deployments = nil
		for _, d := range all {
			if d.Booted {
				doc.Deployments = append(doc.Deployments, d)
			}
		}
	}
	out := json.NewEncoder(c.stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(doc); err != nil {
		return exitFailed, err
	}
	if c.options.has("pending-exit-77") && len(all) > 0 && !all[0].Booted {
		return exitUnchanged, nil
	}
	return exitDone, nil
}

// deployments returns the host's deployments in boot order, a staged one first.
func (c *call) deployments() ([]deployment, error) {
	s := c.sysroot()
	booted, err := s.Booted()
	if err != nil {
		return nil, failf("This command requires an ostree host system; found: unknown")
	}
	var list []deployment
	staged, err := s.Staged()
	if err != nil {
		return nil, err
	}
	if staged != nil {
		d, err := s.Deployment(staged.Target)
		if err != nil {
			return nil, err
		}
		show, err := c.show(d, staged.KernelArguments)
		if err != nil {
			return nil, err
		}
		_, err = os.Stat(filepath.Join(s.RunDir(), ostree.LockFile))
		show.Staged, show.FinalizationLocked = true, err == nil
		list = append(list, show)
	}
	entries, err := s.Deployments()
	if err != nil {
		return nil, err
	}
	for _, d := range entries {
		show, err := c.show(d, strings.Fields(d.Entry.Options))
		if err != nil {
			return nil, err
		}
		show.Booted = d.ID() == booted.ID()
		list = append(list, show)
	}
	return list, nil
}

func (c *call) show(d ostree.Deployment, kargs []string) (deployment, error) {
	show := deployment{
		ID: d.ID(), OSName: d.Stateroot, Checksum: d.Checksum.String(), Serial: d.Serial, Unlocked: "none",
		Container: d.Origin.ContainerImageReference(), RequestedPackages: append([]string{}, d.Origin.LayeredPackages()...), BaseRemovals: d.Origin.RemovedPackages(),
		deployed: d, kargs: kargs,
	}
	if show.Container == "" {
		if show.Origin = d.Origin.Get("refspec"); show.Origin == "" {
			show.Origin = d.Origin.Get("baserefspec")
		}
		if show.Origin == "" {
			return show, failf("Reading deployment %s: Failed to find refspec/baserefspec/container-image-reference in origin", d.ID())
		}
	}
	if url := d.Origin.CustomURL(); url != "" {
		show.CustomOrigin = []string{url, d.Origin.Get("custom-description")}
	}
	if d.Base != d.Checksum {
		show.BaseChecksum = d.Base.String()
	}
	info, err := c.commit(d.Base)
	if err != nil {
		return show, err
	}
	show.Version, show.Timestamp = info.Version(), info.Timestamp.Unix()
	if show.Container != "" {
		show.Digest, _ = info.Metadata("ostree.manifest-digest").(string)
	}
	return show, nil
}

func (c *call) commit(checksum ostree.Checksum) (*ostree.CommitInfo, error) {
	repo, err := ostree.OpenRepo(c.repo())
	if err != nil {
		return nil, err
	}
	return repo.LoadCommit(checksum)
}

func (c *call) repo() string { return filepath.Join(c.sysroot().Physical(), "ostree/repo") }
