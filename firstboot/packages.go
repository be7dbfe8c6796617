package firstboot

import (
	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/machineconfig/extensions"
	"machine-pivot/pivot"
)

// packages are what a MachineConfig asks of packages. What others asked for before it, and
// this one does not, shall be as the image has it.
func packages(asked *encapsulated.Desired, before ...*encapsulated.Desired) (pivot.Packages, error) {
	p := packagesFor(asked.KernelType, asked.Extensions)
	for _, b := range before {
		for _, old := range packagesFor(b.KernelType, b.Extensions).Wishes {
			p.Add(pivot.PackageDefault, old.Name)
		}
	}
	var err error
	p.Source, err = image(asked.ExtensionsImage)
	return p, err
}

// packagesFor are what a kernel type and extensions mean for packages. The default kernel is
// the image's own, so it is no wish.
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
