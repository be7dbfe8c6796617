package machineconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// The machine-config operator has two lists of these packages: its controller (pkg/controller/common/helpers.go,
// SupportedExtensions and the packages of each kernel type) and its daemon (pkg/daemon/update.go, switchKernel). A
// package that only one of them has, or that the extensions repository of a release may lack, is Offered here. The
// lists need no conditions on the operating system: RHCOS and SCOS share them, and the repository of a release
// determines which of the packages exist.

// Packages are the packages of an extension or a kernel.
type Packages struct {
	Needed  []string
	Offered []string // installed if the repository has them
}

// extension is an extension that spec.extensions of a MachineConfig may name.
type extension struct {
	Name string
	Packages
}

// extensions returns the extensions, sorted by name.
func extensions() []extension {
	return []extension{
		// During an update the operator accepts ipsec without the third package, too.
		{"ipsec", Packages{[]string{"NetworkManager-libreswan", "libreswan"}, []string{"openvswitch3.5-ipsec"}}},
		{"kerberos", Packages{Needed: []string{"krb5-workstation", "libkadm5"}}},
		{"kernel-devel", Packages{Needed: []string{"kernel-devel", "kernel-headers"}}},
		{"sandboxed-containers", Packages{Needed: []string{"kata-containers"}}},
		{"sysstat", Packages{Needed: []string{"sysstat"}}},
		{"two-node-ha", Packages{Needed: []string{"pacemaker", "pcs", "fence-agents-all"}}},
		{"usbguard", Packages{Needed: []string{"usbguard"}}},
	}
}

// ExtensionNames returns the names of all extensions.
func ExtensionNames() (names []string) {
	for _, e := range extensions() {
		names = append(names, e.Name)
	}
	return names
}

// ExtensionPackages returns the packages of an extension, and none for an unknown one.
func ExtensionPackages(name string) Packages {
	all := extensions()
	if i := slices.IndexFunc(all, func(e extension) bool { return e.Name == name }); i >= 0 {
		return all[i].Packages
	}
	return Packages{}
}

// The kernel types, as named in spec.kernelType.
const (
	KernelDefault  = "default"
	KernelRealtime = "realtime"
	Kernel64k      = "64k-pages" // on arm64 only
)

// KernelTypes returns the kernel types. An empty spec.kernelType means KernelDefault.
func KernelTypes() []string { return []string{KernelDefault, KernelRealtime, Kernel64k} }

// KernelPackages returns the packages of a kernel type. An image contains the default kernel; another
// kernel replaces those of its packages that the image has.
func KernelPackages(kind string) Packages {
	switch kind {
	case KernelRealtime:
		// kernel-rt-kvm is in the controller's list only, and RHEL 10 has none.
		return Packages{[]string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"}, []string{"kernel-rt-kvm"}}
	case Kernel64k:
		return Packages{[]string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"}, nil}
	}
	return Packages{Needed: []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}}
}

// CheckPackages returns an error if a machine of an architecture cannot have a kernel type and extensions together.
func CheckPackages(kernelType string, names []string, architecture string) error {
	wrong := []error{checkKernelType(kernelType, architecture), checkTogether(kernelType, names)}
	for _, name := range names {
		wrong = append(wrong, checkExtension(name))
	}
	return errors.Join(wrong...)
}

// decodeExtensions decodes a list of extension names.
func decodeExtensions(n document.Node) (names []string) {
	for _, item := range n.Items() {
		name := item.Text()
		if err := checkExtension(name); err != nil {
			item.Fail("%v", err)
		}
		names = append(names, name)
	}
	return names
}

// checkExtension returns an error if there is no such extension.
func checkExtension(name string) error {
	if !slices.Contains(ExtensionNames(), name) {
		return fmt.Errorf("there is no extension %s; there are %s", problem.Quoted(name), strings.Join(ExtensionNames(), ", "))
	}
	return nil
}

// decodeKernelType decodes a kernel type; "" means the default. architecture is the machine's GOARCH,
// or "" if unknown.
func decodeKernelType(n document.Node, architecture string) string {
	kind := n.Text()
	if err := checkKernelType(kind, architecture); err != nil {
		n.Fail("%v", err)
	}
	return kind
}

// checkKernelType returns an error if the architecture has no such kernel type.
func checkKernelType(kind, architecture string) error {
	switch {
	case kind != "" && !slices.Contains(KernelTypes(), kind):
		return fmt.Errorf("there is no kernel type %s; there are %s", problem.Quoted(kind), strings.Join(KernelTypes(), ", "))
	case kind == Kernel64k && architecture != "" && architecture != "arm64":
		return fmt.Errorf("%s exists on arm64 only, and this machine is %s", kind, architecture)
	}
	return nil
}

// checkTogether returns an error if the kernel type and the extensions are incompatible.
func checkTogether(kernelType string, names []string) error {
	if slices.Contains(names, "kernel-devel") && kernelType != "" && kernelType != KernelDefault {
		return fmt.Errorf("kernel-devel fits the default kernel only, not the kernel type %s", kernelType)
	}
	return nil
}
