package update

import (
	"bytes"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/machineconfig/ignition"
)

// maxContents limits the decompressed contents of all files that are compared, in bytes.
const maxContents = 64 << 20

// files compares files. The operator compares them by path; their order does not matter.
func (d *differ) files(old, new ignition.Config) error {
	path := func(f types.File) string { return f.Path }
	was, is := byName(old.Storage.Files, path), byName(new.Storage.Files, path)
	for _, path := range union(was, is) {
		if err := d.file(path, was[path], is[path]); err != nil {
			return err
		}
	}
	return nil
}

func (d *differ) file(path string, old, new *types.File) error {
	c := Change{Kind: "file", Name: path, Action: actionOf(old, new)}
	if new != nil && len(new.Append) > 0 {
		c.Refused = "the machine-config daemon refuses a file that is appended to, also if it stays"
		d.add(c)
		return nil
	}
	if c.Action == actionChange {
		if same(old, new) {
			return nil
		}
		var err error
		if c.Detail, err = fileDifference(old, new, d.room); err != nil {
			return fmt.Errorf("cannot compare file %s: %w", path, err)
		}
	}
	c.Actions, c.Because = chosen(d.policy.ForFile(path))
	d.add(c)
	return nil
}

// actionOf returns what happens to a part.
func actionOf[V any](old, new *V) string {
	switch {
	case old == nil:
		return actionAdd
	case new == nil:
		return actionRemove
	}
	return actionChange
}

// fileDifference describes the difference between two files.
func fileDifference(old, new *types.File, room *ignition.Room) (string, error) {
	var what []string
	differs, err := contentsDiffer(old.Contents, new.Contents, room)
	if err != nil {
		return "", err
	}
	if differs {
		what = append(what, "content")
	}
	for _, part := range []struct{ name, was, is string }{
		{"mode", modeOf(old.Mode, 0o644), modeOf(new.Mode, 0o644)},
		{"owner", ownersOf(old.Node), ownersOf(new.Node)},
	} {
		if part.was != part.is {
			what = append(what, part.name+" "+part.was+" to "+part.is)
		}
	}
	if len(what) == 0 {
		return formOnly(old, new), nil
	}
	return strings.Join(what, ", "), nil
}

// contentsDiffer reports whether contents differ, as far as that shows without fetching them.
func contentsDiffer(old, new types.Resource, room *ignition.Room) (bool, error) {
	if ignition.IsRemote(old) || ignition.IsRemote(new) {
		remote := func(r types.Resource) string { return value(r.Source) + " " + value(r.Verification.Hash) }
		return remote(old) != remote(new), nil
	}
	was, err := ignition.Content(old, room)
	if err != nil {
		return false, err
	}
	is, err := ignition.Content(new, room)
	return !bytes.Equal(was, is), err
}

func ownersOf(n types.Node) string {
	return ownerOf(n.User.ID, n.User.Name) + ":" + ownerOf(n.Group.ID, n.Group.Name)
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
