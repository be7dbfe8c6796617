package osimage_test

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/worlds/oscontainer"
)

// entry is a short name for the entries of layers.
type entry = oscontainer.Entry

func regular(name, content string) entry { return oscontainer.File(name, content) }
func directory(name string) entry        { return oscontainer.Directory(name) }
func symlink(name, target string) entry  { return oscontainer.Symlink(name, target) }

// hard returns a hard link.
func hard(name, target string) entry {
	return entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink, Mode: 0o644}}
}

// gone returns a whiteout for a name.
func gone(name string) entry {
	i := strings.LastIndex(name, "/") + 1
	return regular(name[:i]+".wh."+name[i:], "")
}

// with returns an entry with another mode and owner.
func with(e entry, mode int64, uid, gid int) entry {
	e.Mode, e.Uid, e.Gid = mode, uid, gid
	return e
}

// having returns an entry with records in its PAX header.
func having(e entry, records ...string) entry {
	e.PAXRecords = map[string]string{}
	for i := 0; i < len(records); i += 2 {
		e.PAXRecords[records[i]] = records[i+1]
	}
	return e
}

func chain(n int) []entry {
	entries := []entry{regular("usr/share/chain/0", "chain")}
	for i := range n {
		// In reverse order: the target of a link may come later.
		entries = append([]entry{hard(fmt.Sprintf("usr/share/chain/%d", i+1), fmt.Sprintf("usr/share/chain/%d", i))}, entries...)
	}
	return entries
}

// touched returns an entry with a modification time, like one that a builder has changed. Other
// entries have the time 0, as in reproducible builds.
func touched(e entry) entry {
	e.ModTime = time.Unix(1700000000, 0)
	return e
}

// capability is a value of security.capability.
const capability = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// derivedCase is an image with derived layers and the expected result.
type derivedCase struct {
	name    string
	base    func(o *osTree) // changes the base before layers are added
	layers  [][]entry
	want    func(o *osTree) // changes a copy of the base to the expected tree
	notes   string          // expected notes
	differs string          // see asTheReference
	lower   bool            // a layer has or may have files of lower ones, by hard links, and is fetched again
}

func derivedCases(*testing.T, osBase) []derivedCase {
	return []derivedCase{
		{name: "a file replaced, with another mode", layers: [][]entry{{with(regular("usr/bin/tool", "new"), 0o4755, 0, 0)}},
			want: func(o *osTree) { o.write("usr/bin/tool", "new"); o.chmod("usr/bin/tool", 0o4755) }},
		{name: "extended attributes", layers: [][]entry{{having(regular("usr/bin/ping", "ping"), "SCHILY.xattr.user.x", "1", "SCHILY.xattr.security.capability", capability)}},
			want: func(o *osTree) {
				o.write("usr/bin/ping", "ping")
				o.xattr("usr/bin/ping", "user.x", "1")
				o.xattr("usr/bin/ping", "security.capability", capability)
			}},
		{name: "a label and an empty attribute", differs: "the extended attribute `security.selinux`, or an empty one", layers: [][]entry{{having(regular("usr/bin/x", "x"), "SCHILY.xattr.security.selinux", "system_u:object_r:shadow_t:s0", "SCHILY.xattr.user.empty", "")}},
			want: func(o *osTree) { o.write("usr/bin/x", "x") }},
		{name: "whiteouts", layers: [][]entry{{gone("usr/bin/tool"), gone("usr/share/dir"), gone("usr/share/never-there")}},
			want: func(o *osTree) { o.remove("usr/bin/tool"); o.remove("usr/share/dir") }},
		{name: "a directory removed and made again", layers: [][]entry{{gone("usr/share/dir")}, {with(directory("usr/share/dir"), 0o700, 1, 2), regular("usr/share/dir/new", "n")}},
			want: func(o *osTree) {
				o.remove("usr/share/dir")
				o.write("usr/share/dir/new", "n")
				o.chmod("usr/share/dir", 0o700)
				o.chown("usr/share/dir", 1, 2)
			}},
		{name: "the same in one layer", layers: [][]entry{{with(directory("usr/share/dir"), 0o700, 1, 2), regular("usr/share/dir/new", "n"), gone("usr/share/dir")}},
			want: func(o *osTree) {
				o.remove("usr/share/dir")
				o.write("usr/share/dir/new", "n")
				o.chmod("usr/share/dir", 0o700)
				o.chown("usr/share/dir", 1, 2)
			}},
		{name: "an opaque directory", layers: [][]entry{{with(directory("usr/share/dir"), 0o711, 0, 0), regular("usr/share/dir/new", "n"), directory("usr/share/dir/sub"), regular("usr/share/dir/sub/new", "n"), regular("usr/share/dir/.wh..wh..opq", "")}},
			want: func(o *osTree) {
				o.remove("usr/share/dir")
				o.write("usr/share/dir/new", "n")
				o.write("usr/share/dir/sub/new", "n")
				o.chmod("usr/share/dir", 0o711)
			}},
		{name: "a whiteout and a file of the same name", layers: [][]entry{{gone("usr/bin/tool"), regular("usr/bin/tool", "new")}},
			want: func(o *osTree) { o.write("usr/bin/tool", "new") }},
		{name: "the same with a name that sorts before it", differs: "the whiteout `.wh.-x` beside `-x`, or beside another name that sorts before `.wh.`", base: func(o *osTree) { o.write("usr/bin/-x", "old") },
			layers: [][]entry{{regular("usr/bin/-x", "new"), gone("usr/bin/-x")}}, want: func(o *osTree) { o.write("usr/bin/-x", "new") }},
		{name: "other types over layers", layers: [][]entry{
			{symlink("usr/share/dir", "private"), regular("usr/share/private", "file"), directory("usr/bin/tool"), regular("usr/bin/tool/inside", "i")},
			{directory("usr/share/dir"), regular("usr/share/dir/new", "n"), regular("usr/bin/tool", "again")},
		}, want: func(o *osTree) {
			o.remove("usr/share/dir")
			o.write("usr/share/dir/new", "n")
			o.write("usr/share/private", "file")
			o.write("usr/bin/tool", "again")
		}},
		{name: "a symbolic link is not followed", layers: [][]entry{{regular("bin/inside", "i")}},
			want: func(o *osTree) { o.remove("bin"); o.write("bin/inside", "i") }},
		{name: "the mode of a directory that is there", layers: [][]entry{{with(directory("usr/share/private"), 0o755, 3, 4), regular("usr/share/private/new", "n")}},
			want:  func(o *osTree) { o.write("usr/share/private/new", "n") },
			notes: "/usr/share/private keeps mode 0700 and owner 0:0: derived layer 1 has 0755 and 3:4"},
		{name: "the mode of a directory that a layer made", layers: [][]entry{{with(directory("usr/share/made"), 0o711, 1, 2)}, {with(directory("usr/share/made"), 0o700, 0, 0)}},
			want:  func(o *osTree) { o.mkdir("usr/share/made", 0o711); o.chown("usr/share/made", 1, 2) },
			notes: "/usr/share/made keeps mode 0711"},
		{name: "directories without entries", layers: [][]entry{{with(regular("usr/share/x/y/z", "z"), 0o600, 1000, 1001), regular("usr/share/private/q", "q")}},
			want: func(o *osTree) {
				o.write("usr/share/x/y/z", "z")
				for _, name := range []string{"usr/share/x", "usr/share/x/y", "usr/share/x/y/z"} {
					o.chown(name, 1000, 1001)
				}
				o.chmod("usr/share/x/y/z", 0o600)
				o.write("usr/share/private/q", "q")
			}},
		{name: "directories without entries, of several owners", layers: [][]entry{{
			with(regular("usr/share/x/y/z", "z"), 0o644, 1000, 1001), with(regular("usr/share/x/a", "a"), 0o644, 3, 3), with(regular("usr/share/x/b/c", "c"), 0o644, 2000, 2001),
		}},
			want: func(o *osTree) {
				o.write("usr/share/x/y/z", "z")
				o.write("usr/share/x/a", "a")
				o.write("usr/share/x/b/c", "c")
				for _, name := range []string{"usr/share/x/y", "usr/share/x/y/z"} {
					o.chown(name, 1000, 1001)
				}
				o.chown("usr/share/x/a", 3, 3)
				for _, name := range []string{"usr/share/x", "usr/share/x/b", "usr/share/x/b/c"} {
					o.chown(name, 2000, 2001)
				}
			}},
		{name: "a directory without an entry below one with", differs: "a directory with a tar entry that contains one without", layers: [][]entry{{with(directory("usr/share/x"), 0o711, 1, 2), regular("usr/share/x/y/z", "z")}},
			want: func(o *osTree) {
				o.write("usr/share/x/y/z", "z")
				o.chmod("usr/share/x", 0o711)
				o.chown("usr/share/x", 1, 2)
			}},
		{name: "hard links", lower: true, layers: [][]entry{{
			hard("usr/share/before", "usr/bin/real"), with(regular("usr/bin/real", "real"), 0o4755, 1, 1), hard("usr/bin/again", "/usr/bin/real"),
			hard("etc/linked", "./usr/bin/real"), hard("usr/share/from-etc", "etc/conf"), regular("etc/conf", "conf"),
		}}, want: func(o *osTree) {
			for _, name := range []string{"usr/share/before", "usr/bin/real", "usr/bin/again", "usr/etc/linked"} {
				o.write(name, "real")
				o.chown(name, 1, 1)
				o.chmod(name, 0o4755)
			}
			o.write("usr/share/from-etc", "conf")
			o.write("usr/etc/conf", "conf")
		}},
		{name: "a hard link to a file of a lower layer", lower: true, differs: "a hard link to a file of a lower layer; a chain of hard links", layers: [][]entry{{hard("usr/bin/tool-too", "usr/bin/tool"), regular("usr/share/one", "1")}, {hard("usr/share/uno", "usr/share/one")}},
			want: func(o *osTree) {
				o.write("usr/bin/tool-too", "tool")
				o.write("usr/share/one", "1")
				o.write("usr/share/uno", "1")
			}},
		{name: "a chain of hard links", lower: true, differs: "a hard link to a file of a lower layer; a chain of hard links", layers: [][]entry{chain(6)},
			want: func(o *osTree) {
				for i := range 7 {
					o.write(fmt.Sprintf("usr/share/chain/%d", i), "chain")
				}
			}},
		{name: "empty files of container tools", differs: "empty `/etc/hostname` and `/etc/resolv.conf`, as container tools create them", layers: [][]entry{{regular("etc/hostname", ""), regular("etc/resolv.conf", ""), regular("etc/other", "")}},
			want: func(o *osTree) { o.write("usr/etc/other", "") }},
		{name: "the same with content", layers: [][]entry{{regular("etc/hostname", "h"), symlink("etc/resolv.conf", "../run/resolv.conf")}},
			want: func(o *osTree) {
				o.write("usr/etc/hostname", "h")
				o.link("usr/etc/resolv.conf", "../run/resolv.conf")
			}},
		{name: "beside usr and etc, seen", layers: [][]entry{{regular("opt/app/bin", "a"), regular("boot/x", "x"), regular("top", "t")}},
			want: func(o *osTree) { o.write("opt/app/bin", "a"); o.write("boot/x", "x"); o.write("top", "t") }},
		{name: "beside usr and etc, not seen", base: func(o *osTree) { o.remove(prepareRoot) },
			layers: [][]entry{{regular("opt/app/bin", "a"), regular("boot/x", "x"), regular("top", "t")}},
			want:   func(*osTree) {},
			notes:  "/opt of derived layer 1 is left out"},
		{name: "a hard link to what is not seen", differs: "a hard link to an omitted file outside of `usr` and `etc`", base: func(o *osTree) { o.remove(prepareRoot) },
			layers: [][]entry{{regular("opt/app/bin", "a"), hard("usr/bin/app", "opt/app/bin")}},
			want:   func(o *osTree) { o.write("usr/bin/app", "a") },
			notes:  "/opt of derived layer 1 is left out"},
		{name: "of the running system", layers: [][]entry{{directory("run"), regular("run/x", "x"), regular("tmp/x", "x"), regular("proc/x", "x"),
			{Header: tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Mode: 0o666}}}}, want: func(*osTree) {}},
		{name: "of var, and gone again", layers: [][]entry{{regular("var/lib/app/state", "s"), regular("var/lib/other", "o")}, {gone("var/lib/app")}},
			want: func(o *osTree) { o.write("var/lib/other", "o") }, notes: "file(s) below /var, as /var/lib/app/state, are for new installations"},
		{name: "kernel arguments", layers: [][]entry{{regular("usr/lib/bootc/kargs.d/10-x.toml", "kargs = [\"x\"]"), regular("var/tmp/x", "x")}},
			want: func(o *osTree) {
				o.write("usr/lib/bootc/kargs.d/10-x.toml", "kargs = [\"x\"]")
				o.write("var/tmp/x", "x")
			}},
		{name: "one path by two names", layers: [][]entry{{regular("usr/etc/a", "1"), regular("etc/a", "2")}},
			want: func(o *osTree) { o.write("usr/etc/a", "2") }},
		{name: "long names, and not of ASCII", layers: [][]entry{{regular("etc/"+strings.Repeat("ä", 100)+"/"+strings.Repeat("b", 200), "l"), regular("usr/share/grün", "g")}},
			want: func(o *osTree) {
				o.write("usr/etc/"+strings.Repeat("ä", 100)+"/"+strings.Repeat("b", 200), "l")
				o.write("usr/share/grün", "g")
			}},
		{name: "names in a PAX header", differs: "paths below `etc` in a PAX header", layers: [][]entry{{
			having(regular("etc/short", "l"), "path", "etc/grün/"+strings.Repeat("ö", 100)), having(hard("usr/share/short", "etc/short"), "linkpath", "etc/grün/"+strings.Repeat("ö", 100)),
		}},
			want: func(o *osTree) {
				o.write("usr/etc/grün/"+strings.Repeat("ö", 100), "l")
				o.write("usr/share/short", "l")
			}},
		{name: "layers that change nothing", layers: [][]entry{{}, {with(directory("."), 0o700, 0, 0)}, {}},
			want: func(*osTree) {}, notes: "keeps mode 0755"},
		{name: "etc removed", differs: "the whiteout `.wh.etc`", layers: [][]entry{{gone("etc/passwd"), gone("etc/conf.d")}, {gone("etc")}, {regular("etc/new", "n")}},
			want: func(o *osTree) { o.remove("usr/etc"); o.write("usr/etc/new", "n"); o.policy = o.origin }},
		{name: "a large file", layers: [][]entry{{regular("usr/bin/large", strings.Repeat("large ", 1<<19))}},
			want: func(o *osTree) { o.write("usr/bin/large", strings.Repeat("large ", 1<<19)) }},
	}
}
