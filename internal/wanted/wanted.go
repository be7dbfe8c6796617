// Package wanted is what a cluster wants of its machine, as the node agent tells the host. It is one
// file, which the agent writes and "pivot status" shows. Nothing is decided by it.
package wanted

import (
	"errors"
	"io/fs"
	"time"

	"machine-pivot/internal/hostfiles"
)

// Wanted is what a cluster wants of its machine, and how far the node agent is with it.
type Wanted struct {
	Format int       `json:"format"`           // of the file
	Node   string    `json:"node"`             // name of the Node object
	Config string    `json:"config"`           // name of the MachineConfig that the node should have
	State  string    `json:"state"`            // of the node, as its annotation says: Done, Working, Degraded, Unreconcilable
	Reason string    `json:"reason,omitempty"` // why, or what is waited for
	Step   string    `json:"step"`             // what the agent does: docs/dev/agent.md has the table
	Since  time.Time `json:"since"`            // since when that is so
}

const (
	path   = "/run/pivot/wanted.json"
	format = 1
)

// file returns the file below the directory that has the host's /run.
func file(root string) hostfiles.StateFile {
	return hostfiles.StateFile{
		Root: root, Path: path, Name: "what the cluster wants, " + path, Format: format, Disk: hostfiles.OS{}, Mode: 0o644,
		Remedy: "remove the file: the node agent writes it again",
	}
}

// Write replaces the file; nil removes it.
func Write(root string, w *Wanted) error {
	if w == nil {
		return file(root).Remove()
	}
	w.Format = format
	return file(root).Save(w)
}

// Read returns what the file says; nil if there is none, because the machine has no agent, or its node is
// not managed.
func Read(root string) (*Wanted, error) {
	var w Wanted
	err := file(root).Decode(&w)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &w, nil
}
