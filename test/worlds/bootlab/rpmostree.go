package bootlab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"machine-pivot/test/worlds/rpmostree"
	"machine-pivot/test/worlds/vm"
)

// toolDir is the directory of rpm-ostree's stand-in on a machine's disk. It is not in /usr, which is
// part of the guest and shared with other machines.
const toolDir = "/var/lib/rpm-ostree-standin"

// MachineOfRpmOstree is like MachineWith, but rpm-ostree (a stand-in) makes the deployments. packages
// are the layered packages in A's origin, each with a ";" at its end; "": none.
func (l *Lab) MachineOfRpmOstree(ctx context.Context, name string, s Setup, packages string, log io.Writer) (*vm.Machine, error) {
	program := filepath.Join(l.dir, "rpm-ostree")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "machine-pivot/test/worlds/rpmostree/rpm-ostree").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the stand-in for rpm-ostree: %w\n%s", err, out)
	}
	// A release that locks finalization by a file, which the guest's libostree supports.
	control, err := json.Marshal(rpmostree.Control{Version: "2024.5"})
	if err != nil {
		return nil, err
	}
	dropIn := "[Service]\nEnvironment=PATH=" + toolDir + ":/usr/sbin:/usr/bin\n" +
		"ExecStart=\nExecStart=/usr/bin/pivot firstboot --engine=rpm-ostree\n"
	spec := l.spec(s)
	spec.Origin = []byte("[origin]\nrefspec=" + l.Guest.CommitA + "\n")
	if packages != "" {
		spec.Origin = append(spec.Origin, "[packages]\nrequested="+packages+"\n"...)
	}
	spec.Files = append(spec.Files,
		vm.TreeFile{Path: toolDir + "/rpm-ostree", Mode: 0o755, Source: program},
		vm.TreeFile{Path: rpmostree.ControlPath, Mode: 0o644, Content: control},
		vm.TreeFile{Path: "/etc/systemd/system/pivot-firstboot.service.d/engine.conf", Mode: 0o644, Content: []byte(dropIn)})
	return l.machine(ctx, name, spec, log)
}
