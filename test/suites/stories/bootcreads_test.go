package stories_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// expectBootcReads checks that each deployment with a container image in its origin has what bootc reads; else bootc's
// status would fail as a whole. The manifest, its digest and the config in the commit's metadata, the refs of all
// layers, and that of the image.
func expectBootcReads(t *testing.T, h *hostdir.Host, when string) {
	t.Helper()
	all, err := h.Sysroot().Deployments()
	must(t, err)
	repo, err := ostree.OpenRepo(h.Sysroot().RepoPath())
	must(t, err)
	escape := strings.NewReplacer(":", "_3A_", "//", "_2F__2F_", "@", "_40_", ".", "_2E_")
	images := 0
	for _, d := range all {
		reference, found := strings.CutPrefix(d.Origin.ContainerImageReference(), "ostree-unverified-registry:")
		if !found {
			continue
		}
		images++
		info, err := repo.LoadCommit(d.Checksum)
		must(t, err)
		digest, _ := info.Metadata("ostree.manifest-digest").(string)
		config, _ := info.Metadata("ostree.container.image-config").(string)
		text, _ := info.Metadata("ostree.manifest").(string)
		var manifest struct{ Layers []struct{ Digest string } }
		if err := json.Unmarshal([]byte(text), &manifest); err != nil || len(manifest.Layers) == 0 || !json.Valid([]byte(config)) || !strings.HasPrefix(digest, "sha256:") {
			t.Errorf("%s: the commit of %s has manifest %q (%v), digest %q, config %q", when, reference, text, err, digest, config)
		}
		for _, layer := range manifest.Layers {
			if _, err := repo.ResolveRef("ostree/container/blob/" + escape.Replace(layer.Digest)); err != nil {
				t.Errorf("%s: layer %s of %s: %v", when, layer.Digest, reference, err)
			}
		}
		if to, err := repo.ResolveRef("ostree/container/image/" + escape.Replace("docker://"+reference)); err != nil || to != d.Checksum {
			t.Errorf("%s: the ref of %s leads to %s, %v, want %s", when, reference, to, err, d.Checksum)
		}
	}
	if images == 0 {
		t.Errorf("%s: no deployment of %d names an image", when, len(all))
	}
}

// TestWhatBootcReads: bootc can read all deployments before and after the reboot of each commit: of a change by hand,
// of a download that lost its image's ref, and of a rollback.
func TestWhatBootcReads(t *testing.T) {
	for _, kind := range []string{"native", "derived", "plain"} {
		t.Run(kind, func(t *testing.T) {
			sample.Short(t, 5)
			d := &downloader{Host: hostdir.New(t), t: t}
			d.Ostree.Version = "2023.6" // can roll back
			step := func(what string, commit func()) {
				t.Helper()
				commit()
				expectBootcReads(t, d.Host, what)
				d.Boot()
				expectBootcReads(t, d.Host, what+", booted")
			}
			d.Serve(native(d.Host)[kind]())
			step("by hand", func() { d.move(d.Image) })
			next := oscontainer.WithDerived(oscontainer.File("usr/share/derived", "next"))
			d.Serve(d.NativeImage(oscontainer.WithChunks(2), next))
			step("downloaded", func() {
				before := d.container()
				_, err := d.download(configFor(d.Image, "one"))
				must(t, err)
				for _, ref := range d.container() {
					if strings.HasPrefix(ref, "ostree/container/image/") && !slices.Contains(before, ref) {
						d.cleanUp(ref)
					}
				}
				must(t, d.use(nil))
			})
			step("rolled back", func() {
				back := day2.Rollback{Machine: d.newMachine()}
				must(t, back.Run(t.Context()))
			})
		})
	}
}
