package osimage_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// TestDerived compares the merged tree with a tree that the real ostree commits with the real libselinux's labels, and
// with the reference implementation's result for the same image.
func TestDerived(t *testing.T) { testDerived(t, derivedCases) }

// TestDerivedPolicy is TestDerived for layers that change the SELinux policy.
func TestDerivedPolicy(t *testing.T) { testDerived(t, policyCases) }

// TestChangedObjects is TestDerived for layers of builders that write to the base's objects in the image's own
// repository. A changed file has its data there, or is a hard link to it.
func TestChangedObjects(t *testing.T) { testDerived(t, changedObjectCases) }

// TestSparse is TestDerived for files with holes, for which GNU tar has special formats.
func TestSparse(t *testing.T) { testDerived(t, sparseCases) }

func testDerived(t *testing.T, cases func(t *testing.T, base osBase) []derivedCase) {
	h := newHost(t, registry.Options{})
	usual := newOSTree(t).asBase()
	for n, c := range cases(t, usual) {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 6)
			base := usual.forCase(t, c.base)
			h.t = t
			img := base.derive(c.layers)
			if h.recordReference(c.name, img, base.listing) {
				return
			}
			repo, commit := h.importsAs(fmt.Sprintf("derived-%d", n), img, base, c)
			h.asTheReference(c.name, img, difference(base.listing, list(t, repo, commit)), c.differs)
		})
	}
}

// importsAs imports the image of a case and compares it with what the case wants.
func (h *host) importsAs(name string, img v1.Image, base osBase, c derivedCase) (repo, commit string) {
	h.t.Helper()
	ref, _ := h.push(name, img)
	repo = bare(h.t)
	result, err := h.importRef(ref, repo)
	if err != nil {
		h.t.Fatal(err)
	}
	ostreeTool(h.t, "fsck", "--repo="+repo)
	want := base.copy()
	c.want(want)
	sameTree(h.t, repo, result.Commit, want)
	if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, c.notes) || (c.notes == "") != (notes == "") {
		h.t.Errorf("notes %q, want %q", notes, c.notes)
	}
	if !c.lower {
		h.againWithoutEffect(ref, repo, result)
	}
	return repo, result.Commit
}

// TestNamesInOrder: entries of a layer take effect in their order, as in any container: a hard link is the file that its
// target was then. Where two names become one place, a link from one to the other replaces nothing.
func TestNamesInOrder(t *testing.T) {
	h := newHost(t, registry.Options{})
	base := newOSTree(t).asBase()
	for n, c := range []derivedCase{
		{name: "a hard link, then its target's name again", layers: [][]entry{{
			with(regular("usr/share/g", "old"), 0o4755, 0, 0), hard("usr/share/h", "usr/share/g"), hard("usr/share/i", "usr/share/h"), regular("usr/share/g", "new"),
			regular("usr/share/l", "old"), hard("usr/share/m", "usr/share/l"), symlink("usr/share/l", "g"),
		}}, want: func(o *osTree) {
			for _, name := range []string{"usr/share/h", "usr/share/i"} {
				o.write(name, "old")
				o.chmod(name, 0o4755)
			}
			o.write("usr/share/g", "new")
			o.write("usr/share/m", "old")
			o.link("usr/share/l", "g")
		}},
		{name: "a hard link to what lower layers have, then its target's name again", lower: true, layers: [][]entry{
			{with(regular("usr/share/low", "old"), 0o4755, 0, 0), regular("usr/share/gone", "old"), regular("usr/share/d/f", "old")},
			{
				hard("usr/share/h", "usr/share/low"), hard("usr/share/i", "usr/share/h"), regular("usr/share/low", "new"),
				hard("usr/share/j", "usr/share/gone"), gone("usr/share/gone"), regular("usr/share/gone", "new"),
				hard("usr/share/k", "usr/share/d/f"), gone("usr/share/d"), symlink("usr/share/d", "low"),
				hard("usr/share/m", "usr/share/n"), hard("usr/share/n", "usr/share/low"), hard("usr/share/o", "usr/share/p"), regular("usr/share/p", "later"),
				hard("etc/passwd-too", "etc/passwd"), regular("etc/passwd", "new"),
			},
		}, want: func(o *osTree) {
			for _, name := range []string{"usr/share/h", "usr/share/i"} {
				o.write(name, "old")
				o.chmod(name, 0o4755)
			}
			for name, content := range map[string]string{"low": "new", "j": "old", "gone": "new", "k": "old", "m": "new", "n": "new", "o": "later", "p": "later"} {
				o.write("usr/share/"+name, content)
			}
			o.link("usr/share/d", "low")
			passwd, err := os.ReadFile(o.path("usr/etc/passwd"))
			o.must(err)
			o.write("usr/etc/passwd-too", string(passwd))
			o.write("usr/etc/passwd", "new")
		}},
		{name: "links to an object of the base, before and after it is changed", lower: true, layers: [][]entry{
			{hard("usr/share/h", base.object("/usr/bin/tool")), regular(base.object("/usr/bin/tool"), "new"), hard("usr/share/i", base.object("/usr/bin/tool"))},
		}, want: func(o *osTree) {
			o.write("usr/share/h", "tool")
			o.write("usr/share/i", "new")
		}},
		{name: "links to the other name of the same place", lower: true, layers: [][]entry{
			{regular("usr/etc/x", "x"), regular("usr/etc/d/f", "f"), regular("usr/etc/same", "same"), symlink("etc/same", "../usr/etc/same")},
			{symlink("etc/x", "../usr/etc/x"), symlink("etc/d", "/usr/etc/d"), symlink("etc", "usr/etc"), hard("etc/same", "usr/etc/same")},
		}, want: func(o *osTree) {
			o.write("usr/etc/x", "x")
			o.write("usr/etc/d/f", "f")
			o.write("usr/etc/same", "same")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			h.importsAs(fmt.Sprintf("names-%d", n), base.derive(c.layers), base, c)
		})
	}
}

// sameTree compares a commit's tree with the one that ostree commits for a directory.
func sameTree(t *testing.T, repo, commit string, want *osTree) {
	t.Helper()
	wanted := list(t, want.repo, want.commit())
	if got := list(t, repo, commit); got != wanted {
		t.Errorf("the merged tree differs:\n%s", difference(wanted, got))
	}
}

// list returns ostree's listing of a commit's tree.
func list(t *testing.T, repo, commit string) string {
	t.Helper()
	listing, err := ostreetree.List(repo, commit)
	if err != nil {
		t.Fatal(err)
	}
	return listing
}

// difference returns the lines that only one of two listings has, marked as by diff(1).
func difference(from, to string) string {
	var b strings.Builder
	only := func(sign, listing, other string) {
		others := strings.Split(other, "\n")
		for line := range strings.SplitSeq(listing, "\n") {
			if line != "" && !slices.Contains(others, line) {
				fmt.Fprintf(&b, "%s %s\n", sign, strings.TrimSpace(line))
			}
		}
	}
	only("-", from, to)
	only("+", to, from)
	return b.String()
}

// TestDerivedRefused uses layers that must be refused.
func TestDerivedRefused(t *testing.T) {
	h := newHost(t, registry.Options{})
	usual := newOSTree(t).asBase()
	for n, c := range refusedCases() {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 12)
			base := usual.forCase(t, c.base)
			h.t = t
			img := base.derive(c.layers)
			if h.recordReference(c.name, img, base.listing) {
				return
			}
			h.refuses(fmt.Sprintf("refused-%d", n), img, c.kind, c.want)
			h.asTheReference(c.name, img, madeNothing, c.differs)
		})
	}
}

// plainCase is the same tree in a number of layers.
type plainCase struct {
	name        string
	layers      int
	compression oscontainer.Compression
}

func plainCases() []plainCase {
	return []plainCase{{"a plain image, one", 1, oscontainer.Zstd}, {"a plain image, many", 300, oscontainer.Gzip}, {"a plain image, chunked", 5, oscontainer.ZstdFrames}}
}

// plainDiffers is the reason why the reference rejects all plain cases.
const plainDiffers = "an image without an ostree commit"

// TestPlain imports the same tree without an ostree commit, in one layer and in many.
func TestPlain(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	for n, c := range plainCases() {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			h.t, o.t = t, t
			img := plainImage(t, o, c.layers, oscontainer.WithCompression(c.compression))
			if h.recordReference(c.name, img, "") {
				return
			}
			ref, _ := h.push(fmt.Sprintf("plain-%d", n), img)
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			if result.Format != osimage.Plain {
				t.Errorf("format %s", result.Format)
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			sameTree(t, repo, result.Commit, o)
			if parent := ostreeTool(t, "show", "--repo="+repo, result.Commit); strings.Contains(parent, "Parent") {
				t.Errorf("a parent:\n%s", parent)
			}
			h.againWithoutEffect(ref, repo, result)
			h.asTheReference(c.name, img, difference("", list(t, repo, result.Commit)), plainDiffers)
		})
	}
}

// againWithoutEffect imports an image again and checks that this is a no-op.
func (h *host) againWithoutEffect(ref imageref.Reference, repo string, first osimage.Result) {
	h.t.Helper()
	again, err := h.importRef(ref, repo)
	if err != nil || again.Commit != first.Commit || again.Bytes.Fetched != 0 || again.Objects.New != 0 {
		h.t.Errorf("again: %+v, %v", again, err)
	}
}

// TestLayerCommitsHaveFinalLabels: the policy of a later layer applies to the commit of an
// earlier layer too, so that the next image with that layer needs no relabelling.
func TestLayerCommitsHaveFinalLabels(t *testing.T) {
	h := newHost(t, registry.Options{})
	h.givePolicy(contexts) // for guessing the labels
	const policy = contexts + "/usr/libexec/daemon -- system_u:object_r:daemon_exec_t:s0\n"
	img := newOSTree(t).asBase().derive([][]entry{{regular("usr/libexec/daemon", "d")}, {regular(textPath, policy)}})
	ref, _ := h.push("labels", img)
	repo := bare(t)
	result, err := h.importRef(ref, repo)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[len(layers)-2].Digest()
	if err != nil {
		t.Fatal(err)
	}
	const daemon = "/usr/libexec/daemon"
	of := func(commit string) string { return ostreeTool(t, "ls", "--repo="+repo, "-C", "-X", commit, daemon) }
	layer := of("ostree/container/blob/sha256_3A_" + digest.Hex)
	if !strings.Contains(layer, "daemon_exec_t") || layer != of(result.Commit) {
		t.Errorf("the layer has\n%s\nand the image\n%s", layer, of(result.Commit))
	}
}

// givePolicy installs the policy of the small OS on the host.
func (h *host) givePolicy(contexts string) {
	const dir = "/etc/selinux/small/contexts/files/file_contexts"
	h.write("/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=small\n")
	h.write(dir, contexts)
	h.write(dir+".subs_dist", "/usr/etc /etc\n")
}

// TestGuessedLabels: whatever policy the host has, the labels are those of the image's policy. A file with a label that
// was guessed right is written only once.
func TestGuessedLabels(t *testing.T) {
	o := newOSTree(t)
	o.write("usr/bin/large", strings.Repeat("large ", 1<<19))
	for name, policy := range map[string]string{
		"none": "", "the same": contexts, "another": strings.ReplaceAll(contexts, "bin_t", "other_bin_t"), "one that cannot be read": "/x -z x\n",
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 4)
			h := newHost(t, registry.Options{})
			if policy != "" {
				h.givePolicy(policy)
			}
			o.t = t
			ref, _ := h.push("guess", plainImage(t, o, 3))
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			sameTree(t, repo, result.Commit, o)
			// Each layer has the content once; the rest is metadata. A wrong guess costs a copy,
			// because layers are kept before the right labels are known.
			most := int64(6<<19) * 105 / 100
			if name == "another" {
				most *= 2
			}
			if result.Bytes.Written > most {
				t.Errorf("%d bytes written of %d", result.Bytes.Written, most)
			}
			if name == "the same" {
				pruned, err := ostreetree.Ostree("prune", "--refs-only", "--no-prune", "--repo="+repo)
				if err != nil || !strings.Contains(pruned, "No unreachable objects") {
					t.Errorf("something was written that nothing needs: %s, %v", pruned, err)
				}
			}
		})
	}
}
