package machine

import (
	"machine-pivot/internal/machineconfig/extensions"
	"machine-pivot/internal/mcfile"
	"machine-pivot/pivot"
)

// Packages returns what a MachineConfig asks of packages. Packages that the MachineConfigs in
// before asked for, and this one does not, return to the image's default.
func Packages(asked *mcfile.Desired, before ...*mcfile.Desired) (pivot.Packages, error) {
	p := packagesFor(asked.KernelType, asked.Extensions)
	for _, b := range before {
		for _, old := range packagesFor(b.KernelType, b.Extensions).Wishes {
			p.Add(pivot.PackageDefault, old.Name)
		}
	}
	var err error
	p.Source, err = Image(asked.ExtensionsImage)
	return p, err
}

// packagesFor returns the package wishes of a kernel type and extensions. The default kernel is
// the image's own, so it adds no wish.
func packagesFor(kernelType string, names []string) (p pivot.Packages) {
	add := func(of extensions.Packages) {
		p.Add(pivot.PackagePresent, of.Needed...)
		p.Add(pivot.PackageOffered, of.Offered...)
	}
	if kernelType != "" && kernelType != extensions.KernelDefault {
		add(extensions.Kernel(kernelType))
		for _, other := range extensions.KernelTypes() {
			if other != kernelType {
				p.Add(pivot.PackageAbsent, extensions.Kernel(other).Needed...)
			}
		}
	}
	for _, name := range names {
		add(extensions.Of(name))
	}
	return p
}
