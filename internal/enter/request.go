package enter

import (
	"errors"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
)

// Request names the deployment to enter. The run that commits it leaves the request for pivot-enter.service. That is a
// process of its own in the mount namespace of the initramfs, and its failure reboots the machine.
type Request struct {
	Deployment string `json:"deployment"` // its ID: STATEROOT-CHECKSUM.SERIAL
	Link       string `json:"link"`       // the value of ostree= in its boot entry
}

// Paths below /run, which ends with the boot.
const (
	requestPath = "pivot/enter.json" // the request; pivot-enter.service runs if it exists
	workPath    = "pivot/enter"      // what is made on the way
)

// Write leaves a request in /run, the directory run.
func (r Request) Write(run string) error { return requestIn(run).Save(r) }

// ReadRequest returns the request in /run, the directory run.
func ReadRequest(run string) (Request, error) {
	var r Request
	err := requestIn(run).Decode(&r)
	if err == nil && (r.Link == "" || r.Deployment == "") {
		err = requestIn(run).Unusable(errors.New("it names no deployment"))
	}
	return r, err
}

func requestIn(run string) hostfiles.StateFile {
	return hostfiles.StateFile{
		Path: filepath.Join(run, requestPath), Name: "request /run/" + requestPath,
		Remedy: "reboot the machine: it starts the committed system",
		Disk:   hostfiles.OS{}, Mode: 0o644,
	}
}
