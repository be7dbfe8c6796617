// Package ostreetree makes file trees with everything that ostree can store,
// commits them with the real ostree, and compares repositories with it.
//
// The same tree gives the same commit on every machine, unless a security module
// labels the files.
package ostreetree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Contents selects large files that a tree has in addition to the small ones.
type Contents struct {
	Big    bool // two files of several MB, one of which does not compress
	Sparse bool // a file of more than 2 GiB that is a hole except for its first and last byte
}

// file is one file of the tree. By default it is owned by root and has mode 0644; missing
// parent directories have 0755.
type file struct {
	path     string
	mode     uint32 // mode bits, and unix.S_IFDIR for a directory; 0 is the default and 01000 means mode 0
	uid, gid int
	content  string
	symlink  string // target
	hardlink string // path
	xattrs   map[string]string
}

// capability is cap_net_raw+ep, the capability of ping.
const capability = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// small returns the files of every tree. They form a small OS that cannot boot.
func small() []file {
	long := strings.Repeat("n", 255)
	deep := "usr/lib/deep" + strings.Repeat("/a-directory-with-a-name", 15)
	return []file{
		{path: "sysroot", mode: unix.S_IFDIR | 0o755},
		{path: "dev", mode: unix.S_IFDIR | 0o755},
		{path: "boot", mode: unix.S_IFDIR | 0o700},
		{path: "ostree", symlink: "sysroot/ostree"},
		{path: "usr/etc/passwd", content: "root:x:0:0::/root:/bin/sh\n"},
		{path: "usr/etc/shadow", mode: 0o1000, content: "root:!::0:::::\n"}, // 01000: see file.mode
		{path: "usr/etc/sub/conf", content: "key=value\n"},
		{path: "usr/lib/os-release", content: "ID=test\nVERSION_ID=1\n"},
		{path: "usr/lib/modules/6.1.0/vmlinuz", content: "not a kernel\n"},
		{path: "usr/lib/modules/6.1.0/initramfs.img", content: "not an initramfs\n"},
		{path: "usr/bin/hello", mode: 0o755, content: "#!/bin/sh\necho hello\n"},
		{path: "usr/bin/hi", hardlink: "usr/bin/hello"},

		// Modes and owners.
		{path: "usr/bin/su", mode: 0o4755, content: "suid"},
		{path: "usr/bin/wall", mode: 0o2755, gid: 5, content: "sgid"},
		{path: "usr/bin/odd", mode: 0o6711, uid: 12, gid: 34, content: "suid"},
		{path: "usr/share/mode-0", mode: 0o1000, content: "nobody reads this\n"},
		{path: "usr/share/far", mode: 0o640, uid: 3000000, gid: 4000000, content: "ids that need more than 21 bits"},
		{path: "usr/share/sticky", mode: unix.S_IFDIR | 0o1777},
		{path: "usr/share/sgid", mode: unix.S_IFDIR | 0o2770, gid: 7},
		{path: "usr/share/sgid/inside", gid: 7, content: "inside"},

		// Extended attributes.
		{path: "usr/bin/ping", mode: 0o755, content: "ping", xattrs: map[string]string{"security.capability": capability}},
		{path: "usr/share/xattrs", content: "x", xattrs: map[string]string{
			"user.zz": "last", "user.aa": "\x00\x01\xff", "user.long": strings.Repeat("value ", 100), "trusted.t": "trusted",
		}},
		{path: "usr/share/xattrs-same", content: "y", xattrs: map[string]string{"user.aa": "1"}},
		{path: "usr/share/xattrs-same-2", content: "z", xattrs: map[string]string{"user.aa": "1"}},
		{path: "usr/share/xattrs-none", content: "x"},
		{path: "usr/share/xattrs-dir", mode: unix.S_IFDIR | 0o755, xattrs: map[string]string{"user.dir": "d"}},
		{path: "usr/share/xattrs-link", symlink: "xattrs", xattrs: map[string]string{"trusted.link": "l"}},

		// Symbolic links.
		{path: "usr/lib/link", symlink: "../bin/hello"},
		{path: "usr/lib/dangling", symlink: "nowhere/at all"},
		{path: "usr/lib/absolute", symlink: "/usr/bin/hello"},
		{path: "usr/lib/owned", symlink: "../bin/hello", uid: 12, gid: 34},
		{path: "usr/lib/double", symlink: "../..//usr//bin/hello"},
		{path: "usr/lib/dots", symlink: "./../lib/../lib/link"}, // the reference exporter damages a/./b
		{path: "usr/lib/far-away", symlink: "../" + strings.Repeat("far/", 60) + "away"},
		{path: "usr/lib/very-far-away", symlink: strings.Repeat("0123456789/", 360)},

		// Empty and equal files.
		{path: "usr/share/empty"},
		{path: "usr/share/empty-too"},
		{path: "usr/share/empty-owned", uid: 12, gid: 34},
		{path: "usr/share/empty-xattr", xattrs: map[string]string{"user.aa": "1"}},
		{path: "usr/share/same-1", content: "the same"},
		{path: "usr/share/same-2", content: "the same"},
		{path: "usr/lib/same-3", content: "the same"},
		{path: "usr/lib/same-but-mode", mode: 0o600, content: "the same"},

		// Names.
		{path: "usr/share/names/with space", content: "space"},
		{path: "usr/share/names/new\nline", content: "newline"},
		{path: "usr/share/names/grün-日本語", content: "UTF-8"},
		{path: "usr/share/names/-rf", content: "dash"},
		{path: "usr/share/names/.wh.not-a-whiteout", content: "whiteout"},
		{path: "usr/share/names/back\\slash", content: "backslash"},
		{path: "usr/share/names/" + long, content: "255 bytes"},
		{path: "usr/share/names/" + strings.Repeat("ü", 127), content: "254 bytes"},
		{path: "usr/share/names/" + long[1:] + "-/file", content: "in a directory with 255 bytes"},
		{path: deep + "/file", content: "deep"},
		{path: deep + "/link", symlink: "file"},
	}
}

// Write makes a tree in a directory, which it creates if necessary. It needs root.
func Write(dir string, c Contents) error {
	files := small()
	if c.Big {
		files = append(files,
			file{path: "usr/lib/modules/6.1.0/large", content: strings.Repeat("not a kernel ", 300000)},
			file{path: "usr/lib/noise", mode: 0o600, content: noise(3 << 20)})
	}
	for _, f := range files {
		if err := f.write(dir); err != nil {
			return fmt.Errorf("cannot make a file tree: %w", err)
		}
	}
	if c.Sparse {
		if err := sparse(filepath.Join(dir, "usr/lib/sparse"), 2<<30+12345); err != nil {
			return fmt.Errorf("cannot make a file tree: %w", err)
		}
	}
	return nil
}

// write makes one file. Content and owner are set first, because setting them clears
// mode bits and attributes.
func (f file) write(dir string) error {
	path := filepath.Join(dir, f.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var err error
	switch {
	case f.hardlink != "":
		return os.Link(filepath.Join(dir, f.hardlink), path)
	case f.symlink != "":
		err = os.Symlink(f.symlink, path)
	case f.mode&unix.S_IFDIR != 0:
		err = os.MkdirAll(path, 0o755)
	default:
		err = os.WriteFile(path, []byte(f.content), 0o644)
	}
	if err != nil {
		return err
	}
	if err := os.Lchown(path, f.uid, f.gid); err != nil {
		return err
	}
	for name, value := range f.xattrs {
		if err := unix.Lsetxattr(path, name, []byte(value), 0); err != nil {
			return &os.PathError{Op: "lsetxattr " + name, Path: path, Err: err}
		}
	}
	if f.symlink != "" || f.mode == 0 {
		return nil
	}
	if f.mode == 0o1000 { // stands for mode 0, since 0 stands for the default
		f.mode = 0
	}
	return unix.Chmod(path, f.mode&0o7777)
}

// noise returns data that does not compress.
func noise(size int) string {
	b := make([]byte, size)
	for i, x := 0, uint32(1); i < len(b); i++ {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

// sparse makes a file that is a hole except for its first and last byte.
func sparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("<"), 0); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(">"), size-1)
	return err
}
