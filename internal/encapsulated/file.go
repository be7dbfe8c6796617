package encapsulated

import (
	"fmt"
	"io/fs"
	"strconv"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/ignition"
)

// maxContent bounds a file's decompressed content, in bytes.
const maxContent = 1 << 20

// file turns an Ignition file into one of the host.
func file(f types.File) (hostfiles.File, error) {
	if len(f.Append) > 0 {
		return hostfiles.File{}, fmt.Errorf("not implemented: append")
	}
	if !isRoot(f.User.ID, f.User.Name) {
		return hostfiles.File{}, fmt.Errorf("not implemented: another user than root")
	}
	if !isRoot(f.Group.ID, f.Group.Name) {
		return hostfiles.File{}, fmt.Errorf("not implemented: another group than root")
	}
	mode := 0o644
	if f.Mode != nil {
		mode = *f.Mode
	}
	if mode < 0 || mode > 0o777 {
		return hostfiles.File{}, fmt.Errorf("mode %s is beyond 0777", "0"+strconv.FormatInt(int64(mode), 8))
	}
	content, err := ignition.Content(f.Contents, maxContent)
	return hostfiles.NewFile(f.Path, fs.FileMode(mode), content), err
}

// isRoot reports whether an owner is root, which no owner at all is too.
func isRoot(id *int, name *string) bool {
	return (id == nil || *id == 0) && (name == nil || *name == "" || *name == "root")
}
