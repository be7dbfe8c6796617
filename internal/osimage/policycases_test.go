package osimage_test

import (
	"os"
	"testing"

	"machine-pivot/test/worlds/oscontainer"
)

// textPath and compiledPath are the paths of the policy's patterns in layers.
const (
	textPath     = "etc/selinux/small/contexts/files/file_contexts"
	compiledPath = textPath + ".bin"
)

// policyCases are layers that change the policy with which the tree is labelled.
func policyCases(t *testing.T, usual osBase) []derivedCase {
	// The output of sefcontext_compile -r of libselinux 3.8 for contexts.
	binary, err := os.ReadFile("testdata/file_contexts.bin")
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(o *osTree) { o.write("usr/"+compiledPath, string(binary)) }
	const daemon = contexts + "/usr/libexec/daemon -- system_u:object_r:daemon_exec_t:s0\n/usr/share/dir(/.*)? system_u:object_r:other_t:s0\n"
	whole, err := oscontainer.FromTree(usual.dir)
	if err != nil {
		t.Fatal(err)
	}
	return []derivedCase{
		{name: "the policy for paths of the base changed", layers: [][]entry{{regular(textPath+".local", "/usr/share/directory(/.*)?  system_u:object_r:local_t:s0\n")}},
			want: func(o *osTree) {
				o.write("usr/"+textPath+".local", "/usr/share/directory(/.*)?  system_u:object_r:local_t:s0\n")
			}},
		{name: "the policy for an earlier layer's path changed", layers: [][]entry{{regular("usr/libexec/daemon", "d")},
			{regular(textPath, contexts+"/usr/libexec/daemon -- system_u:object_r:daemon_exec_t:s0\n")}},
			want: func(o *osTree) {
				o.write("usr/libexec/daemon", "d")
				o.write("usr/"+textPath, contexts+"/usr/libexec/daemon -- system_u:object_r:daemon_exec_t:s0\n")
			}},
		{name: "no label by the policy", layers: [][]entry{{regular("usr/share/unlabelled/x", "x")}},
			want: func(o *osTree) { o.write("usr/share/unlabelled/x", "x") }},
		{name: "the text of compiled contexts changed", base: compiled, layers: [][]entry{{regular("usr/libexec/daemon", "d"), regular(textPath, daemon)}},
			want: func(o *osTree) {
				o.write("usr/libexec/daemon", "d")
				o.write("usr/"+textPath, daemon)
				o.policy = o.origin
			}},
		{name: "the text of compiled contexts changed and those removed", base: compiled,
			layers: [][]entry{{regular("usr/libexec/daemon", "d"), regular(textPath, daemon), gone(compiledPath)}},
			want: func(o *osTree) {
				o.write("usr/libexec/daemon", "d")
				o.write("usr/"+textPath, daemon)
				o.remove("usr/" + compiledPath)
			}},
		{name: "the policy removed", layers: [][]entry{{regular("usr/bin/new", "n"), gone("etc/selinux")}},
			want: func(o *osTree) { o.write("usr/bin/new", "n"); o.remove("usr/etc/selinux"); o.policy = o.origin }},
		{name: "the policy switched off", layers: [][]entry{{regular("usr/bin/new", "n"), regular("etc/selinux/config", "SELINUX=disabled\nSELINUXTYPE=small\n")}},
			want: func(o *osTree) {
				o.write("usr/bin/new", "n")
				o.write("usr/etc/selinux/config", "SELINUX=disabled\nSELINUXTYPE=small\n")
				o.policy = o.origin
			}},
		{name: "a whole OS on a base of a kernel", base: func(o *osTree) {
			o.remove(".")
			o.write("usr/lib/modules/6.1.0/vmlinuz", "another kernel")
			o.write("usr/lib/modules/6.1.0/initramfs.img", "initramfs")
			o.write(prepareRoot, "[composefs]\nenabled = maybe\n")
		}, layers: oscontainer.SpreadEntries(whole, 50), want: func(o *osTree) { o.copyFrom(usual.dir) }},
	}
}
