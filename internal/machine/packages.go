package machine

import (
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
)

// Packages returns what a MachineConfig asks of packages. Packages that the MachineConfigs in
// before asked for, and this one does not, return to the image's default.
func Packages(asked *machineconfig.MachineConfig, before ...*machineconfig.MachineConfig) pivot.Packages {
	p := packagesFor(asked.KernelType, asked.Extensions)
	for _, b := range before {
		for _, old := range packagesFor(b.KernelType, b.Extensions).Wishes {
			p.Add(pivot.PackageDefault, old.Name)
		}
	}
	p.Source = pivot.ImageOf(asked.ExtensionsImage)
	return p
}

// packagesFor returns the package wishes of a kernel type and extensions. The default kernel is
// the image's own, so it adds no wish.
func packagesFor(kernelType string, names []string) (p pivot.Packages) {
	add := func(of machineconfig.Packages) {
		p.Add(pivot.PackagePresent, of.Needed...)
		p.Add(pivot.PackageOffered, of.Offered...)
	}
	if kernelType != "" && kernelType != machineconfig.KernelDefault {
		add(machineconfig.KernelPackages(kernelType))
		for _, other := range machineconfig.KernelTypes() {
			if other != kernelType {
				p.Add(pivot.PackageAbsent, machineconfig.KernelPackages(other).Needed...)
			}
		}
	}
	for _, name := range names {
		add(machineconfig.ExtensionPackages(name))
	}
	return p
}
