// Package kubenode makes machines of test/worlds/vm nodes of a cluster: the real kubelet, with Debian's containerd,
// runc and plugins of the network, and images of pods. All of it is on the machine's disk, below /var and /etc, and
// none in its OS image. So the images that such a machine pulls stay small, as emulated machines need it.
package kubenode

import (
	"context"
	"embed"
	"fmt"
	"path/filepath"

	"machine-pivot/test/worlds/vm"
)

// Spec describes what makes a machine a node.
type Spec struct {
	Guest      vm.GuestSpec
	Builder    vm.Builder
	Kubelet    string // the binary on the host
	Kubeconfig []byte // kubelet's credentials, and where the API server is
	CA         []byte // the authority of clients, in PEM
	Images     []Image
}

//go:embed files
var files embed.FS

// Home is the directory of the programs on the machine.
const Home = "/var/opt/node"

// programs are the files of the packages, below Home, by their path in the packages.
func programs() map[string]string {
	return map[string]string{
		"usr/bin/containerd": "bin/containerd", "usr/bin/containerd-shim-runc-v2": "bin/containerd-shim-runc-v2", "usr/bin/ctr": "bin/ctr",
		"usr/sbin/runc":        "bin/runc",
		"usr/lib/cni/ptp":      "cni/ptp",
		"usr/lib/cni/loopback": "cni/loopback", "usr/lib/cni/host-local": "cni/host-local",
		"modules/veth.ko.xz": "modules/veth.ko.xz",
	}
}

// Files returns the files of the node. Packages that the cache lacks are downloaded.
func Files(ctx context.Context, s Spec) ([]vm.TreeFile, error) {
	packages, err := s.Builder.Packages(ctx, s.Guest, []string{"containerd", "runc", "containernetworking-plugins"}, []string{"kernel/drivers/net/veth.ko.xz"})
	if err != nil {
		return nil, err
	}
	all := []vm.TreeFile{
		{Path: Home + "/bin/kubelet", Mode: 0o755, Source: s.Kubelet},
		{Path: "/var/lib/kubelet/kubeconfig", Mode: 0o600, Content: s.Kubeconfig},
		{Path: "/etc/node/ca.crt", Mode: 0o644, Content: s.CA},
		{Path: "/etc/hosts", Mode: 0o644, Content: []byte("127.0.0.1 localhost\n")}, // containerd reads it
	}
	for from, to := range programs() {
		all = append(all, vm.TreeFile{Path: filepath.Join(Home, to), Mode: 0o755, Source: filepath.Join(packages, from)})
	}
	for _, image := range s.Images {
		all = append(all, vm.TreeFile{Path: filepath.Join(Home, "images", filepath.Base(image.Archive)), Mode: 0o644, Source: image.Archive})
	}
	settings, err := settings()
	return append(all, settings...), err
}

// settings returns the units and the configuration of the programs. kubelet.service replaces the
// stand-in of the guest.
func settings() ([]vm.TreeFile, error) {
	const units = "/etc/systemd/system/"
	all := []vm.TreeFile{
		{Path: units + "multi-user.target.wants/containerd.service", Symlink: "../containerd.service"},
		{Path: units + "multi-user.target.wants/kubelet.service", Symlink: "../kubelet.service"},
	}
	for name, to := range map[string]string{
		"containerd.service": units + "containerd.service", "images.service": units + "images.service", "kubelet.service": units + "kubelet.service",
		"containerd.toml": "/etc/node/containerd.toml", "kubelet.yaml": "/etc/node/kubelet.yaml", "10-pods.conflist": "/etc/cni/net.d/10-pods.conflist",
	} {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			return nil, fmt.Errorf("cannot make a node: %w", err)
		}
		all = append(all, vm.TreeFile{Path: to, Mode: 0o644, Content: text})
	}
	return all, nil
}
