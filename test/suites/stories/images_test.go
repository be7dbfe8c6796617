package stories_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/registry"
)

// manifests counts the requests for manifests.
func manifests(r *registry.Registry) int {
	return len(slices.DeleteFunc(r.RequestLog(), func(request string) bool { return !strings.Contains(request, "/manifests/") }))
}

// bootNoting is boot without the reboot. It returns the notes of the Puller.
func bootNoting(t *testing.T, h *hostdir.Host) (notes []string) {
	t.Helper()
	m := newMachine(t, h)
	m.Puller = &osimage.Puller{
		Root: h.Root, Log: func(message string) { notes = append(notes, message) },
		Retry: retry.Policy{Tries: 1}, // a layer that fails fails the import
	}
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath, NoReboot: true}
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return notes
}

// TestOneResolution (P17): preflight and import request the manifest only once, and request
// nothing but the OS image.
func TestOneResolution(t *testing.T) {
	h := newHost(t)
	notes := bootNoting(t, h)
	if n := manifests(h.Registry); n != 1 {
		t.Errorf("%d requests for the manifest, want 1: %q", n, h.Registry.RequestLog())
	}
	for _, request := range h.Registry.RequestLog() {
		if !strings.HasPrefix(request, "GET /v2/os/content/") && request != "GET /v2/" {
			t.Errorf("a request for something else: %s", request)
		}
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "no signature policy") {
		t.Errorf("notes %q, want that there is no policy, once", notes)
	}
}

// TestResolvedAnew: a try after a failed one, and a run after a failed one, request the
// manifest again.
func TestResolvedAnew(t *testing.T) {
	h := newHost(t)
	h.Registry.Spoil(registry.Rule{On: "/blobs/", Skip: 1, Times: 1, Fault: registry.Status(502)}) // not the config
	bootNoting(t, h)
	if n := manifests(h.Registry); n != 2 {
		t.Errorf("%d requests for the manifest in two tries", n)
	}

	h = newHost(t)
	h.Registry.Spoil(registry.Rule{On: "/blobs/", Skip: 1, Times: 100, Fault: registry.Status(401)})
	if err := boot(t, h); err == nil {
		t.Fatal("no error")
	}
	before := manifests(h.Registry)
	h.Registry.Spoil()
	bootNoting(t, h)
	if n := manifests(h.Registry) - before; n != 1 {
		t.Errorf("%d requests for the manifest in the run after, want 1", n)
	}
}

// TestMachineIsNoImages: a Machine has a source of images, but is not one itself.
func TestMachineIsNoImages(t *testing.T) {
	if _, is := any(&machine.Machine{}).(pivot.Images); is {
		t.Error("a Machine implements pivot.Images")
	}
}

// TestTagIsPinned: a tag is resolved once. The digest found then is checked and pulled.
func TestTagIsPinned(t *testing.T) {
	h := hostdir.New(t)
	name, _, _ := strings.Cut(h.NoOS(), "@")
	h.Registry.Spoil(registry.Rule{On: "/manifests/b", Skip: 1, Fault: registry.Status(404)})
	r := day2.Rebase{Machine: newMachine(t, h), Image: name + ":b"}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err == nil || !strings.Contains(err.Error(), "nor an ostree commit") {
		t.Errorf("the tag is of an image without a commit: %v", err)
	}
	if n := manifests(h.Registry); n != 2 { // by the tag, and by the digest
		t.Errorf("%d requests for the manifest: %q", n, h.Registry.RequestLog())
	}
	if p := r.Progress.Content.Phase; p != pivot.PhaseIdle {
		t.Errorf("phase %s", p)
	}
}
