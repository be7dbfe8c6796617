package stories_test

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// native returns the kinds of images that have refs for their layers.
func native(h *hostdir.Host) map[string]func() v1.Image {
	derived := oscontainer.WithDerived(oscontainer.File("usr/share/derived", "x"))
	return map[string]func() v1.Image{
		"native":  func() v1.Image { return h.NativeImage(oscontainer.WithChunks(2)) },
		"derived": func() v1.Image { return h.NativeImage(oscontainer.WithChunks(2), derived) },
		"plain":   func() v1.Image { return h.PlainImage(2, derived) },
	}
}

// container returns the refs of images and layers.
func (d *downloader) container() []string {
	refs := slices.DeleteFunc(d.refs(), func(ref string) bool { return !strings.HasPrefix(ref, "ostree/container/") })
	slices.Sort(refs)
	return refs
}

// cleanUp removes refs of images and layers, as bootc removes those that no deployment needs, and
// the objects that no ref needs.
func (d *downloader) cleanUp(refs ...string) {
	for _, ref := range refs {
		shell(d.t, d.Host, "ostree refs --repo=sysroot/ostree/repo --delete "+ref)
	}
	shell(d.t, d.Host, "ostree prune --repo=sysroot/ostree/repo --refs-only --depth=0")
}

// TestRefsAfterCommit: after a commit an image has its own ref and those of all layers, as rpm-ostree and bootc need
// them, whatever another program removed after the download. Or the commit fails, and another download repairs it.
func TestRefsAfterCommit(t *testing.T) {
	for _, kind := range []string{"native", "derived", "plain"} {
		t.Run(kind, func(t *testing.T) {
			sample.Short(t, 5)
			d := &downloader{Host: hostdir.New(t), t: t}
			d.Serve(native(d.Host)[kind]())
			before := d.container()
			_, err := d.download(configFor(d.Image, "one"))
			must(t, err)
			whole := d.container()
			if len(whole) < len(before)+3 {
				t.Fatalf("an image has the refs %q", whole)
			}
			ours := slices.DeleteFunc(slices.Clone(whole), func(ref string) bool { return slices.Contains(before, ref) })
			images := slices.DeleteFunc(slices.Clone(ours), func(ref string) bool { return !strings.HasPrefix(ref, "ostree/container/image/") })

			d.cleanUp(ours...)
			boots := d.seen()
			err = d.use(nil)
			if err == nil || fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "it was downloaded, but is not complete any more: another program has removed") {
				t.Fatalf("error %v", err)
			}
			if after := d.seen(); after != boots {
				t.Errorf("before:\n%s\nafter:\n%s", boots, after)
			}
			if _, err := d.download(configFor(d.Image, "one")); err != nil || !slices.Equal(d.container(), whole) {
				t.Fatalf("downloaded again it has the refs %q, %v", d.container(), err)
			}

			d.cleanUp(images...) // the commits of the layers stay
			must(t, d.use(nil))
			if got := d.container(); !slices.Equal(got, whole) {
				t.Errorf("after the commit there are %q, want %q", got, whole)
			}
		})
	}
}

// TestFirstLayerRef: the ref of the first layer, without which bootc fails, is restored from
// the image's own commit while the encapsulated one is there.
func TestFirstLayerRef(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	d.Serve(d.NativeImage(oscontainer.WithChunks(2)))
	_, err := d.download(configFor(d.Image, "one"))
	must(t, err)
	whole, base := d.container(), ""
	for _, ref := range whole {
		if strings.HasPrefix(ref, "ostree/container/blob/") && strings.TrimSpace(shell(t, d.Host, "ostree rev-parse --repo=sysroot/ostree/repo "+ref)) == d.Commit {
			base = ref
		}
	}
	shell(t, d.Host, "ostree refs --repo=sysroot/ostree/repo --delete "+base)
	must(t, d.use(nil))
	if got := d.container(); base == "" || !slices.Equal(got, whole) {
		t.Errorf("after the commit there are %q, want %q", got, whole)
	}
}

// TestRefsDuringCommit: refs that are removed while a deployment is made stop the commit before
// it happens; if they are removed during the commit itself, it is taken back.
func TestRefsDuringCommit(t *testing.T) {
	staged := func(t *testing.T, h *hostdir.Host) error { _, err := bootWith(t, h, "ostree"); return err }
	early := func(t *testing.T, h *hostdir.Host) error {
		notes, err := bootEarly(t, h, &place{Initramfs: &initramfs.Initramfs{}})
		if err == nil && strings.Contains(notes, "another program has removed") {
			err = fault.New(fault.Unavailable, "%s", notes) // the initramfs steps aside
		}
		return err
	}
	for _, c := range []struct {
		name, call string // the call of ostree after which the refs go
		boot       func(t *testing.T, h *hostdir.Host) error
		takenBack  bool
	}{
		{"staged", "deploy", staged, false},
		{"while finalized", "finalize-staged", staged, true},
		{"in the initramfs", "deploy", early, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			h := newHost(t)
			h.Serve(h.NativeImage(oscontainer.WithChunks(2)))
			ask(t, h)
			d := &downloader{Host: h, t: t}
			before, removed := d.container(), 0
			h.Ostree.Fail = func(call int, after bool) error {
				if after && h.Ostree.Calls[call-1] == c.call && removed == 0 {
					removed++
					gone := slices.DeleteFunc(d.container(), func(ref string) bool { return slices.Contains(before, ref) })
					d.cleanUp(gone...)
				}
				return nil
			}
			err := c.boot(t, h)
			if removed == 0 || err == nil || !strings.Contains(err.Error(), "another program has removed") {
				t.Fatalf("removed %d times: %v", removed, err)
			}
			if strings.Contains(err.Error(), "the next boot is the one from before") != c.takenBack {
				t.Errorf("error %v", err)
			}
			h.Boot()
			expectOld(t, h)
			h.Ostree.Fail = nil
			must(t, c.boot(t, h))
			if refs := d.container(); len(refs) <= len(before)+1 {
				t.Errorf("after the commit there are %q", refs)
			}
			h.Boot()
			must(t, boot(t, h))
			expectNew(t, h)
		})
	}
}
