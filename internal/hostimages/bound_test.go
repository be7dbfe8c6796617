package hostimages_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// binding returns a derived layer that binds an application image.
func binding(reference string) oscontainer.Option {
	return oscontainer.WithDerived(
		oscontainer.File("usr/share/containers/systemd/app.image", "[Image]\nImage="+reference+"\n"),
		oscontainer.Symlink(osimage.BoundDir+"/app.image", "/usr/share/containers/systemd/app.image"),
	)
}

// bootcStandIn is a stand-in for bootc on a host: it stores what it is told to pull.
type bootcStandIn struct {
	images  *images
	pulled  []string
	fails   error
	forgets bool // stores nothing
}

func installBootc(i *images) *bootcStandIn {
	b := &bootcStandIn{images: i}
	i.host.Write("/etc/ostree/auth.json", i.host.Registry.PullSecret(i.host.Registry.Host()))
	i.host.Write("/usr/bin/bootc", nil)
	others := i.Host.Run
	i.Host.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		if argv[0] != "bootc" {
			return others(ctx, argv...)
		}
		return nil, b.run(argv[1:])
	}
	return b
}

func (b *bootcStandIn) run(args []string) error {
	switch {
	case len(args) != 4 || strings.Join(args[:3], " ") != "image cmd pull":
		return errors.New("bootc: unrecognized subcommand")
	case b.fails != nil:
		return b.fails
	case !b.forgets:
		b.pulled = append(b.pulled, args[3])
		b.store(b.pulled...)
	}
	return nil
}

// store makes bootc's storage hold these images and no others.
func (b *bootcStandIn) store(names ...string) {
	list := []map[string]any{}
	for _, name := range names {
		list = append(list, map[string]any{"id": name, "names": []string{name}})
	}
	text, _ := json.Marshal(list)
	b.images.host.Write("/sysroot/"+hostimages.BoundStorage+"/overlay-images/images.json", text)
}

// serveBinding serves an OS image that binds an application image, and returns the latter.
func (i *images) serveBinding(t *testing.T) (app string) {
	t.Helper()
	digest, err := i.host.Registry.Push(t.Context(), "apps/app", "1", i.host.NativeImage(oscontainer.WithDerived(oscontainer.File("app", "app"))))
	must(t, err)
	app = i.host.Registry.Host() + "/apps/app@" + digest
	i.host.Serve(i.host.NativeImage(binding(app)))
	return app
}

// TestBound: application images that an OS image binds are pulled by the host's bootc with the import, once. What
// another program removes of them meanwhile is found before the commit.
func TestBound(t *testing.T) {
	i := imagesOf(t)
	app := i.serveBinding(t)
	b := installBootc(i)
	pinned, image := i.pull(t)
	if !slices.Equal(b.pulled, []string{app}) {
		t.Fatalf("bootc has pulled %q, want %s", b.pulled, app)
	}
	must(t, i.Secure(t.Context(), image))
	_, err := i.Import(t.Context(), pinned, func(pivot.Amount) {})
	must(t, err)
	if len(b.pulled) != 1 {
		t.Errorf("bootc has pulled %q again", b.pulled)
	}
	d := hostimages.Downloaded{Store: i.Store, Image: image}
	_, err = d.Import(t.Context(), image, nil)
	must(t, err)

	b.store()
	expect(t, i.Secure(t.Context(), image), fault.Unavailable, app)
	_, err = d.Import(t.Context(), image, nil)
	expect(t, err, fault.Unavailable, "not in bootc's storage: "+app)
}

// TestBoundRefused: without its application images an OS image is not used, unless the administrator says so.
func TestBoundRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, i *images)
		kind    fault.Kind
		want    string
	}{
		"no bootc":            {func(*testing.T, *images) {}, fault.Refused, "this system has no bootc"},
		"in an initramfs":     {func(_ *testing.T, i *images) { installBootc(i); i.Early = true }, fault.Later, "which the started system pulls"},
		"bootc fails":         {func(_ *testing.T, i *images) { installBootc(i).fails = errors.New("podman: no space") }, fault.Unavailable, "podman: no space"},
		"bootc stores it not": {func(_ *testing.T, i *images) { installBootc(i).forgets = true }, fault.Unavailable, "not in bootc's storage"},
		"no credentials for bootc": {func(_ *testing.T, i *images) {
			installBootc(i)
			must(t, os.Remove(i.host.Path("/etc/ostree/auth.json")))
		}, fault.Refused, "unauthorized"},
		"others' credentials for bootc": {func(_ *testing.T, i *images) {
			installBootc(i)
			i.host.Write("/run/ostree/auth.json", []byte(`{"auths":{}}`))
		}, fault.Refused, "unauthorized"},
		"rejected by policy": {func(_ *testing.T, i *images) { installBootc(i); rejectApps(i) }, fault.Refused, "the signature policy rejects it"},
	} {
		t.Run(name, func(t *testing.T) {
			i := imagesOf(t)
			app := i.serveBinding(t)
			pinned, err := i.Resolve(t.Context(), i.tagged())
			must(t, err)
			c.prepare(t, i)
			_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
			expect(t, err, c.kind, c.want)
			if !strings.Contains(err.Error(), app) && c.kind != fault.CannotWrite || c.kind != fault.Later && fault.HintOf(err) == "" {
				t.Errorf("error %v (%s), want one that names %s", err, fault.HintOf(err), app)
			}
			i.IgnoreBound = true
			_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
			must(t, err)
			if !slices.ContainsFunc(i.notes, func(note string) bool { return strings.Contains(note, "services cannot start: "+app) }) {
				t.Errorf("notes %q do not name %s", i.notes, app)
			}
		})
	}
}

// TestBoundPreflight: if the OS image is in the repository already, the preflight says whether its application images
// can be had, and fetches nothing of the OS image.
func TestBoundPreflight(t *testing.T) {
	i := imagesOf(t)
	app := i.serveBinding(t)
	i.IgnoreBound = true
	pinned, _ := i.pull(t)
	blobs := func() (n int) {
		for _, request := range i.host.Registry.RequestLog() {
			if strings.Contains(request, "/os/") && strings.Contains(request, "/blobs/") {
				n++
			}
		}
		return n
	}
	i.IgnoreBound, i.notes = false, nil
	before := blobs()
	expect(t, i.Check(t.Context(), pinned), fault.Refused, "this system has no bootc to pull them: "+app)
	b := installBootc(i)
	must(t, i.Check(t.Context(), pinned))
	rejectApps(i)
	expect(t, i.Check(t.Context(), pinned), fault.Refused, "the signature policy rejects it")
	if len(b.pulled) > 0 || len(i.notes) > 0 || blobs() > before+1 { // the OS image's config
		t.Errorf("bootc has pulled %q, notes %q, %d blobs", b.pulled, i.notes, blobs()-before)
	}
}

// claiming is a layer with a wrong size.
type claiming struct {
	v1.Layer
	size int64
}

func (c claiming) Size() (int64, error) { return c.size, nil }

// claim stores an application image that claims to have size bytes, and returns its name.
func (i *images) claim(t *testing.T, name string, size int64) string {
	t.Helper()
	img := i.host.NativeImage(oscontainer.WithDerived(oscontainer.File("app", "app")))
	layers, err := img.Layers()
	must(t, err)
	img, err = mutate.AppendLayers(img, claiming{layers[0], size})
	must(t, err)
	digest, err := i.host.Registry.Push(t.Context(), "apps/"+name, "1", img)
	must(t, err)
	return i.host.Registry.Host() + "/apps/" + name + "@" + digest
}

// TestBoundRoom: application images must fit into the repository's room without its reserve, together with the packages
// that are to be fetched to the same file system.
func TestBoundRoom(t *testing.T) {
	i := imagesOf(t)
	b := installBootc(i)
	repo, err := i.Host.ReadRepo()
	must(t, err)
	room, err := repo.Room()
	must(t, err)
	serve := func(app string) pivot.Image {
		i.host.Serve(i.host.NativeImage(binding(app)))
		pinned, err := i.Resolve(t.Context(), i.tagged())
		must(t, err)
		return pinned
	}

	pinned := serve(i.claim(t, "large", room+room/2))
	_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	expect(t, err, fault.CannotWrite, "cannot pull the application images that the image binds")

	pinned = serve(i.claim(t, "medium", room/5*3))
	i.IgnoreBound = true
	_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	must(t, err)
	i.IgnoreBound = false
	must(t, i.Check(t.Context(), pinned))
	must(t, i.Extensions().Check(t.Context(), pivot.ImageOf(imageref.FromOrigin(i.claim(t, "packages", room/5*3)))))
	expect(t, i.Check(t.Context(), pinned), fault.CannotWrite, "with the rest of what is fetched")

	// A new OS image says only in its import what it binds.
	i.host.PutIntoNext(map[string]string{"usr/share/new": "new"})
	pinned = serve(i.claim(t, "new", room/5*3))
	must(t, i.Check(t.Context(), pinned))
	_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	expect(t, err, fault.CannotWrite, "with the rest of what is fetched")

	reserving(t, repo.Path())
	pinned = serve(i.claim(t, "small", 1<<10))
	_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	expect(t, err, fault.CannotWrite, "has room for")
	if len(b.pulled) > 0 {
		t.Errorf("bootc has pulled %q", b.pulled)
	}
}

// TestBoundIsAskedAgain (P7): a registry that fails once when the preflight asks for an application image is asked again.
func TestBoundIsAskedAgain(t *testing.T) {
	i := imagesOf(t)
	installBootc(i)
	app := i.serveBinding(t)
	i.IgnoreBound = true
	pinned, _ := i.pull(t)
	i.IgnoreBound = false
	i.Retry = retry.Policy{Tries: 2, Sleep: func(context.Context, time.Duration) error { return nil }}
	waits := 0
	i.Waiting = func(error, retry.Pause) { waits++ }
	_, digest, _ := strings.Cut(app, "@")
	i.host.Registry.Spoil(registry.Rule{On: "/manifests/" + digest, Times: 1, Fault: registry.Status(502)})
	if err := i.Check(t.Context(), pinned); err != nil || waits != 1 {
		t.Errorf("%v after %d waits", err, waits)
	}
}

// reserving makes a repository reserve more than any disk has.
func reserving(t *testing.T, repo string) {
	t.Helper()
	out, err := exec.Command("ostree", "config", "--repo="+repo, "set", "core.min-free-space-size", "900000TB").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// rejectApps makes the host's signature policy reject application images.
func rejectApps(i *images) {
	i.host.Write("/etc/containers/policy.json", []byte(`{"default": [{"type": "insecureAcceptAnything"}],
		"transports": {"docker": {"`+i.host.Registry.Host()+`/apps": [{"type": "reject"}]}}}`))
}
