// Package extensions knows which packages a MachineConfig's extensions and kernel types
// stand for. It does no I/O.
//
// Source: the machine-config operator. Its controller
// (pkg/controller/common/helpers.go, SupportedExtensions and the packages of each kernel
// type) and its daemon (pkg/daemon/update.go, switchKernel) have lists of their own, which
// are reconciled here: what only one of them has, or what a release's repository of
// extensions may lack, is Offered: installed where the repository has it.
//
// The lists need no conditions on family and release of the operating system: RHCOS and
// SCOS share them, and which of the names a release has its repository says.
package extensions

import "slices"

// Packages are those of an extension or a kernel.
type Packages struct {
	Needed  []string
	Offered []string // installed if the repository has them
}

// Extension is what a MachineConfig may name in spec.extensions.
type Extension struct {
	Name string
	Packages
}

// All are the extensions, by name.
func All() []Extension {
	return []Extension{
		// During an update the operator accepts ipsec without the third package too.
		{"ipsec", Packages{[]string{"NetworkManager-libreswan", "libreswan"}, []string{"openvswitch3.5-ipsec"}}},
		{"kerberos", Packages{Needed: []string{"krb5-workstation", "libkadm5"}}},
		{"kernel-devel", Packages{Needed: []string{"kernel-devel", "kernel-headers"}}},
		{"sandboxed-containers", Packages{Needed: []string{"kata-containers"}}},
		{"sysstat", Packages{Needed: []string{"sysstat"}}},
		{"two-node-ha", Packages{Needed: []string{"pacemaker", "pcs", "fence-agents-all"}}},
		{"usbguard", Packages{Needed: []string{"usbguard"}}},
	}
}

// Names are the names of the extensions.
func Names() (names []string) {
	for _, e := range All() {
		names = append(names, e.Name)
	}
	return names
}

// Of are the packages of an extension; there are none if there is no such extension.
func Of(name string) Packages {
	all := All()
	if i := slices.IndexFunc(all, func(e Extension) bool { return e.Name == name }); i >= 0 {
		return all[i].Packages
	}
	return Packages{}
}

// The kernel types, by their names in spec.kernelType.
const (
	KernelDefault  = "default"
	KernelRealtime = "realtime"
	Kernel64k      = "64k-pages" // on arm64 only
)

// KernelTypes are the kernel types; "" stands for the default one too.
func KernelTypes() []string { return []string{KernelDefault, KernelRealtime, Kernel64k} }

// Kernel are the packages of a kernel type. Of the default kernel an image has them; all
// that it has of them make way for another kernel.
func Kernel(kind string) Packages {
	switch kind {
	case KernelRealtime:
		// kernel-rt-kvm is in the controller's list only, and RHEL 10 has none.
		return Packages{[]string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"}, []string{"kernel-rt-kvm"}}
	case Kernel64k:
		return Packages{[]string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"}, nil}
	}
	return Packages{Needed: []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}}
}
