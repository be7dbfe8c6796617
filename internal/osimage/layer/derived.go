package layer

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// NewSink stores files with checksums that are not known in advance. It is used by several goroutines at once.
// *ostree.Import implements it.
type NewSink interface {
	AddNewFile(ctx context.Context, info ostree.FileInfo, body io.Reader) (ostree.Checksum, error)
	AddExpectedFile(ctx context.Context, expected ostree.Checksum, info ostree.FileInfo, body io.Reader) (ostree.Checksum, error)
}

// Derived is the Content of a derived layer: an ordinary tar archive of files. The contents of
// files go to a sink as they are read; the names are collected in Layer.
type Derived struct {
	Layer *Layer // complete when the layer has been read

	sink  NewSink
	label func(path string, mode uint32) string

	// Expected may be nil. It returns the object of the repository that a large file, given by its name in the layer,
	// probably is, which saves writing it. It must not be changed once the layer is read.
	Expected func(name string) (object ostree.Checksum, found bool)
}

// NewDerived returns a Content that puts a layer's files into a sink. label guesses the SELinux
// label that a path will have; "" is no guess. A wrong guess is corrected later, which takes
// time.
func NewDerived(sink NewSink, label func(path string, mode uint32) string) *Derived {
	return &Derived{Layer: New(), sink: sink, label: label}
}

func (d *Derived) entry(ctx context.Context, to *feeder, header *tar.Header, _ string, body io.Reader) error {
	before := d.Layer.Memory()
	kept, err := d.Layer.Kept(header.Name)
	if err == nil && kept {
		err = d.add(ctx, to, header, body)
	}
	if err == nil {
		err = to.countNames(d.Layer.Memory() - before)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", shown(header.Name), err)
	}
	return nil
}

// shown quotes a name for a message, and shortens it if it is very long.
func shown(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

func (d *Derived) add(ctx context.Context, to *feeder, header *tar.Header, body io.Reader) error {
	uid, gid := uint32(header.Uid), uint32(header.Gid)
	if int64(uid) != int64(header.Uid) || int64(gid) != int64(header.Gid) {
		return imagefault.Misbuilt("its owner %d:%d does not exist", header.Uid, header.Gid)
	}
	if header.Typeflag == tar.TypeLink {
		return d.Layer.AddLink(header.Name, header.Linkname, uid, gid)
	}
	xattrs, mode := d.xattrs(header), uint32(header.Mode)&0o7777
	switch header.Typeflag {
	case tar.TypeDir:
		return d.Layer.AddDir(header.Name, ostree.DirInfo{UID: uid, GID: gid, Mode: unix.S_IFDIR | mode, Xattrs: xattrs})
	case tar.TypeSymlink:
		if otherName(header.Name, header.Linkname) {
			return nil
		}
		info := ostree.FileInfo{UID: uid, GID: gid, Mode: unix.S_IFLNK | 0o777, Target: header.Linkname}
		return d.addFile(ctx, to, header.Name, info, xattrs, body)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		info := ostree.FileInfo{UID: uid, GID: gid, Mode: unix.S_IFREG | mode, Size: uint64(header.Size)}
		return d.addFile(ctx, to, header.Name, info, xattrs, body)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return imagefault.Misbuilt("an entry of type %q: an OS has no device, pipe or socket in its image", header.Typeflag)
}

func (d *Derived) addFile(ctx context.Context, to *feeder, name string, info ostree.FileInfo, xattrs map[string][]byte, body io.Reader) error {
	set, err := d.Layer.AddFile(name, info.UID, info.GID, info.Target != "")
	if err != nil {
		return err
	}
	label := d.label("/"+Place(name), info.Mode)
	ostree.SetLabel(xattrs, label)
	if info.Xattrs, err = ostree.EncodeXattrs(xattrs); err != nil {
		return err
	}
	return to.feed(ctx, int64(info.Size), body, func(body io.Reader) error {
		object, err := d.store(ctx, name, info, body)
		set(object, label != "")
		return err
	})
}

// store puts a file into the sink. A small one is in memory, so that its object is known before it is written.
func (d *Derived) store(ctx context.Context, name string, info ostree.FileInfo, body io.Reader) (ostree.Checksum, error) {
	if d.Expected != nil && info.Size > maxBuffered {
		if expected, found := d.Expected(name); found {
			return d.sink.AddExpectedFile(ctx, expected, info, body)
		}
	}
	return d.sink.AddNewFile(ctx, info, body)
}

// ended implements Content.
func (d *Derived) ended() error {
	d.Layer.Complete()
	return nil
}

// ofObjects implements Content.
func (*Derived) ofObjects() bool { return false }

// xattrKey is the prefix of the keys of extended attributes in PAX headers. libarchive also
// writes each attribute under another prefix, which is ignored.
const xattrKey = "SCHILY.xattr."

// xattrs returns an entry's extended attributes, except the SELinux label, which comes
// from the merged tree's policy, and empty attributes, which an object cannot have. Those of other systems, as a build on a
// Mac or NFS leaves them, are left out with a note, as podman leaves them out.
func (d *Derived) xattrs(header *tar.Header) map[string][]byte {
	xattrs := map[string][]byte{}
	for _, key := range slices.Sorted(maps.Keys(header.PAXRecords)) {
		name, ok := strings.CutPrefix(key, xattrKey)
		switch value := header.PAXRecords[key]; {
		case !ok || value == "":
		case !ostree.KnownXattr(name):
			d.Layer.leaveOut(name, header.Name)
		default:
			xattrs[name] = []byte(value)
		}
	}
	ostree.SetLabel(xattrs, "")
	return xattrs
}
