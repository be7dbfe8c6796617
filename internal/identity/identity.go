// Package identity has what others know a machine by, and finds what of that is not as it was before a reboot. A node
// with a changed name joins its cluster as another one.
package identity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Identity is what others know a running machine by. What cannot be read is left out.
type Identity struct {
	Name       string              `json:"name"` // of the host, as the kernel has it
	MachineID  string              `json:"machineID,omitempty"`
	Keys       map[string]string   `json:"keys,omitempty"`       // fingerprints of SSH's host keys, by file
	Interfaces map[string][]string `json:"interfaces,omitempty"` // addresses that others can reach, by interface
	Routes     []string            `json:"routes,omitempty"`     // the default routes
}

// Nameless reports whether a name is one that systems have until they get theirs, and no machine can be known by.
func Nameless(name string) bool {
	first, _, _ := strings.Cut(strings.ToLower(name), ".")
	return slices.Contains([]string{"", "localhost", "localhost4", "localhost6", "fedora", "(none)"}, first)
}

// LostName reports whether the machine had a name, and has none now.
func (before Identity) LostName(now Identity) bool {
	return !Nameless(before.Name) && Nameless(now.Name)
}

// Changes returns what is not as it was, each as a sentence. What is new is no change: nobody knew the machine by it.
func (before Identity) Changes(now Identity) (changes []string) {
	changed := func(what, is, was string) {
		switch {
		case was == "" || is == was:
		case is == "":
			changes = append(changes, fmt.Sprintf("%s is gone; before the reboot it was %s", what, was))
		default:
			changes = append(changes, fmt.Sprintf("%s is %s; before the reboot it was %s", what, is, was))
		}
	}
	if before.Name != now.Name {
		changed("the host name", fmt.Sprintf("%q", now.Name), fmt.Sprintf("%q", before.Name))
	}
	changed("the machine ID", now.MachineID, before.MachineID)
	for _, file := range slices.Sorted(maps.Keys(before.Keys)) {
		changed("the SSH host key "+file, now.Keys[file], before.Keys[file])
	}
	for _, name := range slices.Sorted(maps.Keys(before.Interfaces)) {
		list := func(i Identity) string { return strings.Join(i.Interfaces[name], " ") }
		changed("the address of interface "+name, list(now), list(before))
	}
	changed("the default route", strings.Join(now.Routes, ", "), strings.Join(before.Routes, ", "))
	return changes
}
