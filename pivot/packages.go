package pivot

import (
	"fmt"
	"slices"
)

// Package is a wish about one package of the system.
type Package struct {
	Name string      `json:"name"`
	Wish PackageWish `json:"wish"`
}

// PackageWish is the wanted state of a package.
type PackageWish string

const (
	// PackagePresent wants the package, from the image or layered on top.
	PackagePresent PackageWish = "present"
	// PackageAbsent wants the system without the package, even if the image has it.
	PackageAbsent PackageWish = "absent"
	// PackageDefault wants what the image has: a layered package is uninstalled, a removed one
	// is restored.
	PackageDefault PackageWish = "default"
	// PackageOffered wants the package to be installed along with a PackagePresent one, if the
	// repository has it. Whether it is there makes no difference otherwise.
	PackageOffered PackageWish = "offered"
)

// Packages are a target's wishes for packages. Packages without a wish stay as they are,
// including those that an administrator has layered.
type Packages struct {
	Wishes []Package `json:"wishes,omitempty"`
	// Source is an image with a package repository; zero if there is none. It does not count when
	// targets are compared.
	Source Image `json:"source,omitzero"`
}

// Add adds a wish for those of the named packages that have none yet.
func (p *Packages) Add(wish PackageWish, names ...string) {
	for _, name := range names {
		if !p.has(name) {
			p.Wishes = append(p.Wishes, Package{name, wish})
		}
	}
}

// has reports whether there is a wish for a package.
func (p Packages) has(name string) bool {
	return slices.ContainsFunc(p.Wishes, func(w Package) bool { return w.Name == name })
}

// IsZero reports whether there are no wishes.
func (p Packages) IsZero() bool { return len(p.Wishes) == 0 }

// same reports whether both have the same wishes.
func (p Packages) same(other Packages) bool { return slices.Equal(p.Wishes, other.Wishes) }

// Names returns the names of packages with one of some wishes.
func (p Packages) Names(of ...PackageWish) (names []string) {
	for _, w := range p.Wishes {
		if slices.Contains(of, w.Wish) {
			names = append(names, w.Name)
		}
	}
	return names
}

// Repository is a package repository in a directory of the host.
type Repository struct {
	Dir   string   // with metadata in its subdirectory repodata; "" if there is none
	Names []string // of its packages
}

// SystemPackages are the packages of a deployment.
type SystemPackages struct {
	Installed []string // all installed packages; only filled in if a wish is PackagePresent or PackageAbsent
	Layered   []string // requested from rpm-ostree on top of the image
	Removed   []string // removed from the image by an rpm-ostree override
}

// change returns what has to be done to fulfill a wish; "" if nothing.
func (s SystemPackages) change(p Package) PackageAction {
	installed, layered, removed := slices.Contains(s.Installed, p.Name), slices.Contains(s.Layered, p.Name), slices.Contains(s.Removed, p.Name)
	switch {
	case p.Wish == PackageOffered:
		return ""
	case removed && p.Wish != PackageAbsent:
		return PackageRestore
	case p.Wish == PackagePresent && !installed && !layered:
		return PackageInstall
	case layered && p.Wish != PackagePresent:
		return PackageUninstall
	case p.Wish == PackageAbsent && installed && !removed:
		return PackageRemove
	}
	return ""
}

// Changes returns what has to be done to fulfill all wishes.
func (s SystemPackages) Changes(p Packages) []PackageChange {
	changes := []PackageChange{}
	for _, w := range p.Wishes {
		if action := s.change(w); action != "" {
			changes = append(changes, PackageChange{Name: w.Name, Action: action})
		}
	}
	return changes
}

// Lacks returns the wanted packages that are not installed, even if they are requested from
// rpm-ostree.
func (s SystemPackages) Lacks(p Packages) []string {
	return slices.DeleteFunc(p.Names(PackagePresent), func(name string) bool { return slices.Contains(s.Installed, name) })
}

// others returns the layered packages without a wish.
func (s SystemPackages) others(p Packages) []string {
	return slices.DeleteFunc(slices.Clone(s.Layered), p.has)
}

// PackageAction is the change of one package.
type PackageAction string

const (
	PackageInstall   PackageAction = "install"   // layer it on top of the image
	PackageUninstall PackageAction = "uninstall" // stop layering it
	PackageRemove    PackageAction = "remove"    // remove the image's package
	PackageRestore   PackageAction = "restore"   // undo the removal of the image's package
)

// PackageChange is the change of one package in the new deployment.
type PackageChange struct {
	Name   string        `json:"name"`
	Action PackageAction `json:"action"`
}

// String returns what is wrong with a system that still needs the change.
func (c PackageChange) String() string {
	wrong := map[PackageAction]string{
		PackageInstall: "missing", PackageUninstall: "still layered", PackageRemove: "still there", PackageRestore: "removed from the image",
	}[c.Action]
	return fmt.Sprintf("package %s: %s", c.Name, wrong)
}
