package guest

import (
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/vm"
)

// AgentFiles returns the files with which a machine joins a cluster as a node, by the agent as a unit, with those of
// its first MachineConfig. server is the URL of the API server for the machine.
func AgentFiles(plane *controlplane.ControlPlane, node, server string, first bootlab.Config) []vm.TreeFile {
	config := plane.NodeUser(node)
	config.Host = server
	const units = "/etc/systemd/system/"
	files := []vm.TreeFile{
		{Path: "/etc/hostname", Mode: 0o644, Content: []byte(node + "\n")},
		{Path: "/var/lib/kubelet/kubeconfig", Mode: 0o600, Content: plane.Kubeconfig(config)},
		{Path: units + "multi-user.target.wants/pivot-agent.service", Symlink: "/usr/lib/systemd/system/pivot-agent.service"},
		{Path: units + "pivot-agent.service.d/test.conf", Mode: 0o644,
			Content: []byte("[Service]\nExecStart=\nExecStart=/usr/bin/pivot-agent node --verbose\n")},
		{Path: "/etc/systemd/journald.conf.d/test.conf", Mode: 0o644, Content: []byte("[Journal]\nForwardToConsole=yes\n")},
	}
	for path, content := range first.Files {
		files = append(files, vm.TreeFile{Path: path, Mode: 0o644, Content: []byte(content)})
	}
	return files
}
