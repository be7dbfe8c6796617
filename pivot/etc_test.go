package pivot_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// TestDiffOfEntries (P53): what has to happen to /etc for each kind of entry, and what is
// said of it when it has not.
func TestDiffOfEntries(t *testing.T) {
	const path = "/etc/x"
	file, other := hostfiles.NewFile(path, 0o644, []byte("x")).Entry, hostfiles.NewFile(path, 0o644, []byte("y")).Entry
	dir, link := hostfiles.NewDirectory(path, 0o700).Entry, hostfiles.NewLink(path, "y").Entry
	named := file
	named.User, named.Group = "core", "wheel"
	owned := file
	owned.UID, owned.GID = 1000, 10
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
		{"another mode", dir, hostfiles.NewDirectory(path, 0o755).Entry, none, pivot.ChangeReplace, "directory /etc/x: differs"},
		{"owned by name", named, owned, none, "", ""},
		{"not owned by name", named, file, none, pivot.ChangeReplace, "file /etc/x: differs"},
		{"removed", hostfiles.Default(path).Entry, none, none, "", ""},
		{"to be removed", hostfiles.Default(path).Entry, file, none, pivot.ChangeRemove, "entry /etc/x: still there"},
		{"in place of the image's", hostfiles.Default(path).Entry, file, other, pivot.ChangeRestore, "entry /etc/x: not what the image has"},
		{"the image's was removed", hostfiles.Default(path).Entry, none, other, pivot.ChangeRestore, "entry /etc/x: not what the image has"},
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
