package machineconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/internal/projection"
	"machine-pivot/kargs"
)

// collector collects what an Ignition config requests below /etc and /var: files, directories and symbolic links,
// including those that implement its systemd units and users. What cannot be applied in one transaction with the OS
// image is rejected by name, never skipped.
type collector struct {
	all    []hostfiles.File
	keeps  map[string]hostfiles.Keeps // by path: attributes that an existing directory keeps
	units  enable.Units               // the requested state of unit links
	at     map[string]string          // by path: where the document requests it
	report *problem.Report

	without  map[string]bool // document paths of files, links and users that are left out
	content  func(ignition.Resource) ([]byte, error)
	tooLarge bool // it was reported that the contents are too large together
}

// collect collects what a config, written in a version, requests. n is the config in its document; all problems are
// added to its report, and if there are any errors, the result must not be used.
func collect(n document.Node, config ignition.Config, version string, without map[string]bool, content func(ignition.Resource) ([]byte, error)) *collector {
	c := &collector{keeps: map[string]hostfiles.Keeps{}, at: map[string]string{}, report: n.Report, without: without, content: content}
	c.config(n, config, version)
	return c
}

// CheckConfig reports what each machine refuses of a config, written in a version, by its text alone. What only an
// installation can apply is left out, as on a machine that has it; contents are not read, because ignition.CheckContent
// judges them without holding them.
func CheckConfig(n document.Node, config ignition.Config, version string, policy kargs.Policy) {
	if wellFormed(n) {
		collect(n, config, version, pathsOf(partsIn(n)), func(ignition.Resource) ([]byte, error) { return nil, nil })
	}
	checkArguments(n, config, policy)
}

// config adds all entries of a config.
func (c *collector) config(n document.Node, config ignition.Config, version string) {
	maxMode, storage := ignition.MaxMode(version), n.Get("storage")
	for i, f := range storage.Get("files").Items() {
		c.add(f, config.Storage.Files[i].Path, func() (hostfiles.File, error) { return c.file(config.Storage.Files[i], maxMode) })
	}
	for i, d := range storage.Get("directories").Items() {
		dir := config.Storage.Directories[i]
		if c.add(d, dir.Path, func() (hostfiles.File, error) { return directory(dir, maxMode) }) {
			c.keeps[c.all[len(c.all)-1].Path] = keeps(dir)
		}
	}
	for i, l := range storage.Get("links").Items() {
		c.add(l, config.Storage.Links[i].Path, func() (hostfiles.File, error) { return link(config.Storage.Links[i]) })
	}
	c.addUnits(n.Get("systemd").Get("units"), config.Systemd.Units)
	c.addUsers(n.Get("passwd").Get("users"), config.Passwd.Users)
	c.checkParents(n)
}

// add adds an entry that a node requests, under its canonical path. It reports whether it did.
func (c *collector) add(n document.Node, name string, make func() (hostfiles.File, error)) bool {
	if c.without[n.Path] {
		return false
	}
	canonical, err := projection.Canonical(name)
	if err != nil {
		n.Fail("%v", err)
		return false
	}
	f, err := make()
	if err != nil {
		if tooLarge := errors.Is(err, guard.ErrTooMuch); !tooLarge || !c.tooLarge { // once is enough
			n.Fail("%s: %v", name, err)
			c.tooLarge = c.tooLarge || tooLarge
		}
		return false
	}
	f.Path = canonical
	return c.collect(n, f)
}

// collect adds an entry under its own path, which is canonical, or that of a password.
func (c *collector) collect(n document.Node, f hostfiles.File) bool {
	if other, twice := c.at[f.Path]; twice {
		n.Fail("%s is asked for twice, also by %s", f.Path, other)
		return false
	}
	c.at[f.Path] = n.Path
	c.all = append(c.all, f)
	return true
}

// checkParents rejects entries below something that is not a directory.
func (c *collector) checkParents(n document.Node) {
	kinds := map[string]hostfiles.Kind{}
	for _, f := range c.all {
		kinds[f.Path] = f.Kind
	}
	for _, f := range c.all {
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			if kind, there := kinds[dir]; there && kind != hostfiles.KindDirectory {
				n.Report.Fail(c.at[f.Path], "%s would be below %s, which is a %s", f.Path, dir, kind)
			}
		}
	}
}

func (c *collector) file(f types.File, maxMode int) (hostfiles.File, error) {
	if len(f.Append) > 0 {
		return hostfiles.File{}, fmt.Errorf("not implemented: append")
	}
	mode, err := modeOf(f.Mode, 0o644, maxMode)
	if err != nil {
		return hostfiles.File{}, err
	}
	content, err := c.content(f.Contents)
	return owned(hostfiles.NewFile(f.Path, mode, content), f.Node), err
}

func directory(d types.Directory, maxMode int) (hostfiles.File, error) {
	mode, err := modeOf(d.Mode, 0o755, maxMode)
	return owned(hostfiles.NewDirectory(d.Path, mode), d.Node), err
}

// keeps returns the attributes that a directory does not specify. Ignition leaves them
// unchanged if the directory exists.
func keeps(d types.Directory) hostfiles.Keeps {
	given := func(id *int, name *string) bool { return id != nil || name != nil && *name != "" }
	return hostfiles.Keeps{Mode: d.Mode == nil, User: !given(d.User.ID, d.User.Name), Group: !given(d.Group.ID, d.Group.Name)}
}

func link(l types.Link) (hostfiles.File, error) {
	if l.Hard != nil && *l.Hard {
		return hostfiles.File{}, fmt.Errorf("not implemented: a hard link")
	}
	if l.Target == nil || *l.Target == "" {
		return hostfiles.File{}, fmt.Errorf("the link has no target")
	}
	if err := hostfiles.CheckName(*l.Target); err != nil {
		return hostfiles.File{}, fmt.Errorf("cannot use the link's target: %w", err)
	}
	return owned(hostfiles.NewLink(l.Path, *l.Target), l.Node), nil
}

// modeOf returns a mode, or Ignition's default if there is none.
func modeOf(mode *int, otherwise fs.FileMode, highest int) (fs.FileMode, error) {
	if mode == nil {
		return otherwise, nil
	}
	if *mode < 0 || *mode > highest {
		return 0, fmt.Errorf("mode 0%o is beyond 0%o", *mode, highest)
	}
	return fs.FileMode(*mode), nil
}

// owned returns an entry with the owner of an Ignition node, by default root.
func owned(f hostfiles.File, n types.Node) hostfiles.File {
	if n.User.ID != nil {
		f.UID = *n.User.ID
	}
	if n.Group.ID != nil {
		f.GID = *n.Group.ID
	}
	f.User, f.Group = nameOf(n.User.Name), nameOf(n.Group.Name)
	return f
}

// nameOf returns an owner's name. It omits root, which has the same number everywhere.
func nameOf(name *string) string {
	if name == nil || *name == "root" {
		return ""
	}
	return *name
}
