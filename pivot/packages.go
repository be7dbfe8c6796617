package pivot

import (
	"fmt"
	"slices"
)

// Package is a wish about one package of the system, by its name.
type Package struct {
	Name string      `json:"name"`
	Wish PackageWish `json:"wish"`
}

// PackageWish is what shall be true of a package.
type PackageWish string

const (
	// PackagePresent asks for the package: the image has it, or it is layered on top.
	PackagePresent PackageWish = "present"
	// PackageAbsent asks that the system does not have it, though the image may.
	PackageAbsent PackageWish = "absent"
	// PackageDefault asks for what the image has: a package that was layered goes, one
	// that was removed comes back.
	PackageDefault PackageWish = "default"
	// PackageOffered asks for the package where one that is present has to be installed and
	// the repository has this one too. A system without it is no other than one with it.
	PackageOffered PackageWish = "offered"
)

// Packages are what a target says of packages. Those of which it says nothing stay as they
// are, also those that an administrator has layered.
type Packages struct {
	Wishes []Package `json:"wishes,omitempty"`
	// Source is an image that carries a repository of packages; zero: there is none. Which
	// one it is does not matter once the packages are there.
	Source Image `json:"source,omitzero"`
}

// Add adds wishes for packages of which nothing is said yet.
func (p *Packages) Add(wish PackageWish, names ...string) {
	for _, name := range names {
		if !p.says(name) {
			p.Wishes = append(p.Wishes, Package{name, wish})
		}
	}
}

// says reports whether something is said of a package.
func (p Packages) says(name string) bool {
	return slices.ContainsFunc(p.Wishes, func(w Package) bool { return w.Name == name })
}

// IsZero reports whether nothing is said.
func (p Packages) IsZero() bool { return len(p.Wishes) == 0 }

// same reports whether both ask for the same packages.
func (p Packages) same(other Packages) bool { return slices.Equal(p.Wishes, other.Wishes) }

// Asked are the names of packages of which it must be known whether a system has them.
func (p Packages) Asked() (names []string) {
	for _, w := range p.Wishes {
		if w.Wish == PackagePresent || w.Wish == PackageAbsent {
			names = append(names, w.Name)
		}
	}
	return names
}

// Offered are the names of packages that are wished for only where a repository has them.
func (p Packages) Offered() (names []string) {
	for _, w := range p.Wishes {
		if w.Wish == PackageOffered {
			names = append(names, w.Name)
		}
	}
	return names
}

// Repository is a repository of packages in a directory of the host.
type Repository struct {
	Dir   string   // with its metadata in repodata; "": there is none
	Names []string // of the packages in it
}

// SystemPackages are what a deployment has of the packages that were asked about.
type SystemPackages struct {
	Installed []string // all, if any were asked about that Packages.Asked names
	Layered   []string // that rpm-ostree was asked to add to the image
	Removed   []string // that rpm-ostree was asked to remove from it
}

// change is what has to happen to a system so that a wish is true; "" is nothing.
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

// Changes are what has to happen to a system so that it has what is asked for.
func (s SystemPackages) Changes(p Packages) []PackageChange {
	changes := []PackageChange{}
	for _, w := range p.Wishes {
		if action := s.change(w); action != "" {
			changes = append(changes, PackageChange{Name: w.Name, Action: action})
		}
	}
	return changes
}

// Lacks are the packages that shall be there and are not installed, whatever rpm-ostree was
// asked for.
func (s SystemPackages) Lacks(p Packages) (names []string) {
	for _, w := range p.Wishes {
		if w.Wish == PackagePresent && !slices.Contains(s.Installed, w.Name) {
			names = append(names, w.Name)
		}
	}
	return names
}

// others are the layered packages of which nothing is said.
func (s SystemPackages) others(p Packages) (names []string) {
	for _, name := range s.Layered {
		if !p.says(name) {
			names = append(names, name)
		}
	}
	return names
}

// PackageAction is what happens to a package.
type PackageAction string

const (
	PackageInstall   PackageAction = "install"   // it is layered on top of the image
	PackageUninstall PackageAction = "uninstall" // it is no longer layered
	PackageRemove    PackageAction = "remove"    // the image's own is left out
	PackageRestore   PackageAction = "restore"   // the image's own is there again
)

// PackageChange is one package that will differ in the new deployment.
type PackageChange struct {
	Name   string        `json:"name"`
	Action PackageAction `json:"action"`
}

// String is what is wrong with a system that still needs the change.
func (c PackageChange) String() string {
	wrong := map[PackageAction]string{
		PackageInstall: "missing", PackageUninstall: "still layered", PackageRemove: "still there", PackageRestore: "removed from the image",
	}[c.Action]
	return fmt.Sprintf("package %s: %s", c.Name, wrong)
}
