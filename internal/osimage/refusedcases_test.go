package osimage_test

import (
	"archive/tar"
	"strings"

	"machine-pivot/internal/fault"
)

// refusedCase is an image with layers that cannot be merged, or would give a commit that does not boot.
type refusedCase struct {
	name    string
	base    func(o *osTree) // changes the base before layers are added
	layers  [][]entry
	kind    fault.Kind
	want    string // in the error
	differs string // see asTheReference
}

func refusedCases() []refusedCase {
	const unbootable = "no kernel or several, a kernel that is a link, no OS name, no `/sysroot`, or signed composefs required"
	return []refusedCase{
		{name: "a pipe", layers: [][]entry{{{Header: tar.Header{Name: "usr/fifo", Typeflag: tar.TypeFifo}}}}, kind: fault.BadInput, want: `"usr/fifo": an entry of type`},
		{name: "a device", layers: [][]entry{{{Header: tar.Header{Name: "usr/null", Typeflag: tar.TypeChar}}}}, kind: fault.BadInput, want: `"usr/null": an entry of type`},
		{name: "upwards", layers: [][]entry{{regular("usr/../../x", "x")}}, kind: fault.BadInput, want: "leads upwards"},
		{name: "not UTF-8", layers: [][]entry{{regular("usr/\xff", "x")}}, kind: fault.BadInput, want: "UTF-8"},
		{name: "a long name", layers: [][]entry{{regular("usr/"+strings.Repeat("x", 256), "x")}}, kind: fault.BadInput, want: "longer than 255"},
		{name: "a whiteout of nothing", layers: [][]entry{{regular("usr/.wh.", "")}}, kind: fault.BadInput, want: "a whiteout of"},
		{name: "a whiteout of the directory above", layers: [][]entry{{regular("usr/share/.wh...", "")}}, kind: fault.BadInput, want: "a whiteout of"},
		{name: "file and directory", layers: [][]entry{{regular("usr/x", "x"), regular("usr/x/y", "y")}}, kind: fault.BadInput, want: "/usr/x is a directory and a file"},
		{name: "directory and file", layers: [][]entry{{regular("usr/x/y", "y"), regular("usr/x", "x")}}, kind: fault.BadInput, want: "/usr/x is a directory and a file"},
		{name: "a hard link to nothing", layers: [][]entry{{hard("usr/x", "usr/nothing")}}, kind: fault.BadInput, want: "/usr/x is a hard link to /usr/nothing"},
		{name: "hard links in a circle", layers: [][]entry{{hard("usr/x", "usr/y"), hard("usr/y", "usr/x")}}, kind: fault.BadInput, want: "leads to itself"},
		{name: "two kernels", differs: unbootable, layers: [][]entry{{regular("usr/lib/modules/6.2.0/vmlinuz", "k")}}, kind: fault.Refused, want: "2 kernels (6.1.0, 6.2.0)"},
		{name: "no kernel", differs: unbootable, layers: [][]entry{{gone("usr/lib/modules")}}, kind: fault.Refused, want: "no kernel"},
		{name: "no release", differs: unbootable, layers: [][]entry{{regular("usr/lib/os-release", "NAME=x\n")}}, kind: fault.Refused, want: "no PRETTY_NAME or ID in /usr/lib/os-release"},
		{name: "a whiteout of the directory itself", layers: [][]entry{{regular("usr/share/.wh..", "")}}, kind: fault.BadInput, want: "a whiteout of"},
		{name: "signed", differs: unbootable, layers: [][]entry{{regular(prepareRoot, "[composefs]\nenabled = signed\n")}}, kind: fault.Refused, want: "boots only what is signed"},
		{name: "a signed base", differs: unbootable, base: func(o *osTree) { o.write(prepareRoot, "[composefs]\nenabled = signed\n") },
			layers: [][]entry{{regular("usr/share/x", "x")}}, kind: fault.Refused, want: "boots only what is signed"},
		{name: "a pattern that Go does not know", differs: "an SELinux file context pattern with look-around or back references", layers: [][]entry{{regular(textPath+".local", "/usr/share/(?=x).* system_u:object_r:x_t:s0\n")}}, kind: fault.Refused, want: "(?=x)"},
		{name: "no policy", layers: [][]entry{{gone("etc/selinux/small/policy")}}, kind: fault.BadInput, want: "policy/policy.*"},
	}
}
