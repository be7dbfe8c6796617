package initramfs

import (
	"errors"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
)

// EnterRequest names the deployment to enter. The run that commits it leaves the request for pivot-enter.service. That is a
// process of its own in the mount namespace of the initramfs, and its failure reboots the machine.
type EnterRequest struct {
	Deployment string `json:"deployment"` // its ID: STATEROOT-CHECKSUM.SERIAL
	Link       string `json:"link"`       // the value of ostree= in its boot entry
}

// Paths below /run, which ends with the boot.
const (
	enterRequestPath = "pivot/enter.json" // the request; pivot-enter.service runs if it exists
	enterWorkPath    = "pivot/enter"      // what is made on the way
)

// write leaves a request in /run, the directory run.
func (r EnterRequest) write(run string) error { return enterRequestIn(run).Save(r) }

// ReadEnterRequest returns the request in /run, the directory run.
func ReadEnterRequest(run string) (EnterRequest, error) {
	var r EnterRequest
	err := enterRequestIn(run).Decode(&r)
	if err == nil && (r.Link == "" || r.Deployment == "") {
		err = enterRequestIn(run).Unusable(errors.New("it names no deployment"))
	}
	return r, err
}

func enterRequestIn(run string) hostfiles.StateFile {
	return hostfiles.StateFile{
		Path: filepath.Join(run, enterRequestPath), Name: "request /run/" + enterRequestPath,
		Remedy: "reboot the machine: it starts the committed system",
		Disk:   hostfiles.OS{}, Mode: 0o644,
	}
}
