package osimage_test

import (
	"os"
	"testing"

	"machine-pivot/test/worlds/oscontainer"
)

// changedObjectCases are layers that contain objects of the base.
func changedObjectCases(_ *testing.T, base osBase) []derivedCase {
	tool, passwd := base.object("/usr/bin/tool"), base.object("/usr/etc/passwd")
	changed := having(with(regular(tool, "new"), 0o4755, 0, 0), "SCHILY.xattr.security.capability", capability)
	wantTool := func(names ...string) func(o *osTree) {
		return func(o *osTree) {
			for _, name := range names {
				o.write(name, "new")
				o.chmod(name, 0o4755)
				o.xattr(name, "security.capability", capability)
			}
		}
	}
	const differs = "a file changed by its object's path below `sysroot/ostree/repo/objects`, with any timestamps"
	return []derivedCase{
		{name: "with links to it", differs: differs, layers: [][]entry{{touched(changed), touched(hard("usr/bin/tool", tool)), touched(hard("usr/bin/tool-too", tool))}},
			want: wantTool("usr/bin/tool", "usr/bin/tool-too")},
		{name: "with links to it in other forms", differs: differs, layers: [][]entry{{touched(changed), touched(hard("usr/bin/tool", "./"+tool)), touched(hard("usr/bin/tool-too", "/"+tool))}},
			want: wantTool("usr/bin/tool", "usr/bin/tool-too")},
		{name: "with links before it", lower: true, layers: [][]entry{{touched(hard("usr/bin/tool", tool)), touched(changed)}}, want: func(*osTree) {}},
		{name: "with a link below etc", differs: differs, layers: [][]entry{{touched(regular(passwd, "changed")), touched(hard("etc/passwd", passwd))}},
			want: func(o *osTree) { o.write("usr/etc/passwd", "changed") }},
		{name: "the object a link to what is below etc", differs: differs, layers: [][]entry{{touched(regular("etc/passwd", "changed")), touched(hard(passwd, "etc/passwd")), touched(hard("usr/share/passwd", passwd))}},
			want: func(o *osTree) { o.write("usr/etc/passwd", "changed"); o.write("usr/share/passwd", "changed") }},
		{name: "of 1970 with links to it", differs: differs, layers: [][]entry{{changed, hard("usr/bin/tool", tool)}},
			want: wantTool("usr/bin/tool")},
		{name: "of 1970 with later links to it", differs: differs, layers: [][]entry{{changed, touched(hard("usr/bin/tool", tool))}},
			want: wantTool("usr/bin/tool")},
		{name: "only a link to the base's", differs: differs, layers: [][]entry{{touched(hard("usr/bin/tool-too", tool)), directory("sysroot/ostree/repo/objects")}},
			want: func(o *osTree) { o.write("usr/bin/tool-too", "tool") }},
		{name: "only a link of 1970 to the base's", differs: differs, layers: [][]entry{{hard("usr/bin/tool-too", tool)}},
			want: func(o *osTree) { o.write("usr/bin/tool-too", "tool") }},
	}
}

// sparseCases are layers written by GNU tar 1.34 (tar --sparse --format=FORMAT), with a file
// that has holes of 1 MiB and another file after it.
func sparseCases(t *testing.T, _ osBase) (cases []derivedCase) {
	holes := make([]byte, 1<<20)
	copy(holes[300000:], "in the middle")
	for format, differs := range map[string]string{"gnu": "sparse files in GNU tar format", "posix": ""} {
		archive, err := os.ReadFile("testdata/sparse/" + format + ".tar")
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, derivedCase{
			name: "sparse files, " + format, differs: differs, layers: [][]entry{{oscontainer.Archive(archive)}},
			want: func(o *osTree) {
				o.write("usr/share/holes", string(holes))
				o.write("usr/share/later", "later")
			},
		})
	}
	return cases
}
