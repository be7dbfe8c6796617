package hostfiles

import (
	"slices"
	"strings"
)

// alias is a directory that is a link into /var on ostree hosts.
type alias struct{ link, to string }

// aliases returns these links, as rpm-ostree and bootc make them in an image.
func aliases() []alias {
	return []alias{
		{"/home", "/var/home"}, {"/mnt", "/var/mnt"}, {"/opt", "/var/opt"}, {"/root", "/var/roothome"}, {"/srv", "/var/srv"}, {"/usr/local", "/var/usrlocal"},
	}
}

// Resolved returns a clean path without the links of ostree hosts: /var/home/core for /home/core.
func Resolved(name string) string {
	for _, a := range aliases() {
		if within(name, a.link) {
			return a.to + strings.TrimPrefix(name, a.link)
		}
	}
	return name
}

// LinkedAs returns the link that leads to a canonical path, such as "/opt" for a path below
// /var/opt; "" if there is none.
func LinkedAs(name string) string {
	for _, a := range aliases() {
		if within(name, a.to) {
			return a.link
		}
	}
	return ""
}

// IntoVar returns the directories that are links into /var on ostree hosts, sorted.
func IntoVar() []string {
	var names []string
	for _, a := range aliases() {
		names = append(names, a.link)
	}
	slices.Sort(names)
	return names
}

// within reports whether a clean path is dir or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
