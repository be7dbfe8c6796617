package pivot_test

import (
	"errors"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/pivot"
)

// TestDiffOfEntries (P53): the change that each kind of entry needs, and the message if it is
// missing.
func TestDiffOfEntries(t *testing.T) {
	const path = "/etc/x"
	file, other := hostfiles.NewFile(path, 0o644, []byte("x")).Entry, hostfiles.NewFile(path, 0o644, []byte("y")).Entry
	dir, link := hostfiles.NewDirectory(path, 0o700).Entry, hostfiles.NewLink(path, "y").Entry
	named := file
	named.User, named.Group = "core", "wheel"
	owned := file
	owned.UID, owned.GID = 1000, 10
	of := func(e hostfiles.Entry, uid, gid int) hostfiles.Entry { e.UID, e.GID = uid, gid; return e }
	none := hostfiles.Entry{}
	accounts := hostfiles.Accounts{Users: map[string]int{"core": 1000}, Groups: map[string]int{"wheel": 10}}
	for _, c := range []struct {
		name               string
		want, have, images hostfiles.Entry
		action             pivot.ChangeAction
		says               string
	}{
		{"there", file, file, none, "", ""},
		{"missing", dir, none, none, pivot.ChangeCreate, "directory /etc/x: missing"},
		{"another content", file, other, file, pivot.ChangeReplace, "file /etc/x: differs"},
		{"another kind", link, dir, none, pivot.ChangeReplace, "link /etc/x: differs"},
		{"another target", link, hostfiles.NewLink(path, "z").Entry, none, pivot.ChangeReplace, "link /etc/x: differs"},
		{"a link of root's that is somebody's", link, of(link, 7, 8), none, "", ""},
		{"a link of another owner", of(link, 7, 0), of(link, 7, 8), none, pivot.ChangeReplace, "link /etc/x: differs"},
		{"a directory of another owner", dir, of(dir, 0, 8), none, pivot.ChangeReplace, "directory /etc/x: differs"},
		{"another mode", dir, hostfiles.NewDirectory(path, 0o755).Entry, none, pivot.ChangeReplace, "directory /etc/x: differs"},
		{"owned by name", named, owned, none, "", ""},
		{"not owned by name", named, file, none, pivot.ChangeReplace, "file /etc/x: differs"},
		{"removed", hostfiles.Default(path).Entry, none, none, "", ""},
		{"to be removed", hostfiles.Default(path).Entry, file, none, pivot.ChangeRemove, "entry /etc/x: still there"},
		{"in place of the image's", hostfiles.Default(path).Entry, file, other, pivot.ChangeRestore, "entry /etc/x: not what the image has"},
		{"the image's was removed", hostfiles.Default(path).Entry, none, other, pivot.ChangeRestore, "entry /etc/x: not what the image has"},
		{"absent", hostfiles.Absent(path).Entry, none, other, "", ""},
		{"to be absent, as in the image", hostfiles.Absent(path).Entry, other, other, pivot.ChangeRemove, "entry /etc/x: still there"},
		{"the image's", hostfiles.Default(path).Entry, other, other, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := stateA()
			state.Etc = pivot.Etc{Entries: map[string]hostfiles.Entry{}, Image: map[string]hostfiles.Entry{}, Accounts: accounts}
			if c.have != none {
				state.Etc.Entries[path] = c.have
			}
			if c.images != none {
				state.Etc.Image[path] = c.images
			}
			target := pivot.Target{Entries: []hostfiles.Entry{c.want}}
			plan, err := pivot.Diff(state, target)
			if err != nil || plan.Changed != (c.action != "") {
				t.Fatalf("plan %+v, %v", plan, err)
			}
			if plan.Changed && plan.Entries[0].Action != c.action {
				t.Errorf("action %s, want %s", plan.Entries[0].Action, c.action)
			}
			if says := strings.Join(pivot.Prove(state, target), "; "); says != c.says {
				t.Errorf("it says %q, want %q", says, c.says)
			}
		})
	}
}

// TestDiffOfUnits (P58): if the system stays, the links of units are compared. If it changes, the
// links depend on the new system, and the plan names the units instead.
func TestDiffOfUnits(t *testing.T) {
	const at = enable.Dir + "/m.target.wants/a.service"
	link := hostfiles.NewLink(at, "/usr/lib/systemd/system/a.service").Entry
	wish := enable.Wish{Name: "a.service", State: enable.Enabled}
	resolved := enable.Resolved{Entries: []hostfiles.Entry{link}, By: map[string]string{at: "a.service"}}
	missing := enable.Resolved{Wrong: map[string]error{"a.service": errors.New("there is no such unit")}}
	image := pivot.ImageOf(imageref.FromOrigin("r.example/os@sha256:b"))
	old := hostfiles.Default(at).Entry // the previous MachineConfig enabled the unit too
	for _, c := range []struct {
		name     string
		units    enable.Resolved
		image    pivot.Image
		there    bool
		own      bool
		entries  string // that the plan changes
		unit     string // that it names
		says     string // what Prove says
		failedBy string
	}{
		{name: "to be enabled", units: resolved, entries: "create link " + at, says: "link " + at + ": missing"},
		{name: "enabled", units: resolved, there: true},
		{name: "not there", units: missing, says: "unit a.service: there is no such unit", failedBy: "unit a.service: there is no such unit"},
		{name: "of the next image", units: missing, image: image, unit: "enable unit a.service of the new image"},
		{name: "of both images", units: resolved, image: image, unit: "enable unit a.service of the new image"},
		{name: "of both images, enabled", units: resolved, image: image, there: true},
		{name: "of its own", units: resolved, image: image, own: true, unit: "enable unit a.service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := stateA()
			state.Etc = pivot.Etc{Entries: map[string]hostfiles.Entry{}, Units: c.units}
			if c.there {
				state.Etc.Entries[at] = link
			}
			target := pivot.Target{Image: c.image, Entries: []hostfiles.Entry{old}, Units: enable.Units{Wishes: []enable.Wish{wish}}}
			if c.own {
				target.Units.Install = map[string]string{enable.Dir + "/a.service": ""}
			}
			plan, err := pivot.Diff(state, target)
			if failed := err != nil && strings.Contains(err.Error(), c.failedBy); failed != (c.failedBy != "") {
				t.Fatalf("plan %+v, %v", plan, err)
			}
			var entries, units string
			for _, e := range plan.Entries {
				entries += e.What()
			}
			for _, u := range plan.Units {
				units += u.String()
			}
			if err == nil && (entries != c.entries || units != c.unit) {
				t.Errorf("the plan changes %q and names %q, want %q and %q", entries, units, c.entries, c.unit)
			}
			if says := strings.Join(pivot.Prove(state, target), "; "); c.image.IsZero() && says != c.says {
				t.Errorf("it says %q, want %q", says, c.says)
			}
		})
	}
}
