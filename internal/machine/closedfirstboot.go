package machine

import (
	"fmt"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/mcfile"
)

// ClosedFirstBoot returns the digest of the encapsulated MachineConfig whose first boot has ended in a system, given by
// its root directory; "" if none has. A closed file, without one that is open, says so also where the journal could not
// be written: it is in /etc, which belongs to one system only.
func ClosedFirstBoot(root string) (hostfiles.Digest, error) {
	_, open, err := hostfiles.Read(root, mcfile.Path)
	closed := hostfiles.File{}
	if err == nil && !open {
		closed, _, err = hostfiles.Read(root, mcfile.ClosedPath)
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell whether a first boot has ended in %s: %w", root, err)
	}
	return closed.Digest, nil
}
