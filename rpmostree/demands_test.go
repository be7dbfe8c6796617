package rpmostree_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	standin "machine-pivot/test/worlds/rpmostree"
)

const composefs = "  - composefs\n" // a line of ostree --version

// demanding changes the request to a commit that has a prepare-root.conf with text at path.
func demanding(t *testing.T, h *hostdir.Host, r pivot.Spec, path, text string) pivot.Spec {
	t.Helper()
	repo := "--repo=" + filepath.Join(h.Physical(), "ostree/repo")
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644))
	out, err := exec.Command("ostree", "commit", repo, "--orphan", "--tree=ref="+r.Commit, "--tree=dir="+dir, "--add-metadata-string=version=B.2").Output()
	must(t, err)
	r.Commit = strings.TrimSpace(string(out))
	h.ImageRef(container, r.Commit)
	return r
}

const prepareRoot = "usr/lib/ostree/prepare-root.conf"

// TestAccept: the release and features of this host's ostree and the repository's configuration
// decide whether it makes what a system demands.
func TestAccept(t *testing.T) {
	for _, c := range []struct {
		name, text, version, features, wanted string
		want                                  []string // in the error and its hint; empty if it is accepted
	}{
		{name: "nothing demanded", text: "[composefs]\nenabled=maybe\n"},
		{name: "too old", text: "[composefs]\nenabled=yes\n", want: []string{"libostree 2022.7 of this host does not have composefs", "enabled=maybe"}},
		{name: "built without", text: "[composefs]\nenabled=yes\n", version: "2025.2", want: []string{"libostree 2025.2 of this host does not have composefs", "ostree --version"}},
		{name: "a transient root", text: "[root]\ntransient=true\n", version: "2025.2", want: []string{"root.transient"}},
		{name: "built with", text: "[composefs]\nenabled=yes\n", version: "2024.3", features: composefs},
		{name: "the repository does not say", text: "[composefs]\nenabled=yes\n", version: "2024.2", features: composefs, want: []string{"repository's configuration", "ex-integrity.composefs"}},
		{name: "the repository says no", text: "[composefs]\nenabled=yes\n", version: "2023.8", features: composefs, wanted: "false", want: []string{"ex-integrity.composefs"}},
		{name: "the repository says so", text: "[composefs]\nenabled=yes\n", version: "2023.8", features: composefs, wanted: "maybe"},
		{name: "verity", text: "[composefs]\nenabled=verity\n", version: "2025.2", features: composefs, want: []string{"fs-verity", "not configured", "ex-integrity.fsverity yes"}},
		{name: "verity, without composefs", text: "[composefs]\nenabled=verity\n", version: "2025.2", want: []string{"does not have composefs"}},
		{name: "signed", text: "[composefs]\nenabled=signed\n", version: "2025.2", features: composefs, want: []string{"fs-verity", "not configured", "ex-integrity.fsverity yes"}},
		{name: "a transient etc", text: "[etc]\ntransient=true\n", version: "2025.2", features: composefs, want: []string{"etc.transient"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			h.Ostree.Version, h.Ostree.Features = c.version, c.features
			if c.wanted != "" {
				h.RepoConfig("ex-integrity.composefs", c.wanted)
			}
			setup, err := ostree.ParsePrepareRoot([]byte(c.text))
			must(t, err)
			plain := rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
			for name, accept := range map[string]func() error{
				"ostree":     func() error { return plain.CheckPrepareRoot(t.Context(), setup) },
				"rpm-ostree": func() error { return (&rpmostree.RpmOstree{Ostree: plain}).CheckPrepareRoot(t.Context(), setup) },
				"direct": func() error {
					return (&rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}).CheckPrepareRoot(t.Context(), setup)
				},
			} {
				err := accept()
				if len(c.want) == 0 {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				if fault.KindOf(err) != fault.Refused {
					t.Errorf("%s: error %v", name, err)
					continue
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error()+"\n"+fault.HintOf(err), want) {
						t.Errorf("%s: neither error %q nor hint %q has %q", name, err, fault.HintOf(err), want)
					}
				}
			}
		})
	}
}

// TestAcceptVerity: where the repository is configured for fs-verity, the file system decides.
func TestAcceptVerity(t *testing.T) {
	for _, value := range []string{"yes", "maybe"} {
		h := hostdir.New(t)
		h.Ostree.Version, h.Ostree.Features = "2025.2", composefs
		h.RepoConfig("ex-integrity.fsverity", value)
		repo, err := ostree.OpenRepo(h.Sysroot().RepoPath())
		must(t, err)
		supported, _ := repo.GivesVerity()
		setup, err := ostree.ParsePrepareRoot([]byte("[composefs]\nenabled=verity\n"))
		must(t, err)
		err = (&rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}).CheckPrepareRoot(t.Context(), setup)
		if supported && err != nil || !supported && (fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "file system") || fault.HintOf(err) == "") {
			t.Errorf("%s, supported: %v: error %v", value, supported, err)
		}
	}
}

// TestComposefsIsLookedFor: a missing composefs image is found before the deployment may be the
// next boot, whatever ostree claims to support.
func TestComposefsIsLookedFor(t *testing.T) {
	for _, c := range []struct {
		name, path, text string
		argument         string
		made             bool // ostree makes the composefs image
		keeps            bool // the OS image stays, and there are no entries
		want             string
	}{
		{name: "missing", path: prepareRoot, text: "[composefs]\nenabled=yes\n", want: "there is no .ostree.cfs"},
		{name: "there", path: prepareRoot, text: "[composefs]\nenabled=yes\n", made: true},
		{name: "missing, by the file in etc", path: "usr/etc/ostree/prepare-root.conf", text: "[composefs]\nenabled=yes\n", want: "there is no .ostree.cfs"},
		{name: "missing, by the argument", path: prepareRoot, text: "[composefs]\nenabled=maybe\n", argument: "1", want: "there is no .ostree.cfs"},
		{name: "not demanded", path: prepareRoot, text: "[composefs]\nenabled=maybe\n"},
		{name: "verity, by the argument", path: prepareRoot, text: "[composefs]\nenabled=yes\n", argument: "signed", made: true, want: "signature"},
		{name: "verity", path: prepareRoot, text: "[composefs]\nenabled=verity\n", made: true, want: "ostree made .ostree.cfs without it"},
		{name: "verity, the image stays", path: prepareRoot, text: "[composefs]\nenabled=verity\n", made: true, keeps: true, want: "ostree made .ostree.cfs without it"},
		{name: "signed, the image stays", path: prepareRoot, text: "[composefs]\nenabled=signed\n", made: true, keeps: true, want: "ostree made .ostree.cfs without it"},
	} {
		for _, engine := range []string{"staged", "direct"} {
			t.Run(c.name+", "+engine, func(t *testing.T) {
				sample.Short(t, 8)
				h := hostdir.New(t)
				h.Ostree.Version, h.Ostree.Features, h.Ostree.Composefs = "2025.2", composefs, c.made
				r := demanding(t, h, request(t, h), c.path, c.text)
				if c.argument != "" {
					r.Kargs = append(slices.Clone(r.Kargs), kargs.Line{ostree.ComposefsArgument + "=" + c.argument}...)
				}
				if c.keeps {
					r.Image, r.Entries = pivot.Image{}, []hostfiles.File(nil)
				}
				var e pivot.Engine = &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
				if engine == "direct" {
					e = &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}
				}
				err := e.Prepare(t.Context(), r)
				if err == nil {
					err = e.Commit(t.Context(), r)
				}
				if c.want == "" {
					must(t, err)
					h.Boot()
					if booted, err := h.Sysroot().Booted(); err != nil || booted.Checksum.String() != r.Commit {
						t.Errorf("booted %s, %v", booted.Checksum, err)
					}
					return
				}
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
					t.Errorf("error %v (%s)", err, fault.HintOf(err))
				}
				must(t, e.Discard(t.Context()))
				expectOldAlone(t, h)
			})
		}
	}
}

// TestDirectNeedsComposefs: with an ostree that cannot make an existing deployment the default,
// the initramfs cannot check for the composefs image before the commit. The started system can.
func TestDirectNeedsComposefs(t *testing.T) {
	h := hostdir.New(t)
	h.Ostree.Version, h.Ostree.Features, h.Ostree.Composefs = "2023.5", composefs, true
	r := demanding(t, h, request(t, h), prepareRoot, "[composefs]\nenabled=yes\n")
	e := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}
	if err := e.Prepare(t.Context(), r); fault.KindOf(err) != fault.Later || !strings.Contains(err.Error(), "composefs image") {
		t.Errorf("error %v", err)
	}
	if len(h.Ostree.Calls) > 0 {
		t.Errorf("calls %q", h.Ostree.Calls)
	}
}

// TestAcceptAsTheRealOstreeSays uses the ostree of the machine that runs the test.
func TestAcceptAsTheRealOstreeSays(t *testing.T) {
	h := hostdir.New(t)
	says, err := exec.Command("ostree", "--version").Output()
	must(t, err)
	h.RepoConfig("ex-integrity.composefs", "maybe")
	setup, err := ostree.ParsePrepareRoot([]byte("[composefs]\nenabled=yes\n"))
	must(t, err)
	e := &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: func(ctx context.Context, argv ...string) ([]byte, error) {
		return exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	}}
	has := strings.Contains(string(says), "- composefs\n")
	if err := e.CheckPrepareRoot(t.Context(), setup); has != (err == nil) || !has && fault.KindOf(err) != fault.Refused {
		t.Errorf("error %v, where ostree says:\n%s", err, says)
	}
}

// TestTransientEtc: a system with a transient /etc is refused by its prepare-root.conf, or later by its deployment.
// What runs already may get another deployment that carries nothing over.
func TestTransientEtc(t *testing.T) {
	for name, c := range map[string]struct {
		keepsImage, entries, units bool
		refused                    bool
	}{
		"another image":          {refused: true},
		"another, with entries":  {entries: true, refused: true},
		"the same":               {keepsImage: true},
		"the same, with entries": {keepsImage: true, entries: true, refused: true},
		"the same, with units":   {keepsImage: true, units: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			r := demanding(t, h, request(t, h), prepareRoot, "[etc]\ntransient=true\n")
			if c.keepsImage {
				r.Image = pivot.Image{}
			}
			if !c.entries {
				r.Entries = nil
			}
			if c.units {
				r.Units = func(string) (enable.Resolved, error) { return enable.Resolved{}, nil }
			}
			e := &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
			err := e.Prepare(t.Context(), r)
			if err == nil {
				err = e.Commit(t.Context(), r)
			}
			if refused := fault.KindOf(err) == fault.Refused && strings.Contains(err.Error(), "etc.transient"); refused != c.refused || !refused && err != nil {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestDefaultNeedsATool: a deployment can be made the default by libostree of a certain release, or by rpm-ostree.
func TestDefaultNeedsATool(t *testing.T) {
	h := hostdir.New(t)
	d := rpmostree.Default{Sysroot: h.Sysroot(), Run: h.Run, Note: func(string) {}}
	h.Ostree.Version = "2023.5"
	if err := d.Check(t.Context()); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "libostree 2023.5 cannot make a deployment the default") || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	h.Ostree.Version = "2023.6"
	must(t, d.Check(t.Context()))
	h.Ostree.Version = "2023.5"
	h.InstallRpmOstree(standin.Control{})
	must(t, d.Check(t.Context()))
}
