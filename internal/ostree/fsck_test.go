package ostree_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
)

type tuple = gvariant.Tuple

// forged is a handmade commit of one directory. Any part of it can be invalid, while all
// checksums are correct.
type forged struct {
	uid, gid, mode uint32 // of the file object
	target         string
	xattrs         []any

	dirUID, dirMode uint32
	dirXattrs       []any

	files, dirs []string // names in the root directory
	metadata    []any    // of the commit
	raw         []byte   // a serialized variant, used instead of metadata
}

// objects returns the objects of the commit by path, in the format of archive repositories.
func (f forged) objects(t *testing.T) (ostree.Checksum, map[string][]byte) {
	t.Helper()
	all := map[string][]byte{}
	add := func(c ostree.Checksum, suffix string, data []byte) ostree.Checksum {
		all[c.String()[:2]+"/"+c.String()[2:]+suffix] = data
		return c
	}
	meta := func(suffix, typ string, value any) ostree.Checksum {
		data, err := gvariant.Encode(typ, value)
		check(t, err)
		return add(sha256.Sum256(data), suffix, data)
	}
	sum, body := f.file(t)
	file := add(sum, ".filez", body)
	empty := meta(".dirtree", "(a(say)a(sayay))", tuple{[]any{}, []any{}})
	dirMeta := meta(".dirmeta", "(uuua(ayay))", tuple{f.dirUID, uint32(0), bigEndian(f.dirMode), f.dirXattrs})
	files, dirs := []any{}, []any{}
	for _, name := range f.files {
		files = append(files, tuple{name, file[:]})
	}
	for _, name := range f.dirs {
		dirs = append(dirs, tuple{name, empty[:], dirMeta[:]})
	}
	tree := meta(".dirtree", "(a(say)a(sayay))", tuple{files, dirs})
	commit := tuple{f.metadata, []byte{}, []any{}, "", "", uint64(0), tree[:], dirMeta[:]}
	if f.raw == nil {
		return meta(".commit", commitType, commit), all
	}
	// raw replaces an encoded variant of the same length, inside a variant.
	other := bytes.Repeat([]byte{0xa5}, len(f.raw)-len("\x00ay"))
	commit[0] = []any{tuple{"k", gvariant.Variant{Type: "v", Value: gvariant.Variant{Type: "ay", Value: other}}}}
	data, err := gvariant.Encode(commitType, commit)
	check(t, err)
	data = bytes.Replace(data, append(other, "\x00ay"...), f.raw, 1)
	return add(sha256.Sum256(data), ".commit", data), all
}

const commitType = "(a{sv}aya(say)sstayay)"

func bigEndian(n uint32) uint32 {
	return binary.LittleEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))
}

// file returns the checksum of the commit's file object, and the object.
func (f forged) file(t *testing.T) (ostree.Checksum, []byte) {
	t.Helper()
	content := ""
	if f.mode&unix.S_IFMT == unix.S_IFREG {
		content = "content"
	}
	archived := filez(t, f.mode, f.target, f.xattrs, content)
	binary.BigEndian.PutUint32(archived[16:], f.uid) // after the length of the header and of the content
	binary.BigEndian.PutUint32(archived[20:], f.gid)
	header, err := gvariant.Encode("(uuuusa(ayay))",
		tuple{bigEndian(f.uid), bigEndian(f.gid), bigEndian(f.mode), uint32(0), f.target, f.xattrs})
	check(t, err)
	plain := binary.BigEndian.AppendUint32(nil, uint32(len(header)))
	plain = append(append(append(plain, 0, 0, 0, 0), header...), content...)
	return sha256.Sum256(plain), archived
}

func attribute(name, value string) []any { return []any{tuple{[]byte(name + "\x00"), []byte(value)}} }

// accessList encodes a POSIX ACL for an extended attribute. entries are triples of tag,
// permissions and ID.
func accessList(entries ...uint32) string {
	data := binary.LittleEndian.AppendUint32(nil, 2)
	for i := 0; i < len(entries); i += 3 {
		data = binary.LittleEndian.AppendUint16(data, uint16(entries[i]))
		data = binary.LittleEndian.AppendUint16(data, uint16(entries[i+1]))
		data = binary.LittleEndian.AppendUint32(data, entries[i+2])
	}
	return string(data)
}

// verdict is whether a commit is accepted.
type verdict int

const (
	refused  verdict = iota
	accepted         // by ostree and by an import
	stricter         // refused by an import; some releases of ostree accept it
)

// TestSameAsFsck: an import accepts a commit if the real ostree pulls it and ostree fsck finds
// no error, and refuses it otherwise. An import is stricter about errors that ostree would
// notice only when it deploys the commit, or not at all.
func TestSameAsFsck(t *testing.T) {
	need.Root(t)
	need.Ostree(t)
	templates := emptyRepos(t, "archive", "bare")
	const none = ^uint32(0)
	regular := func(change func(*forged)) forged {
		f := forged{mode: unix.S_IFREG | 0o644, dirMode: unix.S_IFDIR | 0o755, files: []string{"file"}, metadata: []any{}}
		change(&f)
		return f
	}
	link := func(target string, xattrs []any) forged {
		return regular(func(f *forged) { f.mode, f.target, f.xattrs = unix.S_IFLNK|0o777, target, xattrs })
	}
	xattr := func(name, value string) forged { return regular(func(f *forged) { f.xattrs = attribute(name, value) }) }
	dirXattr := func(name, value string) forged {
		return regular(func(f *forged) { f.dirXattrs = attribute(name, value) })
	}
	acl := func(mode uint32, entries ...uint32) forged {
		return regular(func(f *forged) {
			f.mode, f.xattrs = unix.S_IFREG|mode, attribute("system.posix_acl_access", accessList(entries...))
		})
	}
	metadata := func(typ string, value any) forged {
		return regular(func(f *forged) { f.metadata = []any{tuple{"k", gvariant.Variant{Type: typ, Value: value}}} })
	}
	raw := func(variant string) forged { return regular(func(f *forged) { f.raw = []byte(variant) }) }
	capability := func(words ...uint32) string {
		var data []byte
		for _, w := range words {
			data = binary.LittleEndian.AppendUint32(data, w)
		}
		return string(data)
	}
	for name, c := range map[string]struct {
		forged
		want verdict
	}{
		"a file":              {forged: regular(func(f *forged) {}), want: accepted},
		"a file of a user":    {forged: regular(func(f *forged) { f.uid, f.gid, f.mode = 1000, none-1, unix.S_IFREG|0o6755 }), want: accepted},
		"no user":             {forged: regular(func(f *forged) { f.uid, f.mode = none, unix.S_IFREG|0o4755 })},
		"no group":            {forged: regular(func(f *forged) { f.gid, f.mode = none, unix.S_IFREG|0o2755 })},
		"mode bits":           {forged: regular(func(f *forged) { f.mode |= 1 << 16 })},
		"more mode bits":      {forged: regular(func(f *forged) { f.mode |= 1 << 31 })},
		"a directory's user":  {forged: regular(func(f *forged) { f.dirUID = none }), want: stricter},
		"a directory's mode":  {forged: regular(func(f *forged) { f.dirMode |= 1 << 16 })},
		"a directory as file": {forged: regular(func(f *forged) { f.dirMode = unix.S_IFREG | 0o755 })},

		"a link":                    {forged: link("x", nil), want: accepted},
		"a long link":               {forged: link(strings.Repeat("x", 4095), nil), want: accepted},
		"a longer link":             {forged: link(strings.Repeat("x", 4096), nil)},
		"a link of 5,000 bytes":     {forged: link(strings.Repeat("x", 5000), nil)},
		"a link that is not UTF-8":  {forged: link("\xff", nil)},
		"a link's mode":             {forged: regular(func(f *forged) { f.mode, f.target = unix.S_IFLNK|0o755, "x" })},
		"a link's set-id":           {forged: regular(func(f *forged) { f.mode, f.target = unix.S_IFLNK|0o4777, "x" })},
		"a link's attribute":        {forged: link("x", attribute("trusted.x", "y")), want: accepted},
		"a link's user attribute":   {forged: link("x", attribute("user.x", "y"))},
		"a link's ACL":              {forged: link("x", attribute("system.posix_acl_access", accessList(1, 7, none, 2, 7, 5, 4, 7, none, 0x10, 7, none, 0x20, 7, none)))},
		"a link's label":            {forged: link("x", attribute("security.selinux", "system_u:object_r:bin_t:s0\x00")), want: accepted},
		"a label":                   {forged: xattr("security.selinux", "anything at all"), want: accepted},
		"a signature":               {forged: xattr("security.ima", "\x03\x02\x04 and so on"), want: accepted},
		"an attribute":              {forged: xattr("user.x", "y"), want: accepted},
		"a name of 255 bytes":       {forged: xattr("user."+strings.Repeat("x", 250), "y"), want: accepted},
		"a name of 256 bytes":       {forged: xattr("user."+strings.Repeat("x", 251), "y")},
		"a name without namespace":  {forged: xattr("name", "y")},
		"a namespace without name":  {forged: xattr("user.", "y")},
		"an unknown namespace":      {forged: xattr("other.x", "y")},
		"an unknown one of systems": {forged: xattr("system.x", "y")},
		"an empty value":            {forged: xattr("user.x", "")},
		"a value of 70 KB":          {forged: xattr("user.x", strings.Repeat("x", 70_000))},
		"a directory's attribute":   {forged: dirXattr("user.x", "y"), want: accepted},
		"a directory's junk":        {forged: dirXattr("name", "y"), want: stricter},
		"a directory's 70 KB":       {forged: dirXattr("user.x", strings.Repeat("x", 70_000)), want: stricter},

		"an ACL":                       {forged: acl(0o674, 1, 6, none, 2, 7, 5, 4, 4, none, 8, 1, 7, 0x10, 7, none, 0x20, 4, none), want: accepted},
		"an ACL, two users":            {forged: acl(0o674, 1, 6, none, 2, 7, 9, 2, 7, 5, 4, 4, none, 0x10, 7, none, 0x20, 4, none), want: accepted},
		"an ACL with only a mask":      {forged: acl(0o644, 1, 6, none, 4, 7, none, 0x10, 4, none, 0x20, 4, none), want: accepted},
		"an ACL of another mode":       {forged: acl(0o644, 1, 6, none, 2, 7, 5, 4, 4, none, 0x10, 7, none, 0x20, 4, none)},
		"an ACL that is the mode":      {forged: acl(0o644, 1, 6, none, 4, 4, none, 0x20, 4, none)},
		"an ACL with an unknown tag":   {forged: acl(0o644, 1, 6, none, 4, 7, none, 0x10, 4, none, 0x20, 4, none, 0x40, 7, none)},
		"an ACL without a mask":        {forged: acl(0o644, 1, 6, none, 2, 7, 5, 4, 4, none, 0x20, 4, none)},
		"an ACL in another order":      {forged: acl(0o674, 1, 6, none, 4, 4, none, 2, 7, 5, 0x10, 7, none, 0x20, 4, none)},
		"an ACL with two masks":        {forged: acl(0o674, 1, 6, none, 4, 4, none, 0x10, 7, none, 0x10, 7, none, 0x20, 4, none)},
		"an ACL with permission 8":     {forged: acl(0o644, 1, 6, none, 2, 8, 5, 4, 4, none, 0x10, 4, none, 0x20, 4, none)},
		"an ACL with tag 0x40":         {forged: acl(0o644, 1, 6, none, 4, 4, none, 0x10, 4, none, 0x20, 4, none, 0x40, 4, none)},
		"an ACL of nobody":             {forged: acl(0o674, 1, 6, none, 2, 7, none, 4, 4, none, 0x10, 7, none, 0x20, 4, none)},
		"an ACL whose owner has an ID": {forged: acl(0o674, 1, 6, 3, 2, 7, 5, 4, 4, none, 0x10, 7, none, 0x20, 4, none)},
		"an empty ACL":                 {forged: acl(0o644)},
		"an ACL cut off":               {forged: xattr("system.posix_acl_access", accessList(1, 6, none, 4, 4, none)[:10])},
		"a junk ACL":                   {forged: xattr("system.posix_acl_access", "junk")},
		"an ACL of a later version":    {forged: xattr("system.posix_acl_access", "\x03"+accessList(1, 6, none, 4, 4, none, 0x20, 4, none)[1:])},
		"a file's default ACL":         {forged: xattr("system.posix_acl_default", accessList(1, 7, none, 2, 7, 5, 4, 7, none, 0x10, 7, none, 0x20, 7, none))},
		"a directory's default ACL":    {forged: dirXattr("system.posix_acl_default", accessList(1, 7, none, 4, 7, none, 0x20, 7, none)), want: accepted},
		"a directory's junk ACL":       {forged: dirXattr("system.posix_acl_default", "junk"), want: stricter},

		"capabilities":                  {forged: xattr("security.capability", capability(0x02000001, 0x2000, 0, 0, 0)), want: accepted},
		"capabilities of a namespace":   {forged: xattr("security.capability", capability(0x03000000, 0x2000, 0, 0, 0, 1000)), want: accepted},
		"capabilities of the host's":    {forged: xattr("security.capability", capability(0x03000000, 0x2000, 0, 0, 0, 0))},
		"capabilities of nobody's":      {forged: xattr("security.capability", capability(0x03000000, 0x2000, 0, 0, 0, none))},
		"capabilities of revision 1":    {forged: xattr("security.capability", capability(0x01000000, 0x2000, 0))},
		"capabilities of a wrong size":  {forged: xattr("security.capability", capability(0x02000001, 0x2000, 0, 0))},
		"capabilities of another flag":  {forged: xattr("security.capability", capability(0x02000002, 0x2000, 0, 0, 0))},
		"capabilities that are nothing": {forged: xattr("security.capability", "x")},

		"names":                   {forged: regular(func(f *forged) { f.files, f.dirs = []string{"a", "c"}, []string{"b", "ü"} }), want: accepted},
		"a name for both":         {forged: regular(func(f *forged) { f.files, f.dirs = []string{"a", "b", "d"}, []string{"0", "b", "c"} }), want: stricter},
		"a name not UTF-8":        {forged: regular(func(f *forged) { f.files = []string{"\xff"} })},
		"a directory not UTF-8":   {forged: regular(func(f *forged) { f.dirs = []string{"x\xc0\x80"} })},
		"names in no order":       {forged: regular(func(f *forged) { f.files = []string{"b", "a"} }), want: stricter},
		"a name twice":            {forged: regular(func(f *forged) { f.files = []string{"a", "a"} }), want: stricter},
		"a name with a slash":     {forged: regular(func(f *forged) { f.files = []string{"a/b"} })},
		"the parent":              {forged: regular(func(f *forged) { f.files = []string{".."} })},
		"no name":                 {forged: regular(func(f *forged) { f.files = []string{""} }), want: stricter},
		"a long name":             {forged: regular(func(f *forged) { f.files = []string{strings.Repeat("x", 255)} }), want: accepted},
		"a name of 256 bytes too": {forged: regular(func(f *forged) { f.files = []string{strings.Repeat("x", 256)} }), want: stricter},

		"metadata":                  {forged: metadata("a(yy)", []any{tuple{byte(1), byte(2)}}), want: accepted},
		"metadata, text not UTF-8":  {forged: metadata("as", []any{"\xff"}), want: stricter},
		"metadata, an integer":      {forged: raw("\x01\x02\x03\x04\x00i"), want: accepted},
		"metadata, a double":        {forged: raw("\x01\x02\x03\x04\x05\x06\x07\x08\x00d"), want: accepted},
		"metadata, an object path":  {forged: raw("/a/b\x00\x00o"), want: accepted},
		"metadata, no object path":  {forged: raw("/a/b/\x00\x00o"), want: stricter},
		"metadata, a maybe":         {forged: raw("text\x00\x00\x00ms"), want: accepted},
		"metadata, a boolean of 2":  {forged: raw("\x02\x00b"), want: stricter},
		"metadata, no type":         {forged: raw("\x02\x00z"), want: stricter},
		"metadata, a wrong padding": {forged: raw("\x01\x01\x00\x00\x00\x00\x00\x00\x00(yu)"), want: stricter},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 6)
			commit, objects := c.objects(t)
			if err := fsckAfterPull(t, templates, commit, objects); (err == nil) != (c.want == accepted) && c.want != stricter {
				t.Errorf("ostree says %v", err)
			}
			r, err := ostree.OpenRepo(copyOf(t, templates["bare"]))
			check(t, err)
			_, err = importAll(t, r, commit, objects, "ref")
			if _, corrupt := errors.AsType[*ostree.CorruptError](err); c.want == accepted && err != nil || c.want != accepted && !corrupt {
				t.Errorf("import says %v", err)
			}
			if err == nil {
				run(t, "ostree", "fsck", "--repo="+r.Path())
			}
			nothingLeft(t, r)
		})
	}
}

// fsckAfterPull pulls a commit from an archive repository into a bare one with the real ostree
// and runs ostree fsck there.
func fsckAfterPull(t *testing.T, templates map[string]string, commit ostree.Checksum, objects map[string][]byte) error {
	t.Helper()
	archive, bare := copyOf(t, templates["archive"]), copyOf(t, templates["bare"])
	for path, data := range objects {
		write(t, filepath.Join(archive, "objects", path), string(data))
	}
	write(t, filepath.Join(archive, "refs/heads/os"), commit.String()+"\n")
	out, err := exec.Command("ostree", "pull-local", "--repo="+bare, archive, "os").CombinedOutput()
	if err == nil {
		out, err = exec.Command("ostree", "fsck", "--repo="+bare).CombinedOutput()
	}
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return nil
}

// emptyRepos creates empty repositories of several modes, as templates for copyOf.
func emptyRepos(t *testing.T, modes ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, mode := range modes {
		all[mode] = filepath.Join(t.TempDir(), mode)
		run(t, "ostree", "init", "--repo="+all[mode], "--mode="+mode)
	}
	return all
}

func copyOf(t *testing.T, repo string) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.CopyFS(dir, os.DirFS(repo)))
	return dir
}
