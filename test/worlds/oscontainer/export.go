package oscontainer

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/gvariant"
)

const (
	repoDir    = "sysroot/ostree/repo"
	objectsDir = repoDir + "/objects"
	repoConfig = "[core]\nrepo_version=1\nmode=bare-split-xattrs\n"
)

// export turns a commit into the entries of the base layers.
type export struct {
	repo   string // in bare mode
	commit string
	former bool              // use the layout of exporters before bootc 1.8
	emit   func(Entry) error // writes an entry to the current layer
	wrote  map[string]bool   // objects and directories in the current layer
}

// begin starts a layer.
func (x *export) begin(emit func(Entry) error) {
	x.emit, x.wrote = emit, map[string]bool{}
}

// objectPath returns the path of an object in a layer.
func objectPath(checksum, suffix string) string {
	return objectsDir + "/" + checksum[:2] + "/" + checksum[2:] + "." + suffix
}

// sourcePath returns the path of an object in the repository.
func (x *export) sourcePath(checksum, suffix string) string {
	return filepath.Join(x.repo, "objects", checksum[:2], checksum[2:]+"."+suffix)
}

// load reads a metadata object.
func (x *export) load(checksum, suffix, typ string) (gvariant.Tuple, error) {
	data, err := os.ReadFile(x.sourcePath(checksum, suffix))
	if err != nil {
		return nil, err
	}
	value, err := gvariant.Decode(typ, data)
	if err != nil {
		return nil, fmt.Errorf("object %s.%s: %w", checksum, suffix, err)
	}
	return value.(gvariant.Tuple), nil
}

func (x *export) loadCommit() (gvariant.Tuple, error) {
	return x.load(x.commit, "commit", "(a{sv}aya(say)sstayay)")
}

// dirTree has the entries of a directory: files with one checksum, directories with two.
type dirTree struct{ files, dirs []any }

func (x *export) loadTree(checksum string) (dirTree, error) {
	t, err := x.load(checksum, "dirtree", "(a(say)a(sayay))")
	if err != nil {
		return dirTree{}, err
	}
	return dirTree{t[0].([]any), t[1].([]any)}, nil
}

// named returns the name and the checksums of an entry of a dirTree.
func named(entry any) (name string, checksums []string) {
	fields := entry.(gvariant.Tuple)
	for _, c := range fields[1:] {
		checksums = append(checksums, hex.EncodeToString(c.([]byte)))
	}
	return fields[0].(string), checksums
}

// content finds the content objects below a directory and their paths.
func (x *export) content(checksum, dir string, found map[string][]string) error {
	t, err := x.loadTree(checksum)
	if err != nil {
		return err
	}
	for _, f := range t.files {
		name, c := named(f)
		found[c[0]] = append(found[c[0]], path.Join(dir, name))
	}
	for _, d := range t.dirs {
		name, c := named(d)
		if err := x.content(c[0], path.Join(dir, name), found); err != nil {
			return err
		}
	}
	return nil
}

// structure writes the repository's directories, the commit, its metadata objects and the
// directories of its tree.
func (x *export) structure() error {
	commit, err := x.loadCommit()
	if err != nil {
		return err
	}
	root, meta := hex.EncodeToString(commit[6].([]byte)), hex.EncodeToString(commit[7].([]byte))
	if err := x.directory("./", meta); err != nil {
		return err
	}
	if err := x.skeleton(); err != nil {
		return err
	}
	if err := x.metadata(x.commit, "commit"); err != nil {
		return err
	}
	if err := x.metadata(x.commit, "commitmeta"); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := x.metadata(meta, "dirmeta"); err != nil {
		return err
	}
	if err := x.directories("./", root); err != nil {
		return err
	}
	if x.wrote["./var/tmp/"] && !x.former { // former exporters wrote it twice
		return nil
	}
	return x.emit(Entry{Header: tar.Header{Name: "var/tmp", Typeflag: tar.TypeDir, Mode: 0o1777}})
}

// skeleton writes the empty repository that every layer starts with.
func (x *export) skeleton() error {
	dirs := []string{"sysroot", "sysroot/ostree", repoDir, objectsDir}
	for i := range 256 {
		dirs = append(dirs, fmt.Sprintf("%s/%02x", objectsDir, i))
	}
	for _, d := range []string{"extensions", "refs", "refs/heads", "refs/mirrors", "refs/remotes", "state", "tmp", "tmp/cache"} {
		dirs = append(dirs, repoDir+"/"+d)
	}
	for _, d := range dirs {
		if err := x.emit(Entry{Header: tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}}); err != nil {
			return err
		}
	}
	return x.emit(File(repoDir+"/config", repoConfig))
}

// metadata writes a metadata object, unless the layer has it.
func (x *export) metadata(checksum, suffix string) error {
	name := objectPath(checksum, suffix)
	if x.wrote[name] {
		return nil
	}
	x.wrote[name] = true
	data, err := os.ReadFile(x.sourcePath(checksum, suffix))
	if err != nil {
		return err
	}
	return x.emit(File(name, string(data)))
}

// directories writes a directory's dirtree and everything below it. Names have the prefix ./,
// which is kept only in names that are too long for a header.
func (x *export) directories(dir, checksum string) error {
	if err := x.metadata(checksum, "dirtree"); err != nil {
		return err
	}
	t, err := x.loadTree(checksum)
	if err != nil {
		return err
	}
	x.wrote[dir] = true
	for _, d := range t.dirs {
		name, c := named(d)
		if err := x.metadata(c[1], "dirmeta"); err != nil {
			return err
		}
		sub := dir + name
		if sub == "./sysroot" {
			continue
		}
		if sub == "./usr/etc" {
			sub = "./etc"
			if x.former {
				sub = "./etc/"
			}
		}
		if err := x.directory(sub, c[1]); err != nil {
			return err
		}
		if err := x.directories(strings.TrimSuffix(sub, "/")+"/", c[0]); err != nil {
			return err
		}
	}
	return nil
}

// directory writes a directory of the tree.
func (x *export) directory(name, meta string) error {
	m, err := x.load(meta, "dirmeta", "(uuua(ayay))")
	if err != nil {
		return err
	}
	field := func(i int) uint32 { return swap32(m[i].(uint32)) }
	return x.emit(Entry{Header: tar.Header{
		Name: name, Typeflag: tar.TypeDir, Mode: int64(field(2) &^ unix.S_IFMT), Uid: int(field(0)), Gid: int(field(1)),
	}})
}

// object writes a content object: first its extended attributes, then the object, then its names
// in the tree.
func (x *export) object(checksum string, names []string) error {
	e, xattrs, err := x.loadObject(checksum)
	if err != nil {
		return err
	}
	if err := x.xattrs(checksum, xattrs); err != nil {
		return err
	}
	if !x.former {
		e.PAXRecords = paxRecords(xattrs)
	}
	if err := x.emit(e); err != nil {
		return err
	}
	body, size, err := e.content()
	if err != nil {
		return err
	}
	if err := body.Close(); err != nil {
		return err
	}
	for _, name := range names {
		if name == "usr/etc" || strings.HasPrefix(name, "usr/etc/") {
			name = strings.TrimPrefix(name, "usr/")
		}
		link := Entry{Header: e.Header, over: true}
		link.Name, link.PAXRecords = name, nil
		if e.Typeflag != tar.TypeReg || size > 0 { // an empty file is written again instead of linked
			link.Typeflag, link.Linkname = tar.TypeLink, e.Name
		}
		if err := x.emit(link); err != nil {
			return err
		}
	}
	return nil
}

// xattrs writes the extended attributes of an object.
func (x *export) xattrs(checksum string, xattrs []xattr) error {
	data, err := encodeXattrs(xattrs)
	if err != nil {
		return err
	}
	link := File(objectPath(checksum, "file-xattrs-link"), string(data))
	if !x.former {
		return x.emit(link)
	}
	sum := sha256.Sum256(data)
	shared := objectPath(hex.EncodeToString(sum[:]), "file-xattrs")
	if !x.wrote[shared] {
		x.wrote[shared] = true
		if err := x.emit(File(shared, string(data))); err != nil {
			return err
		}
	}
	link.Typeflag, link.Linkname, link.Body = tar.TypeLink, shared, nil
	return x.emit(link)
}

// loadObject reads the attributes of a content object in a bare repository.
func (x *export) loadObject(checksum string) (Entry, []xattr, error) {
	source := x.sourcePath(checksum, "file")
	var st unix.Stat_t
	if err := unix.Lstat(source, &st); err != nil {
		return Entry{}, nil, &os.PathError{Op: "lstat", Path: source, Err: err}
	}
	e := Entry{Header: tar.Header{
		Name: objectPath(checksum, "file"), Typeflag: tar.TypeReg,
		Mode: int64(st.Mode &^ unix.S_IFMT), Uid: int(st.Uid), Gid: int(st.Gid),
	}}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := os.Readlink(source)
		if err != nil {
			return Entry{}, nil, err
		}
		e.Typeflag, e.Linkname = tar.TypeSymlink, target
	} else {
		e.Source = source
	}
	xattrs, err := readXattrs(source)
	return e, xattrs, err
}

// xattr is one extended attribute.
type xattr struct{ name, value string }

// readXattrs reads the extended attributes of a file without following links. Like libostree it
// omits empty attributes.
func readXattrs(file string) ([]xattr, error) {
	list, err := sized(func(buf []byte) (int, error) { return unix.Llistxattr(file, buf) })
	if err != nil {
		return nil, &os.PathError{Op: "llistxattr", Path: file, Err: err}
	}
	var xattrs []xattr
	for _, name := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := sized(func(buf []byte) (int, error) { return unix.Lgetxattr(file, name, buf) })
		if err != nil {
			return nil, &os.PathError{Op: "lgetxattr " + name, Path: file, Err: err}
		}
		if len(value) > 0 {
			xattrs = append(xattrs, xattr{name, string(value)})
		}
	}
	slices.SortFunc(xattrs, func(a, b xattr) int { return strings.Compare(a.name, b.name) })
	return xattrs, nil
}

// sized calls get twice: first for the size, then with a buffer of that size.
func sized(get func([]byte) (int, error)) ([]byte, error) {
	n, err := get(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, n)
	n, err = get(buf)
	return buf[:max(n, 0)], err
}

// encodeXattrs encodes extended attributes as in an object: a(ayay).
func encodeXattrs(xattrs []xattr) ([]byte, error) {
	list := []any{}
	for _, x := range xattrs {
		list = append(list, gvariant.Tuple{[]byte(x.name + "\x00"), []byte(x.value)})
	}
	return gvariant.Encode("a(ayay)", list)
}

// paxRecords returns the extended attributes as PAX records, without SELinux labels.
func paxRecords(xattrs []xattr) map[string]string {
	records := map[string]string{}
	for _, x := range xattrs {
		if x.name != "security.selinux" {
			records["SCHILY.xattr."+x.name] = x.value
		}
	}
	return records
}
