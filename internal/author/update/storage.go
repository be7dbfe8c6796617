package update

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"machine-pivot/internal/machineconfig/ignition"
)

// maxContent limits a file's decompressed content, in bytes.
const maxContent = 16 << 20

// forceFile makes the machine-config daemon skip its checks.
const forceFile = "/run/machine-config-daemon-force"

// file is a file of a config, in a form that can be compared.
type file struct {
	content     []byte
	remote      string // source and hash of the content, if it is not inline
	mode, owner string
	appends     bool
}

func (d *differ) storage(old, new ignition.Config) error {
	was, err := filesOf(old)
	if err != nil {
		return err
	}
	is, err := filesOf(new)
	if err != nil {
		return err
	}
	for _, path := range union(was, is) {
		d.file(path, was[path], is[path])
	}
	d.refused("directory", directoriesOf(old), directoriesOf(new), "the machine-config daemon makes directories at the installation only")
	d.refused("link", linksOf(old), linksOf(new), "the machine-config daemon makes links at the installation only")
	d.refused(disk, disksOf(old), disksOf(new), "disks are made at the installation only")
	return nil
}

func (d *differ) file(path string, old, new *file) {
	c := Change{Kind: "file", Name: path, Action: actionChange}
	switch {
	case old == nil:
		c.Action = actionAdd
	case new == nil:
		c.Action = actionRemove
	}
	switch {
	case new != nil && new.appends:
		c.Refused = "the machine-config daemon refuses a file that is appended to, also if it stays"
		d.add(c)
		return
	case path == forceFile && new != nil:
		c.Refused = "no configuration may create it"
	case c.Action == actionChange:
		if c.Detail = new.differsFrom(old); c.Detail == "" {
			return
		}
	}
	c.Actions, c.Because = d.policy.ofFile(path)
	d.add(c)
}

// differsFrom returns the differences between two files; "" if there are none.
func (f *file) differsFrom(old *file) string {
	var what string
	for _, part := range []struct {
		name    string
		differs bool
	}{
		{"content", f.remote != old.remote || f.remote == "" && !bytes.Equal(f.content, old.content)},
		{"mode " + old.mode + " to " + f.mode, f.mode != old.mode},
		{"owner " + old.owner + " to " + f.owner, f.owner != old.owner},
	} {
		if part.differs {
			if what != "" {
				what += ", "
			}
			what += part.name
		}
	}
	return what
}

func filesOf(c ignition.Config) (map[string]*file, error) {
	files := map[string]*file{}
	for _, f := range c.Storage.Files {
		owner := ownerOf(f.User.ID, f.User.Name) + ":" + ownerOf(f.Group.ID, f.Group.Name)
		one := &file{mode: modeOf(f.Mode, 0o644), owner: owner, appends: len(f.Append) > 0}
		if ignition.IsRemote(f.Contents) {
			one.remote = *f.Contents.Source + " " + value(f.Contents.Verification.Hash)
		} else {
			content, err := ignition.Content(f.Contents, maxContent)
			if err != nil {
				return nil, fmt.Errorf("cannot compare file %s: %w", f.Path, err)
			}
			one.content = content
		}
		files[f.Path] = one
	}
	return files, nil
}

// ownerOf returns a user or a group; root by default.
func ownerOf(id *int, name *string) string {
	switch {
	case id != nil && *id != 0:
		return strconv.Itoa(*id)
	case value(name) != "":
		return *name
	}
	return "root"
}

func modeOf(mode *int, otherwise fs.FileMode) string {
	if mode != nil {
		otherwise = fs.FileMode(*mode)
	}
	return "0" + strconv.FormatUint(uint64(otherwise), 8)
}

// refused adds a refused change for each name whose values differ.
func (d *differ) refused(kind string, old, new map[string]string, why string) {
	for _, name := range union(old, new) {
		was, had := old[name]
		is, has := new[name]
		c := Change{Kind: kind, Name: name, Action: actionChange, Detail: was + ", now " + is, Refused: why}
		switch {
		case was == is && had == has:
			continue
		case !had:
			c.Action, c.Detail = actionAdd, is
		case !has:
			c.Action, c.Detail = actionRemove, ""
		}
		if kind == disk { // the values are JSON
			c.Detail = ""
		}
		d.add(c)
	}
}

func directoriesOf(c ignition.Config) map[string]string {
	found := map[string]string{}
	for _, d := range c.Storage.Directories {
		found[d.Path] = "mode " + modeOf(d.Mode, 0o755) + " of " + ownerOf(d.User.ID, d.User.Name) + ":" + ownerOf(d.Group.ID, d.Group.Name)
	}
	return found
}

func linksOf(c ignition.Config) map[string]string {
	found := map[string]string{}
	for _, l := range c.Storage.Links {
		kind := "to "
		if l.Hard != nil && *l.Hard {
			kind = "hard, to "
		}
		found[l.Path] = kind + value(l.Target)
	}
	return found
}

// disk is the kind of changes to disks and their contents.
const disk = "disk"

// disksOf returns disks, arrays and file systems by name, each as Ignition's JSON.
func disksOf(c ignition.Config) map[string]string {
	found := map[string]string{}
	for _, d := range c.Storage.Disks {
		found[d.Device] = canonical(d)
	}
	for _, r := range c.Storage.Raid {
		found["RAID "+r.Name] = canonical(r)
	}
	for _, l := range c.Storage.Luks {
		found["LUKS "+l.Name] = canonical(l)
	}
	for _, f := range c.Storage.Filesystems {
		found["file system on "+f.Device] = canonical(f)
	}
	return found
}

// union returns the names in either of two maps, sorted.
func union[V any](a, b map[string]V) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

// value dereferences a pointer; nil is the zero value.
func value[V cmp.Ordered](p *V) V {
	if p == nil {
		var none V
		return none
	}
	return *p
}
