package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"machine-pivot/test/rpmostree"
	"machine-pivot/test/vm"
)

// toolDir is where a machine's disk has the stand-in for rpm-ostree: /usr belongs
// to the guest, which other machines share.
const toolDir = "/var/lib/rpm-ostree-standin"

// MachineOfRpmOstree makes a machine as MachineWith does, where rpm-ostree, that is
// its stand-in, makes the deployments and has layered packages on A, if any are given.
func (l *Lab) MachineOfRpmOstree(ctx context.Context, name string, s Setup, packages string, log io.Writer) (*vm.Machine, error) {
	program := filepath.Join(l.dir, "rpm-ostree")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "machine-pivot/test/rpmostree/rpm-ostree").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the stand-in for rpm-ostree: %w\n%s", err, out)
	}
	// A release that locks by a file, as the guest's libostree heeds it.
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
