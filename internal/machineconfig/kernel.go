package machineconfig

import (
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// Extensions reads a list of extension names.
func Extensions(n document.Node) (names []string) {
	for _, item := range n.Items() {
		name := item.Text()
		if err := CheckExtension(name); err != nil {
			item.Fail("%v", err)
		}
		names = append(names, name)
	}
	return names
}

// CheckExtension returns an error if there is no such extension.
func CheckExtension(name string) error {
	if !slices.Contains(ExtensionNames(), name) {
		return fmt.Errorf("there is no extension %s; there are %s", problem.Quoted(name), strings.Join(ExtensionNames(), ", "))
	}
	return nil
}

// KernelType reads a kernel type; "" means the default. architecture is the machine's GOARCH,
// or "" if unknown.
func KernelType(n document.Node, architecture string) string {
	kind := n.Text()
	if err := CheckKernelType(kind, architecture); err != nil {
		n.Fail("%v", err)
	}
	return kind
}

// CheckKernelType returns an error if the architecture has no such kernel type.
func CheckKernelType(kind, architecture string) error {
	switch {
	case kind != "" && !slices.Contains(KernelTypes(), kind):
		return fmt.Errorf("there is no kernel type %s; there are %s", problem.Quoted(kind), strings.Join(KernelTypes(), ", "))
	case kind == Kernel64k && architecture != "" && architecture != "arm64":
		return fmt.Errorf("%s exists on arm64 only, and this machine is %s", kind, architecture)
	}
	return nil
}

// CheckTogether returns an error if the kernel type and the extensions are incompatible.
func CheckTogether(kernelType string, names []string) error {
	if slices.Contains(names, "kernel-devel") && kernelType != "" && kernelType != KernelDefault {
		return fmt.Errorf("kernel-devel fits the default kernel only, not the kernel type %s", kernelType)
	}
	return nil
}
