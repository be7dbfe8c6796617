package box

import (
	"os/exec"
	"syscall"
)

// namespaces are a box's own. The namespace for cgroups is made later: it must begin at the box's cgroup.
const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET

// enterNamespaces returns an error if this process cannot make a box's namespaces. In some containers not even
// root can.
func enterNamespaces() error {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	return cmd.Run()
}
