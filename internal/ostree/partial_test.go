package ostree_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMarksOfOthers: an interrupted pull by another program leaves its commit marked as
// partial, and so does ostree fsck that has removed an object. An import that completes the commit or finds it
// complete removes the mark.
func TestMarksOfOthers(t *testing.T) {
	for _, c := range []struct {
		name, mark string
		before     bool // the commit is imported before
	}{
		{"before the commit came", "", false},
		{"of a commit that is there", "", true},
		{"by fsck", "f", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, r := newSource(t), newRepo(t)
			if c.before {
				_, err := importAll(t, r, s.commit, s.objects(), "os")
				check(t, err)
			}
			mark := filepath.Join(r.Path(), "state", s.commit.String()+".commitpartial")
			check(t, os.WriteFile(mark, []byte(c.mark), 0o644))
			_, err := importAll(t, r, s.commit, s.objects(), "os")
			check(t, err)
			if r.HasPartial(s.commit) {
				t.Error("marked after the import")
			}
		})
	}
}
