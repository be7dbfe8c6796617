package ostree

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ContentSize returns the size in bytes of the file with an object's content: a regular file or a metadata object in
// the repository, or one that an interrupted import left. found is false for symbolic links, and for objects that are
// in neither. Objects that this import itself writes do not count, and so does a changed file. Nothing is read, so the
// content may be damaged.
func (im *Import) ContentSize(n ObjectName) (size int64, found bool) {
	path := im.repo.objectPath(n)
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err != nil && im.isAdopted(n) {
		err = unix.Lstat(im.staging.path(n), &st)
	}
	regular := st.Mode&unix.S_IFMT == unix.S_IFREG
	return st.Size, err == nil && regular && (n.Type != File || isUnchanged(st))
}

// Resumes reports whether an interrupted import of this boot has left objects.
func (im *Import) Resumes() bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return len(im.adopted) > 0
}

// isAdopted reports whether an interrupted import has left an object that this one has not added yet.
func (im *Import) isAdopted(n ObjectName) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.adopted[n]
}

// OpenContent opens the content of an object that ContentSize has found.
func (im *Import) OpenContent(n ObjectName) (io.ReadCloser, error) {
	const flags = os.O_RDONLY | unix.O_NOFOLLOW // the object of a link would lead to a file of the running system
	f, err := os.OpenFile(im.repo.objectPath(n), flags, 0)
	if os.IsNotExist(err) {
		f, err = os.OpenFile(im.staging.path(n), flags, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open object %s: %w", n, err)
	}
	return f, nil
}

// Xattrs returns the extended attributes of a file object in the repository, as in FileInfo.
func (im *Import) Xattrs(c Checksum) ([]byte, error) {
	xattrs, err := readXattrs(im.repo.objectPath(ObjectName{c, File}))
	if err != nil {
		return nil, fmt.Errorf("cannot look at object %s: %w", ObjectName{c, File}, err)
	}
	return EncodeXattrs(xattrs)
}

// FilesBySize returns the regular file objects of the repository by their size in bytes: of those
// of at least min bytes, at most most of each size. Objects that cannot be looked at are left out.
func (r *Repo) FilesBySize(min int64, most int) map[int64][]Checksum {
	found := map[int64][]Checksum{}
	for i := range 256 {
		shard := fmt.Sprintf("%02x", i)
		entries, err := os.ReadDir(filepath.Join(r.path, "objects", shard))
		if err != nil {
			continue
		}
		for _, e := range entries {
			n, archive, err := ParseLoosePath(shard + "/" + e.Name())
			if err != nil || archive || n.Type != File || !e.Type().IsRegular() {
				continue
			}
			info, err := e.Info()
			if err == nil && info.Size() >= min && len(found[info.Size()]) < most {
				found[info.Size()] = append(found[info.Size()], n.Checksum)
			}
		}
	}
	return found
}
