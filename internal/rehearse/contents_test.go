package rehearse_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"machine-pivot/internal/rehearse"
)

// TestContents (P100): what a builder has forgotten. A part of pivot without the others is named, and an initramfs with which
// no machine starts refuses the image.
func TestContents(t *testing.T) {
	w := newWorld(t)
	const program, unit, module = "usr/bin/pivot", "usr/lib/systemd/system/pivot-firstboot.service", "usr/lib/dracut/modules.d/90pivot/module-setup.sh"
	whole := initramfs("base ostree pivot")
	image := func(initramfs []byte, names ...string) func(string) {
		return func(tree string) {
			w.kernel(act{}, initramfs, nil)(tree)
			for _, name := range append(names, "usr/lib/os-release") {
				if name == program {
					w.put(tree, program, w.actor, act{})
					continue
				}
				w.must(os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
				w.must(os.WriteFile(filepath.Join(tree, name), []byte("x"), 0o644))
			}
		}
	}
	withoutRelease := func(tree string) {
		image(whole, program, unit, module)(tree)
		w.must(os.Remove(filepath.Join(tree, "usr/lib/os-release")))
	}
	withPart := func(part, text string) func(string) {
		return func(tree string) {
			image(whole, program, unit, module)(tree)
			w.must(os.MkdirAll(filepath.Dir(filepath.Join(tree, part)), 0o755))
			w.must(os.WriteFile(filepath.Join(tree, part), []byte(text), 0o644))
		}
	}
	withProgram := func(text string) []byte { // in the initramfs; a hard link to it comes first
		return append(slices.Clone(whole), cpio([2]string{"usr/bin/pivot", ""}, [2]string{"usr/bin/pivot", text})...)
	}
	actor, err := os.ReadFile(w.actor)
	w.must(err)
	dies := func(tree string) {
		image(whole, program, unit, module)(tree)
		w.put(tree, program, w.actor, act{Status: 3})
	}
	for _, c := range []struct {
		name    string
		tree    func(string)
		boot    int64
		refused []string
		note    string
	}{
		{"whole", image(whole, program, unit, module), 1 << 20, nil, ""},
		{"no room for two", image(whole, program, unit, module), int64(len(whole)), []string{"kernel and initramfs of two such systems have"}, ""},
		{"no pivot", image(initramfs("base ostree")), 0, nil, "it has no pivot"},
		{"units alone", image(whole, unit, module), 0, nil, "it has pivot's units, and no /usr/bin/pivot"},
		{"program alone", image(initramfs("base ostree"), program), 0, nil, "and not its units"},
		{"module that the initramfs lacks", image(initramfs("base ostree"), program, unit, module), 0, nil, "its initramfs was made without"},
		{"program that does not run", dies, 0, nil, "its /usr/bin/pivot does not run: ends with exit status 3"},
		{"unit of another build", withPart(unit, "[Unit]\nDescription=of another\n"), 0, nil, "its /usr/bin/pivot was built with other units: /" + unit + "; install"},
		{"drop-in of another build", withPart("usr/lib/systemd/system/kubelet.service.d/10-pivot-firstboot.conf", "of another"), 0, nil, "other units: /usr/lib/systemd/system/kubelet.service.d/10"},
		{"module of another build", withPart(module, "of another"), 0, nil, "other units: /" + module},
		{"the same program in the initramfs", image(withProgram(string(actor)), program, unit, module), 0, nil, ""},
		{"another program in the initramfs", image(withProgram("of another"), program, unit, module), 0, nil, "the pivot in its initramfs is another one"},
		{"no os-release", withoutRelease, 0, nil, "it has no /usr/lib/os-release"},
		{"no ostree in the initramfs", image(initramfs("base pivot"), program, unit, module), 0, []string{"its initramfs has no dracut module ostree"}, ""},
		{"not dracut's", image(initramfs(""), program, unit), 0, nil, ""},
		{"cut off", image(whole[:len(whole)-30], program, unit, module), 0, []string{"its initramfs is not whole"}, ""},
		{"unknown compression", image([]byte("no initramfs at all"), program, unit, module), 0, nil, "its initramfs cannot be read: it is compressed in an unknown way"},
	} {
		found, err := w.stage().JudgeImage(t.Context(), rehearse.Change{Next: w.commit(c.tree)}, nil, c.boot)
		w.must(err)
		w.found(c.name, found, c.refused, c.note)
	}
}
