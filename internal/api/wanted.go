package api

import (
	"errors"
	"io/fs"
	"time"

	"machine-pivot/internal/hostfiles"
)

// Wanted is what a cluster wants of its machine, and how far the node agent is with it. The agent writes it to a file, and
// "pivot status" shows it. Nothing is decided by it.
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
	wantedPath   = "/run/pivot/wanted.json"
	wantedFormat = 1
)

// wantedFile returns the file below the directory that has the host's /run.
func wantedFile(root string) hostfiles.StateFile {
	return hostfiles.StateFile{
		Root: root, Path: wantedPath, Name: "what the cluster wants, " + wantedPath, Format: wantedFormat, Disk: hostfiles.OS{}, Mode: 0o644,
		Remedy: "remove the file: the node agent writes it again",
	}
}

// WriteWanted replaces the file; nil removes it.
func WriteWanted(root string, w *Wanted) error {
	if w == nil {
		return wantedFile(root).Remove()
	}
	w.Format = wantedFormat
	return wantedFile(root).Save(w)
}

// ReadWanted returns the file's content; nil if there is none, because the machine has no agent, or its node is
// not managed.
func ReadWanted(root string) (*Wanted, error) {
	var w Wanted
	err := wantedFile(root).Decode(&w)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &w, nil
}
