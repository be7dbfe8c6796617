package osimage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"machine-pivot/internal/ostree/gvariant"
)

// made is the recorded result of the reference implementation for an image; see
// testdata/reference/README.md.
type made struct {
	t    *testing.T
	dir  string
	refs map[string]string // commits by ref
}

func reference(t *testing.T, name string) *made {
	t.Helper()
	m := &made{t: t, dir: filepath.Join("testdata/reference", name), refs: map[string]string{}}
	for _, line := range m.lines(name + "/refs") {
		ref, commit, _ := strings.Cut(line, " ")
		m.refs[ref] = commit
	}
	return m
}

// lines returns the lines of a recorded file.
func (m *made) lines(file string) []string {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/reference", file))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func (m *made) image() v1.Image {
	m.t.Helper()
	index, err := layout.Path(filepath.Join(m.dir, "image")).ImageIndex()
	if err != nil {
		m.t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		m.t.Fatal(err)
	}
	img, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		m.t.Fatal(err)
	}
	return img
}

// commit returns the commit that was encapsulated.
func (m *made) commit() string { return m.lines("commit")[0] }

// merged returns the merge commit.
func (m *made) merged() string {
	for ref, commit := range m.refs {
		if strings.HasPrefix(ref, "ostree/container/image/") {
			return commit
		}
	}
	m.t.Fatal("no image ref")
	return ""
}

// objects returns the objects that the reference's repository had.
func (m *made) objects() []string {
	m.t.Helper()
	all := m.lines("objects")
	add := func(checksum, suffix string) { all = append(all, checksum[:2]+"/"+checksum[2:]+"."+suffix) }
	for _, commit := range m.refs {
		fields := decodeCommit(m.t, filepath.Join(m.dir, "commits", commit))
		add(commit, "commit")
		add(fmt.Sprintf("%x", fields[6]), "dirtree")
		add(fmt.Sprintf("%x", fields[7]), "dirmeta")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func decodeCommit(t *testing.T, path string) gvariant.Tuple {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value, err := gvariant.Decode("(a{sv}aya(say)sstayay)", data)
	if err != nil {
		t.Fatal(err)
	}
	return value.(gvariant.Tuple)
}

// metadata returns the entries of a commit's metadata dictionary.
func metadata(commit gvariant.Tuple) map[string]any {
	all := map[string]any{}
	for _, entry := range commit[0].([]any) {
		pair := entry.(gvariant.Tuple)
		all[pair[0].(string)] = pair[1].(gvariant.Variant).Value
	}
	return all
}
