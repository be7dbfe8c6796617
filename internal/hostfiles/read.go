package hostfiles

import "golang.org/x/sys/unix"

// maxRead is the maximum size of a file that is compared, in bytes.
const maxRead = 16 << 20

// TooLarge is the digest of a file that is too large to be compared. Read does not return its content. It differs from
// every digest that can be requested.
const TooLarge Digest = "too large to compare"

// Whole reports whether Read has returned all of what is there, so that it can be put back.
func (f File) Whole() bool { return f.Kind != KindOther && f.Digest != TooLarge }

// Read reads the entry at path below root. ok is false if there is none. If path is a symbolic
// link, Read returns the link. Links on the way are followed in directories that only root may
// write; an entry behind another one counts as absent. A locked password counts as absent, too.
func Read(root, path string) (f File, ok bool, err error) {
	r := reader{root: root, follow: FollowRoots}
	defer r.close()
	return r.read(path)
}

// Look is Read without following links, except that of the first directory.
func Look(root, path string) (f File, ok bool, err error) {
	r := reader{root: root, follow: FollowNone}
	defer r.close()
	return r.read(path)
}

// OfUsers reports whether anybody but root may write the directory of a path, or an existing one on the way to it, or
// whether a user has mounted something there.
func OfUsers(root, path string) bool {
	r := reader{root: root, follow: FollowRoots}
	defer r.close()
	return r.ofUsers(path)
}

// AllOfUsers returns those of the paths for which OfUsers is true.
func AllOfUsers(root string, paths []string) map[string]bool {
	r := reader{root: root, follow: FollowRoots}
	defer r.close()
	users := map[string]bool{}
	for _, path := range paths {
		if r.ofUsers(path) {
			users[path] = true
		}
	}
	return users
}

// read reads an entry of the directory.
func (d *Dir) read(base, path string) (f File, err error) {
	entry, err := d.hold(base)
	if err != nil {
		return File{}, err
	}
	defer entry.Close()
	f = fileOf(path, &entry.stat)
	switch f.Kind {
	case KindFile:
		f.Content, f.Digest, err = entry.content()
	case KindLink:
		f.Target, err = entry.target()
	}
	return f, err
}

// fileOf returns an entry from its stat data.
func fileOf(path string, st *unix.Stat_t) File {
	f := File{Entry: Entry{Kind: kindOf(st), Path: path, Mode: ModeOf(st.Mode), UID: int(st.Uid), GID: int(st.Gid)}}
	if f.Kind == KindLink {
		f.Mode = 0
	}
	return f
}

func kindOf(st *unix.Stat_t) Kind {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return KindFile
	case unix.S_IFDIR:
		return KindDirectory
	case unix.S_IFLNK:
		return KindLink
	}
	return KindOther
}

// ReadEntries reads the entries at paths below root, without contents. Paths without an entry
// are not in the map.
func ReadEntries(root string, paths []string) (map[string]Entry, error) {
	return readEach(root, paths, func(f File) Entry { return f.Entry }) // one content at a time: their sum has no limit
}

// ReadAll reads the entries at paths below root. Paths without an entry are not in the map.
func ReadAll(root string, paths []string) (map[string]File, error) {
	return readEach(root, paths, func(f File) File { return f })
}

func readEach[T any](root string, paths []string, keep func(File) T) (map[string]T, error) {
	found := make(map[string]T, len(paths))
	r := reader{root: root, follow: FollowRoots}
	defer r.close()
	for _, path := range paths {
		f, ok, err := r.read(path)
		if err != nil {
			return nil, err
		}
		if ok {
			found[path] = keep(f)
		}
	}
	return found, nil
}
