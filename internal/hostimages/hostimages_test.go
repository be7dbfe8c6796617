package hostimages_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// engine implements only the methods of pivot.Engine that are about images.
type engine struct {
	pivot.Engine
	refuses error
}

func (e engine) CheckPrepareRoot(context.Context, ostree.PrepareRoot) error { return e.refuses }
func (e engine) CheckSpace(context.Context, string) error                   { return nil }

// images are the images of a host, with a record of their requests and notes.
type images struct {
	*hostimages.Pulled
	host     *hostdir.Host
	networks int // how often Network was called
	notes    []string
}

func imagesOf(t *testing.T) *images {
	t.Helper()
	i := &images{host: hostdir.New(t)}
	i.Pulled = &hostimages.Pulled{
		Store: hostimages.Store{
			Host: i.host.Host, Puller: &osimage.Puller{Root: i.host.Root}, Engine: engine{},
			Note: func(message string) { i.notes = append(i.notes, message) },
		},
		Network: func(context.Context) error { i.networks++; return nil },
		Retry:   retry.Policy{Tries: 1},
	}
	return i
}

// tagged returns the host's next image by its tag.
func (i *images) tagged() pivot.Image {
	return pivot.ImageOf(imageref.FromOrigin(i.host.Registry.Host() + "/os/native:b"))
}

// pull resolves, checks and imports the host's next image.
func (i *images) pull(t *testing.T) (pinned, image pivot.Image) {
	t.Helper()
	pinned, err := i.Resolve(t.Context(), i.tagged())
	must(t, err)
	must(t, i.Check(t.Context(), pinned))
	image, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	must(t, err)
	return pinned, image
}

// refs returns the refs of images in the host's repository.
func (i *images) refs() []string {
	return slices.DeleteFunc(i.host.Refs(), func(ref string) bool {
		return !strings.HasPrefix(ref, "pivot/") && !strings.HasPrefix(ref, "ostree/container/")
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, err error, kind fault.Kind, text string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one of kind %v with %q", err, kind, text)
	}
}

// bringing returns a derived layer with a file of kernel arguments.
func bringing(text string) oscontainer.Option {
	return oscontainer.WithDerived(oscontainer.File("usr/lib/bootc/kargs.d/10-test.toml", text))
}

// TestDownloadedAfterPulled (P77): an image that was pulled can be used without the registry, also
// by its tag; other images cannot. Removing it removes all its refs.
func TestDownloadedAfterPulled(t *testing.T) {
	i := imagesOf(t)
	i.host.Serve(i.host.NativeImage(bringing(`kargs = ["own=1"]`)))
	before := i.refs()
	pinned, image := i.pull(t)
	if image.Reference().String() != i.host.Image || image.Commit == "" || image.Container() == "" || i.networks != 2 {
		t.Errorf("image %+v, and the network was asked for %d times", image, i.networks)
	}
	if own, err := i.Arguments(image.Commit); err != nil || own.Line.String() != "own=1" {
		t.Errorf("it brings %q, %v", own.Line, err)
	}

	must(t, i.host.Registry.SetDown(true))
	d := hostimages.Downloaded{Store: i.Store, Image: image, Names: map[imageref.Reference]pivot.Image{i.tagged().Name: pinned}}
	found, err := d.Resolve(t.Context(), i.tagged())
	if err != nil || found != pinned {
		t.Errorf("the tag leads to %+v, %v", found, err)
	}
	must(t, d.Release(t.Context(), image)) // as if it had been deployed and removed
	must(t, d.Check(t.Context(), pinned))
	if again, err := d.Import(t.Context(), pinned, nil); err != nil || again != image {
		t.Errorf("imported %+v, %v", again, err)
	}
	if !slices.Contains(i.refs(), osimage.KeepAliveRef(image.Commit)) {
		t.Errorf("nothing keeps the commit: %q", i.refs())
	}
	other := pivot.Image{Name: imageref.FromOrigin("other"), Digest: "sha256:other"}
	_, err = d.Resolve(t.Context(), other)
	expect(t, err, fault.Refused, "cannot use image other: it was not downloaded, "+image.Reference().String()+" was")
	expect(t, d.Check(t.Context(), other), fault.Refused, "it was not downloaded")
	_, err = d.Import(t.Context(), other, nil)
	expect(t, err, fault.Refused, "it was not downloaded")

	must(t, i.Remove(t.Context(), []pivot.Image{pinned})) // without a commit, as after an interrupted pull
	if left := i.refs(); !slices.Equal(left, before) {
		t.Errorf("left %q of %q", left, before)
	}
	expect(t, d.Check(t.Context(), pinned), fault.Refused, "it was downloaded, but is not complete any more")
	expect(t, i.Check(t.Context(), pinned), fault.Unavailable, "connection refused")
}

// TestOpenUntilImported: an image that was checked is imported without opening it again, unless
// it was closed.
func TestOpenUntilImported(t *testing.T) {
	i := imagesOf(t)
	i.host.Serve(i.host.NativeImage())
	manifests := func() (n int) {
		for _, request := range i.host.Registry.RequestLog() {
			if strings.Contains(request, "/manifests/") {
				n++
			}
		}
		return n
	}
	image := pivot.ImageOf(imageref.FromOrigin(i.host.Image))
	before := manifests()
	must(t, i.Check(t.Context(), image))
	_, err := i.Import(t.Context(), image, func(pivot.Amount) {})
	must(t, err)
	if n := manifests() - before; n != 1 {
		t.Errorf("%d requests for the manifest to check and import", n)
	}
	must(t, i.Check(t.Context(), image))
	i.Close()
	must(t, i.Check(t.Context(), image))
	i.Close()
	if n := manifests() - before; n != 3 {
		t.Errorf("%d requests for the manifest after it was closed twice", n)
	}
}

// TestNoNetwork (P12): without a network no registry is contacted; local images need no network.
func TestNoNetwork(t *testing.T) {
	i := imagesOf(t)
	none := errors.New("no network")
	i.Network = func(context.Context) error { return none }
	asked := len(i.host.Registry.RequestLog())
	_, err := i.Resolve(t.Context(), i.tagged())
	remote := pivot.ImageOf(imageref.FromOrigin(i.host.Image))
	for _, err := range []error{err, i.Check(t.Context(), remote), i.Extensions().Check(t.Context(), remote)} {
		if !errors.Is(err, none) {
			t.Errorf("error %v", err)
		}
	}
	if n := len(i.host.Registry.RequestLog()) - asked; n != 0 {
		t.Errorf("the registry was asked %d times", n)
	}
	must(t, oscontainer.WriteLayout(i.host.Path("/medium"), i.host.NativeImage()))
	must(t, i.Check(t.Context(), pivot.ImageOf(imageref.FromOrigin("oci:/medium"))))
	i.Close()
}

// TestEngineRefuses: an image that would not boot after deployment by the engine is not imported,
// whether it is pulled or was downloaded before.
func TestEngineRefuses(t *testing.T) {
	i := imagesOf(t)
	i.host.Serve(i.host.NativeImage())
	pinned, image := i.pull(t)
	refused := errors.New("it would not boot")
	i.Engine = engine{refuses: refused}
	if _, err := i.Import(t.Context(), pinned, func(pivot.Amount) {}); !errors.Is(err, refused) {
		t.Errorf("pulled: %v", err)
	}
	d := hostimages.Downloaded{Store: i.Store, Image: image}
	if _, err := d.Import(t.Context(), pinned, nil); !errors.Is(err, refused) {
		t.Errorf("downloaded: %v", err)
	}
}

// TestDownloadedWouldNotBoot: an image that was only stored, with a warning, is refused where it is to boot, and
// by a plan for it.
func TestDownloadedWouldNotBoot(t *testing.T) {
	for why, change := range map[string]func(*hostdir.Host){
		"/usr/lib/modules/6.1/initramfs.img is a symbolic link": func(h *hostdir.Host) {
			h.LinkIntoNext(map[string]string{"usr/lib/modules/6.1/initramfs.img": "/boot/initramfs.img"})
		},
		"/usr/lib/modules/6.1/initramfs.img is empty": func(h *hostdir.Host) {
			h.PutIntoNext(map[string]string{"usr/lib/modules/6.1/initramfs.img": ""})
		},
	} {
		t.Run(why, func(t *testing.T) { wouldNotBoot(t, why, change) })
	}
}

func wouldNotBoot(t *testing.T, why string, change func(*hostdir.Host)) {
	i := imagesOf(t)
	change(i.host)
	i.host.Serve(i.host.NativeImage())
	pinned, err := i.Resolve(t.Context(), i.tagged())
	must(t, err)
	_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	expect(t, err, fault.Refused, why)

	found, err := i.Puller.Open(t.Context(), pinned.Reference())
	must(t, err)
	repo, view, err := i.host.OpenRepo()
	must(t, err)
	stored, err := found.Import(t.Context(), repo, nil)
	if err != nil || !strings.Contains(strings.Join(stored.Notes, "\n"), "warning: the image would not boot: "+why) {
		t.Errorf("stored: %v, notes %q", err, stored.Notes)
	}
	must(t, errors.Join(view.Close(), found.Close()))
	pinned.Commit = stored.Commit
	_, err = hostimages.Downloaded{Store: i.Store, Image: pinned}.Import(t.Context(), pinned, nil)
	expect(t, err, fault.Refused, why)

	target := pivot.Target{Image: pinned}
	state, err := i.host.Observe(t.Context(), target)
	must(t, err)
	plan, err := pivot.Diff(state, target)
	must(t, err)
	_, err = hostimages.Content{Host: i.host.Host, Arguments: i.Arguments}.Preview(t.Context(), plan)
	expect(t, err, fault.Refused, why)
}

// TestNoSpaceInBoot (P14): an image with a kernel that does not fit into /boot is refused as soon as its commit is in
// the repository, pulled now or before.
func TestNoSpaceInBoot(t *testing.T) {
	i := imagesOf(t)
	i.host.PutIntoNext(map[string]string{"usr/lib/modules/6.1/vmlinuz": "a kernel of its own"})
	i.host.Serve(i.host.NativeImage())
	with := func(space host.Space) pivot.Engine {
		return &rpmostree.Ostree{Sysroot: i.host.Sysroot(), Run: i.host.Run, Space: func(string) (host.Space, error) { return space, nil }}
	}
	full := with(host.Space{Block: 1024, Free: 3, Inodes: 1000})
	i.Store.Engine = full
	const why = "its kernel, initramfs and boot entry need"
	pinned, err := i.Resolve(t.Context(), i.tagged())
	must(t, err)
	_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	expect(t, err, fault.CannotWrite, why)
	expect(t, err, fault.CannotWrite, "/boot has 3 B free")
	i.Store.Engine = engine{}
	image, err := i.Import(t.Context(), pinned, func(pivot.Amount) {})
	must(t, err)
	i.Store.Engine = full
	_, err = hostimages.Downloaded{Store: i.Store, Image: image}.Import(t.Context(), image, nil)
	expect(t, err, fault.CannotWrite, why)

	// The files have some bytes; each takes a block, and so do directories and boot entries.
	check := func(space host.Space) error { return with(space).CheckSpace(t.Context(), image.Commit) }
	expect(t, check(host.Space{Block: 4096, Free: 3 * 4096, Inodes: 1000}), fault.CannotWrite, why)
	expect(t, check(host.Space{Block: 4096, Free: 1 << 20, Inodes: 3}), fault.CannotWrite, "files and directories in /boot, which has room for 3")
	must(t, check(host.Space{Block: 4096, Free: 12 * 4096, Inodes: 1000}))
}

// TestExtensions: the package repository of an extensions image is in a directory of the host
// until it is released. An image without a repository leaves nothing behind.
func TestExtensions(t *testing.T) {
	need.Program(t, "createrepo_c")
	i := imagesOf(t)
	img, err := oscontainer.Extensions([]oscontainer.RPM{{Name: "usbguard", Version: "1.0"}}, oscontainer.WithWorkDir(t.TempDir()))
	must(t, err)
	image := pivot.ImageOf(imageref.FromOrigin(i.host.Push(img)))
	must(t, i.Extensions().Check(t.Context(), image))
	repository, err := i.Extensions().Fetch(t.Context(), image, func(pivot.Amount) {})
	if err != nil || !slices.Equal(repository.Names, []string{"usbguard"}) {
		t.Fatalf("%+v, %v", repository, err)
	}
	if _, err := os.Stat(i.host.Path(repository.Dir + "/repodata/repomd.xml")); err != nil {
		t.Error(err)
	}
	must(t, i.Extensions().Release())
	gone := func() {
		t.Helper()
		if _, err := os.Stat(i.host.Path(repository.Dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", repository.Dir, err)
		}
	}
	gone()
	_, err = i.Extensions().Fetch(t.Context(), pivot.ImageOf(imageref.FromOrigin(i.host.Image)), func(pivot.Amount) {})
	expect(t, err, fault.BadInput, "cannot read the repository of packages")
	gone()
	i.host.Free = func(string) (int64, error) { return 1, nil }
	expect(t, i.Extensions().Check(t.Context(), image), fault.CannotWrite, "there are 1 B free")
	// Compressed, it would fit.
	i.host.Free = func(string) (int64, error) { return 100_000, nil }
	zeroes, err := oscontainer.Extensions([]oscontainer.RPM{{Name: "usbguard", Version: "1.0"}}, oscontainer.WithWorkDir(t.TempDir()))
	must(t, err)
	large := oscontainer.File("usr/share/rpm-ostree/extensions/zeroes.rpm", strings.Repeat("\x00", 200_000))
	zeroes, err = oscontainer.Derive(zeroes, oscontainer.WithDerived(large), oscontainer.WithWorkDir(t.TempDir()))
	must(t, err)
	image = pivot.ImageOf(imageref.FromOrigin(i.host.Push(zeroes)))
	must(t, i.Extensions().Check(t.Context(), image))
	_, err = i.Extensions().Fetch(t.Context(), image, func(pivot.Amount) {})
	expect(t, err, fault.CannotWrite, "more than 100000 bytes of unpacked packages")
	gone()
}

// TestContent (P49): a plan shows what its image brings as soon as the image is in the repository,
// and the caller's check can refuse the plan.
func TestContent(t *testing.T) {
	i := imagesOf(t)
	i.host.Serve(i.host.NativeImage(bringing(`kargs = ["own=1"]`)))
	pinned, err := i.Resolve(t.Context(), i.tagged())
	must(t, err)
	target := pivot.Target{Image: pinned, Kargs: kargs.Change{Image: &kargs.ImageChange{}}}
	state, err := i.host.Observe(t.Context(), target)
	must(t, err)
	plan, err := pivot.Diff(state, target)
	must(t, err)

	var checked []string // the commits of checked plans
	var refuses error
	c := hostimages.Content{Host: i.host.Host, Arguments: i.Arguments, Check: func(p pivot.Plan) error {
		checked = append(checked, p.To().Image.Commit)
		return refuses
	}}
	before, err := c.Preview(t.Context(), plan)
	if err != nil || before.ImageKargs.Known || len(checked) > 0 || !strings.Contains(strings.Join(before.Notes, "\n"), "they are known when it is in the host's repository") {
		t.Errorf("before the pull: %+v, %v", before, err)
	}
	_, image := i.pull(t)
	after, err := c.Preview(t.Context(), plan)
	if err != nil || !after.ImageKargs.Known || after.ImageKargs.Arguments.String() != "own=1" || after.Kargs.Appended.String() != "own=1" {
		t.Errorf("after the pull: %+v, %v", after, err)
	}

	target.Image = image
	plan, err = pivot.Diff(state, target)
	must(t, err)
	learned, err := c.Learn(t.Context(), plan)
	if err != nil || learned.Kargs.Appended.String() != "own=1" || !strings.Contains(strings.Join(learned.Notes, "\n"), "it adds own=1") {
		t.Errorf("learned %+v, %v", learned, err)
	}
	if !slices.Equal(checked, []string{image.Commit, image.Commit}) {
		t.Errorf("checked plans for %q", checked)
	}
	refuses = errors.New("not with this one")
	if _, err := c.Preview(t.Context(), plan); !errors.Is(err, refuses) {
		t.Errorf("foreseen: %v", err)
	}
	if _, err := c.Learn(t.Context(), plan); !errors.Is(err, refuses) {
		t.Errorf("learned: %v", err)
	}
}
