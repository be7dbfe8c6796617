package crash

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
	"machine-pivot/test/worlds/ostreetree"
)

// NewSystems creates a repository with the commits A and B. The subject gives their checksums the first letters a and b, by
// which files of the machine are named.
func NewSystems(dir string) (repo string, err error) {
	repo = filepath.Join(dir, "repo")
	if err := ostreetree.Init(repo, "bare"); err != nil {
		return "", err
	}
	for _, commit := range []string{commitA, commitB} {
		tree, files := filepath.Join(dir, imageHas(commit)), map[string]string{}
		for path, content := range systemHas(commit) {
			files[tree+path] = content
		}
		if err := writeAll(files); err != nil {
			return "", err
		}
		sum, err := ostreetree.Ostree("commit", "--repo="+repo, "--orphan", "--tree=dir="+tree, "--timestamp=@0", "--owner-uid=0", "--owner-gid=0", "--no-xattrs", "--subject=38")
		if err != nil {
			return "", err
		}
		if sum != commit {
			return "", fmt.Errorf("the commit with what %s has is %s", commit, sum)
		}
	}
	return repo, nil
}

// systemHas returns the files of a commit's image. Both images have both.service, with different
// install targets; only B enables preset.service by default; only B has only.service.
func systemHas(commit string) map[string]string {
	const units = "/usr/lib/systemd/system/"
	install := func(target string) string { return "[Install]\nWantedBy=" + target + ".target\n" }
	files := map[string]string{
		"/usr" + shipped:                              imageHas(commit),
		"/usr/etc/untouched":                          imageHas(commit),
		units + "pivot-project.service":               "[Service]\n",
		units + "both.service":                        install("multi-user"),
		units + "off.service":                         install("multi-user"),
		units + "by-hand.service":                     install("multi-user"),
		units + "masked.service":                      install("multi-user"),
		"/usr/lib/systemd/system-preset/90-os.preset": "disable *\n",
	}
	if commit == commitB {
		files[units+"both.service"], files[units+"only.service"] = install("graphical"), install("multi-user")
		files["/usr/lib/systemd/system-preset/90-os.preset"] = "enable preset.service\ndisable *\n"
	}
	return files
}

// presetUnit is a unit in both MachineConfigs that is enabled or not by the presets, in the form of
// an Ignition config.
const presetUnit = `{"name":"preset.service","contents":"[Install]\nWantedBy=multi-user.target\n"}`

// firstConfig is the MachineConfig that the machine starts with.
const firstConfig = `{"metadata":{"name":"first"},"spec":{"kernelArguments":["first=1"],"config":{"ignition":{"version":"3.4.0"},
"storage":{"files":[
 {"path":"/etc/app/conf","mode":420,"contents":{"source":"data:,first"}},
 {"path":"/etc/app/gone","mode":420,"contents":{"source":"data:,first"}},
 {"path":"/etc/mine","mode":420,"contents":{"source":"data:,first"}},
 {"path":"/etc/shipped","mode":420,"contents":{"source":"data:,first"}},
 {"path":"/var/lib/own","mode":384,"contents":{"source":"data:,first"}},
 {"path":"/opt/tool","mode":493,"contents":{"source":"data:,first"}}],
"directories":[{"path":"/etc/app","mode":493}],"links":[{"path":"/etc/app/link","target":"conf"}]},
"systemd":{"units":[{"name":"both.service","enabled":true},{"name":"off.service","enabled":true},{"name":"by-hand.service","enabled":true},
 {"name":"dropped.service","enabled":true,"contents":"[Install]\nWantedBy=multi-user.target\n"},` + presetUnit + `]},
"passwd":{"users":[{"name":"core","passwordHash":"$6$first","sshAuthorizedKeys":["first"]}]}}}}`

// secondConfig returns the MachineConfig that is applied. Its group cannot be applied.
func secondConfig() string {
	pinned := ""
	files := pinningFiles()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		pinned += fmt.Sprintf(`{"path":%q,"mode":%d,"contents":{"source":"data:;base64,%s"}},`, path, pinningMode, base64.StdEncoding.EncodeToString([]byte(files[path])))
	}
	return fmt.Sprintf(`{"metadata":{"name":"second"},"spec":{"osImageURL":%q,"kernelArguments":[%q],"config":{"ignition":{"version":"3.4.0"},
"storage":{"files":[%s
 {"path":"/etc/app/conf","mode":384,"user":{"name":"core"},"group":{"name":"core"},"contents":{"source":"data:,second"}},
 {"path":"/etc/app/made/file","mode":420,"contents":{"source":"data:,second"}},
 {"path":"/var/lib/own","mode":416,"contents":{"source":"data:,second"}},
 {"path":"/usr/local/bin/tool","mode":493,"contents":{"source":"data:,second"}}],
"directories":[{"path":"/etc/app","mode":488}],"links":[{"path":"/etc/app/link","target":"made/file"}]},
"systemd":{"units":[{"name":"both.service","enabled":true},{"name":"off.service","enabled":false},{"name":"only.service","enabled":true},
 {"name":"masked.service","mask":true},%s]},
"passwd":{"groups":[{"name":"left-out"}],"users":[{"name":"core","passwordHash":"$6$second","sshAuthorizedKeys":["second"]}]}}}}`, imageB, argsB, pinned, presetUnit)
}

// shown is an entry as "KIND MODE OWNER CONTENT"; for a link, "link TARGET".
type shown string

func (s shown) file(path string) (f hostfiles.File) {
	fields := strings.SplitN(string(s), " ", 4)
	if fields[0] == "link" {
		return hostfiles.NewLink(path, fields[1])
	}
	var mode, owner int
	if _, err := fmt.Sscanf(fields[1]+" "+fields[2], "%o %d", &mode, &owner); err != nil {
		panic(err) // constants
	}
	if f = hostfiles.NewDirectory(path, fs.FileMode(mode)); fields[0] == "file" {
		f = hostfiles.NewFile(path, fs.FileMode(mode), []byte(fields[3]))
	}
	if f.UID = owner; owner > 0 {
		f.GID = owner + 1
	}
	return f
}

// describe returns all entries below a directory, except those that it cannot read.
func describe(root, dir string) map[string]shown {
	all := map[string]shown{}
	_ = filepath.WalkDir(root+dir, func(name string, _ fs.DirEntry, err error) error {
		path := strings.TrimPrefix(name, root)
		if err != nil || path == dir {
			return err
		}
		f, _, err := hostfiles.Read(root, path)
		switch f.Kind {
		case hostfiles.KindLink:
			all[path] = shown("link " + f.Target)
		case hostfiles.KindDirectory:
			all[path] = shown(fmt.Sprintf("directory %o %d", f.Mode, f.UID))
		default:
			all[path] = shown(fmt.Sprintf("file %o %d %s", f.Mode, f.UID, f.Content))
		}
		if f.UID > 0 && f.GID != f.UID+1 {
			all[path] += shown(fmt.Sprint(" of group ", f.GID))
		}
		return err
	})
	return all
}

const (
	wants     = "/etc/systemd/system/multi-user.target.wants/"
	accounts  = "core:x:1000:1001::/home/core:/bin/sh\n"
	group     = "core:x:1001:\n"
	noEntry   = shown("")
	presetHas = shown("file 644 0 [Install]\nWantedBy=multi-user.target\n")
	unitOf    = shown("link /usr/lib/systemd/system/")
)

func shadowWith(hash string) string { return "core:" + hash + ":1::::::\n" }

// etcA is the /etc of A without the record, passwords and carriers: the image's files, those of the
// first MachineConfig, and local changes: /etc/mine is changed, and by-hand.service is disabled.
var etcA = map[string]shown{
	"/etc/app": "directory 755 0", "/etc/app/conf": "file 644 0 first", "/etc/app/gone": "file 644 0 first", "/etc/app/link": "link conf",
	"/etc/pivot": "directory 755 0", "/etc/mine": "file 644 0 changed by hand", "/etc/shipped": "file 644 0 first",
	"/etc/passwd": "file 644 0 " + accounts, "/etc/group": "file 644 0 " + group,
	"/etc/systemd/system/preset.service": presetHas, "/etc/systemd/system/dropped.service": presetHas,
	wants + "both.service": unitOf + "both.service", wants + "off.service": unitOf + "off.service",
	wants + "dropped.service": "link /etc/systemd/system/dropped.service",
	"/etc/systemd/system/sysinit.target.wants/pivot-project.service": unitOf + "pivot-project.service",
}

// etcB is the differences of B to etcA.
var etcB = map[string]shown{
	"/etc/app": "directory 750 0", "/etc/app/conf": "file 600 1000 second", "/etc/app/gone": noEntry, "/etc/app/link": "link made/file",
	"/etc/app/made": "directory 755 0", "/etc/app/made/file": "file 644 0 second", "/etc/shipped": shown("file 644 0 " + imageHas(commitB)),
	"/etc/systemd/system/dropped.service": noEntry, wants + "dropped.service": noEntry, wants + "off.service": noEntry, wants + "both.service": noEntry,
	"/etc/systemd/system/graphical.target.wants/both.service": unitOf + "both.service", wants + "only.service": unitOf + "only.service",
	wants + "preset.service": "link /etc/systemd/system/preset.service", "/etc/systemd/system/masked.service": "link /dev/null",
}

// ownVar is the machine's own /var; varA and varB are the differences in the two systems.
var (
	ownVar = map[string]shown{"/var/lib": "directory 755 0", "/var/lib/own": "file 644 0 own", "/var/home": "directory 755 0", "/var/home/core": "directory 700 1000"}
	keys   = map[string]shown{"/var/home/core/.ssh": "directory 700 1000", "/var/home/core/.ssh/authorized_keys.d": "directory 700 1000"}
	varA   = map[string]shown{
		"/var/lib/own": "file 600 0 first", "/var/opt": "directory 755 0", "/var/opt/tool": "file 755 0 first",
		"/var/home/core/.ssh/authorized_keys.d/ignition": "file 600 1000 first\n",
	}
	varB = map[string]shown{
		"/var/lib/own": "file 640 0 second", "/var/usrlocal": "directory 755 0", "/var/usrlocal/bin": "directory 755 0", "/var/usrlocal/bin/tool": "file 755 0 second",
		"/var/home/core/.ssh/authorized_keys.d/ignition": "file 600 1000 second\n",
	}
)

// carriersOf returns the entries in /etc that carry entries outside.
func carriersOf(entries []hostfiles.File) ([]hostfiles.File, error) {
	outside := slices.DeleteFunc(slices.Clone(entries), func(f hostfiles.File) bool { return !projection.Outside(f.Path) })
	return projection.Set{}.Carry(outside)
}
