package rehearse

import (
	"path"
	"slices"
	"strings"
)

// Own is what the new /etc has of the machine, besides the image's own files.
type Own struct {
	Files   map[string]File // by their absolute paths
	Enabled []string        // services
	size    int             // of the files, in bytes
}

// maxOwn limits the files of a machine, in bytes.
const maxOwn = 4 << 20

// Add adds a file that is asked about, as long as there is room.
func (o *Own) Add(name string, f File) {
	matches := func(pattern string) bool { is, _ := path.Match(pattern, name); return is }
	if !slices.ContainsFunc(Patterns(), matches) {
		return
	}
	if o.size += len(f.Content); o.size > maxOwn {
		return
	}
	if o.Files == nil {
		o.Files = map[string]File{}
	}
	o.Files[name] = f
}

// File is a file for the programs of a rehearsal. They own it, as root's programs do at the next boot: they can read it, and
// judge its mode in the same way.
type File struct {
	Content []byte
	Mode    uint32 // permission bits
	GID     int
}

// Patterns match the paths of the files that are asked about, as path.Match does.
func Patterns() []string {
	return []string{
		unitsDir + "/*.service", unitsDir + "/*.service.d/*.conf",
		sshDir + "/sshd_config", sshDir + "/sshd_config.d/*.conf", sshDir + "/ssh_host_*_key",
		crioDir + "/crio.conf", crioDir + "/crio.conf.d/*",
		"/etc/sysconfig/network-scripts/ifcfg-*", "/etc/systemd/network/*.link",
	}
}

// below returns the files below a directory of /etc, as they are put into a system's tree.
func (o Own) below(dir string) map[string]File {
	files := map[string]File{}
	for name, file := range o.Files {
		if strings.HasPrefix(name, dir+"/") {
			files[path.Join("usr", name)] = file
		}
	}
	return files
}

// named returns the paths of files that match a pattern, sorted.
func (o Own) named(pattern string) (names []string) {
	for name := range o.Files {
		if matches, _ := path.Match(pattern, name); matches {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
