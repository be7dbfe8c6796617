package stories_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/rpmostree"
)

// version returns the nth version of an image with a derived layer of its own, as pushed.
func version(h *hostdir.Host, n int) string {
	return h.Push(h.NativeImage(oscontainer.WithChunks(2), oscontainer.WithDerived(oscontainer.File("usr/share/derived", fmt.Sprint("version ", n)))))
}

// images returns the refs of images and layers, and of what waits to be deployed.
func images(h *hostdir.Host) (refs []string) {
	for _, ref := range h.Refs() {
		if strings.HasPrefix(ref, "ostree/container/") || strings.HasPrefix(ref, "pivot/") {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	return refs
}

// commits returns how many commits the repository has.
func commits(t *testing.T, h *hostdir.Host) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(h.Physical(), "ostree/repo/objects/*/*.commit"))
	must(t, err)
	return len(all)
}

// TestManyUpdates: however many images a machine moves through, its repository has those
// of its deployments and no others, with and without packages on top.
func TestManyUpdates(t *testing.T) {
	for name, packages := range map[string]string{"without packages": "", "with packages": "strace;"} {
		t.Run(name, func(t *testing.T) {
			if packages != "" && testing.Short() {
				t.Skip("rebases five times with packages")
			}
			h := hostdir.New(t)
			if packages != "" {
				h.InstallRpmOstree(rpmostree.Control{Version: "2026.2"})
				h.Layer(packages)
			}
			var refs, objects []int
			for n := range 5 {
				h.Image = version(h, n)
				r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
				if packages != "" {
					must(t, r.UseEngine("rpm-ostree"))
				}
				if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
					t.Fatalf("update %d: changed %v, %v", n, changed, err)
				}
				h.Boot()
				expectRecognized(t, h)
				refs, objects = append(refs, len(images(h))), append(objects, commits(t, h))
			}
			if refs[4] != refs[2] || refs[3] != refs[2] || objects[4] != objects[2] || objects[3] != objects[2] {
				t.Errorf("after each update there are %d refs and %d commits:\n%s", refs, objects, strings.Join(images(h), "\n"))
			}
		})
	}
}

// TestPartsThenOthers: nothing is left of an image of which parts were fetched, once another program has replaced it
// and removed the refs that it knows.
func TestPartsThenOthers(t *testing.T) {
	h := hostdir.New(t)
	random := rand.NewChaCha8([32]byte{})
	var files []oscontainer.Entry
	for n := range 20 {
		content := make([]byte, 16<<10)
		_, _ = random.Read(content)
		files = append(files, oscontainer.File(fmt.Sprint("usr/share/large/", n), string(content)))
	}
	for n := range 2 {
		h.Image = h.Push(h.NativeImage(oscontainer.WithCompression(oscontainer.ZstdChunked), oscontainer.WithDerived(files...)))
		served := h.Registry.BytesServed()
		r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
		if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
			t.Fatalf("update %d: changed %v, %v", n, changed, err)
		}
		if served = h.Registry.BytesServed() - served; n > 0 && served > 100<<10 {
			t.Errorf("it was fetched whole: %d bytes", served)
		}
		h.Boot()
		files[n] = oscontainer.File(fmt.Sprint("usr/share/large/", n), "changed")
	}
	for _, argument := range []string{"a=1", "a=2"} {
		_, err := h.Run(t.Context(), "ostree", "admin", "deploy", "--os=os", "--karg=root=LABEL=root", "--karg="+argument, h.Commit) // their base
		must(t, err)
		h.Boot()
	}
	repo, err := ostree.OpenRepo(h.Sysroot().RepoPath())
	must(t, err)
	for _, ref := range h.Refs() {
		if strings.HasPrefix(ref, "ostree/container/") { // as bootc and rpm-ostree do
			must(t, repo.DeleteRef(ref))
		}
	}
	_, err = h.Run(t.Context(), "ostree", "admin", "cleanup", "--sysroot="+h.Sysroot().Physical())
	must(t, err)
	if n := commits(t, h); n != 1 {
		t.Errorf("%d commits are left, want the deployed one; refs %q", n, h.Refs())
	}
}

// TestAbandonedImage: an image that was pulled for a transaction that failed is removed
// when the machine has moved elsewhere. A download for later stays.
func TestAbandonedImage(t *testing.T) {
	h := hostdir.New(t)
	before := images(h)
	h.Ostree.Fail = func(int, bool) error { return errors.New("the disk is full") }
	failing := day2.Rebase{Machine: newMachine(t, h), Image: version(h, 1)}
	if _, err := failing.Run(t.Context(), day2.RunOptions{}); err == nil {
		t.Fatal("it did not fail")
	}
	h.Ostree.Fail = nil
	if pulled := images(h); len(pulled) < len(before)+4 {
		t.Fatalf("pulled only %q", pulled)
	}
	r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"nosmt"}}
	if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if left := images(h); !slices.Equal(left, before) {
		t.Errorf("left: %q", left)
	}
}
