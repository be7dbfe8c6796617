package stories_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// follower is a machine that follows a tag.
type follower struct {
	*downloader
	tag string
}

func newFollower(t *testing.T) *follower {
	f := &follower{downloader: &downloader{Host: hostdir.New(t), t: t}}
	f.tag = f.Registry.Host() + "/os/followed:stable"
	return f
}

// push makes the tag name an image with a given file, and returns the digest.
func (f *follower) push(content string) string {
	f.t.Helper()
	img := f.NativeImage(oscontainer.WithChunks(2), oscontainer.WithDerived(oscontainer.File("usr/share/derived", content)))
	digest, err := f.Registry.Push(f.t.Context(), "os/followed", "stable", img)
	must(f.t, err)
	return digest
}

// change runs a change by hand, and returns its plan.
func (f *follower) change(r day2.Rebase) (changed bool) {
	f.t.Helper()
	r.Machine = f.newMachine()
	changed, err := r.Run(f.t.Context(), day2.RunOptions{})
	must(f.t, err)
	return changed
}

// expectOrigin checks what the default deployment's origin names, and that the ref of that name points to the
// commit, as bootc and rpm-ostree look for it.
func (f *follower) expectOrigin(reference string) {
	f.t.Helper()
	all, err := f.Sysroot().Deployments()
	must(f.t, err)
	if got := all[0].Origin.ContainerImageReference(); got != "ostree-unverified-registry:"+reference {
		f.t.Errorf("the origin names %s, want %s", got, reference)
	}
	repo, err := ostree.OpenRepo(f.Sysroot().RepoPath())
	must(f.t, err)
	name := "ostree/container/image/" + strings.NewReplacer(":", "_3A_", "//", "_2F__2F_", "@", "_40_", ".", "_2E_").Replace("docker://"+reference)
	if to, err := repo.ResolveRef(name); err != nil || to != all[0].Checksum {
		f.t.Errorf("ref %s points to %s, %v, want %s; there are %q", name, to, err, all[0].Checksum, f.refs())
	}
}

// expectRunning checks that the running system is the image with a digest, and has what was asked for.
func (f *follower) expectRunning(digest, follows string) {
	f.t.Helper()
	expectStatusAt(f.t, f.Host, pivot.PhaseDone)
	m := newMachine(f.t, f.Host)
	s, err := m.Status(f.t.Context())
	must(f.t, err)
	if s.Booted.Manifest != digest || s.Booted.Image.Digest != digest || s.Booted.Image.Follows().String() != follows {
		f.t.Errorf("it runs %+v with manifest %s, want %s following %q", s.Booted.Image, s.Booted.Manifest, digest, follows)
	}
	if differences, err := newMachine(f.t, f.Host).Verify(f.t.Context()); err != nil || len(differences) > 0 {
		f.t.Errorf("it differs: %v, %v", differences, err)
	}
}

// TestFollow (P91): an image that is asked for by its tag is followed. Its deployment's origin and the ref have the
// tag, the digest says what it is, and an upgrade moves to what the tag names later. The same digest under another name
// is no reboot and no drift.
func TestFollow(t *testing.T) {
	f := newFollower(t)
	one := f.push("one")
	f.change(day2.Rebase{Image: f.tag})
	f.expectOrigin(f.tag)
	f.Boot()
	f.expectRunning(one, f.tag)

	// The tag moves: that is no drift, and the upgrade follows it.
	two := f.push("two")
	f.expectRunning(one, f.tag)
	f.change(day2.Rebase{Upgrade: true})
	f.expectOrigin(f.tag)
	expectStatusAt(t, f.Host, pivot.PhaseCommitted)
	f.Boot()
	f.expectRunning(two, f.tag)
	before := f.seen()
	if f.change(day2.Rebase{Upgrade: true}) {
		t.Error("an upgrade without a new image has changed something")
	}
	if after := f.seen(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}

	// An upgrade in two steps: what was downloaded is what the tag named then, and is followed.
	three := f.push("three")
	upgrade := day2.Rebase{Machine: f.newMachine(), Upgrade: true}
	if d, err := upgrade.Download(t.Context()); err != nil || !d.New {
		t.Fatalf("%+v, %v", d, err)
	}
	f.push("four")
	upgrade = day2.Rebase{Machine: f.newMachine(), Upgrade: true}
	if changed, err := upgrade.Run(t.Context(), day2.RunOptions{Downloaded: true}); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	f.expectOrigin(f.tag)
	// Before its reboot it is asked for by its digest: the same deployment stays with that.
	calls := len(f.Ostree.Calls)
	f.change(day2.Rebase{Image: strings.TrimSuffix(f.tag, ":stable") + "@" + three})
	f.expectOrigin(strings.TrimSuffix(f.tag, ":stable") + "@" + three)
	if len(f.Ostree.Calls) != calls {
		t.Errorf("another name of what is committed: calls of ostree %q", f.Ostree.Calls[calls:])
	}
	f.Boot()
	f.expectRunning(three, "")
	f.push("two")
	f.change(day2.Rebase{Image: f.tag})
	f.Boot()
	f.expectRunning(two, f.tag)

	// The same image by its digest, and then by its tag again: only the origin changes, which keeps its label.
	const label = "system_u:object_r:etc_t:s0"
	booted, err := f.Sysroot().Booted()
	must(t, err)
	must(t, hostfiles.SetLabel(booted.Path+".origin", label))
	pinned := strings.TrimSuffix(f.tag, ":stable") + "@" + two
	for _, name := range []string{pinned, f.tag} {
		boots, reboots := len(f.Ostree.Calls), f.Reboots
		if f.change(day2.Rebase{Image: name, Reboot: true}) || f.Reboots != reboots || len(f.Ostree.Calls) != boots {
			t.Errorf("%s: %d reboots, calls of ostree %q", name, f.Reboots-reboots, f.Ostree.Calls[boots:])
		}
		f.expectOrigin(name)
		if has, err := hostfiles.LabelOf(booted.Path + ".origin"); err != nil || has != label {
			t.Errorf("%s: the origin has the label %q, %v", name, has, err)
		}
		f.expectRunning(two, map[bool]string{true: f.tag}[name == f.tag])
		if name == pinned {
			_, err := (&day2.Rebase{Machine: f.newMachine(), Upgrade: true}).Run(t.Context(), day2.RunOptions{})
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "it follows no tag") || !strings.Contains(err.Error(), pinned) {
				t.Errorf("an upgrade that follows nothing: %v", err)
			}
		}
	}
}

// TestSameImageElsewhere (P91): a MachineConfig that names the running image in another repository needs no
// reboot, and the machine does not differ from it.
func TestSameImageElsewhere(t *testing.T) {
	f := newFollower(t)
	one := f.push("one")
	f.change(day2.Rebase{Image: f.tag})
	f.Boot()
	img := f.NativeImage(oscontainer.WithChunks(2), oscontainer.WithDerived(oscontainer.File("usr/share/derived", "one")))
	again, err := f.Registry.Push(t.Context(), "mirror/of", "x", img)
	must(t, err)
	if again != one {
		t.Skipf("the image is not reproducible: %s, %s", one, again)
	}
	config := []byte("metadata: {name: a}\nspec:\n  osImageURL: " + f.Registry.Host() + "/mirror/of@" + one + "\n  config: {ignition: {version: 3.4.0}}\n")
	a := day2.Apply{Machine: f.newMachine(), Config: day2.Config{File: "mc.yaml", Data: config}}
	plan, err := a.Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	if plan.Image.Changed || plan.Reboots != 0 {
		t.Errorf("the plan changes the image: %+v", plan)
	}
	a = day2.Apply{Machine: f.newMachine(), Config: day2.Config{File: "mc.yaml", Data: config}, When: day2.RebootNever}
	if _, err := a.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	f.expectOrigin(f.tag)
	f.expectRunning(one, f.tag)
}

// TestImportedBySomebodyElse (P91): bootc and rpm-ostree make commits of their own from an image. The digest of
// the manifest says that it is the same.
func TestImportedBySomebodyElse(t *testing.T) {
	f := newFollower(t)
	one := f.push("one")
	f.change(day2.Rebase{Image: f.tag})
	f.Boot()
	// Another commit of the same tree and metadata, with another importer's name.
	repo := "sysroot/ostree/repo"
	commit := strings.TrimSpace(shell(t, f.Host, "ostree commit --repo="+repo+" --tree=ref=$(ostree rev-parse --repo="+repo+" ostree/0/0/0 2>/dev/null || ls sysroot/ostree/deploy/os/deploy | grep -m1 -o '^[0-9a-f]\\{64\\}') -b imported --add-metadata-string=ostree.manifest-digest="+one+" --add-metadata-string=ostree.importer.version=other"))
	must(t, os.WriteFile(f.Path("/run/origin"), []byte("[origin]\ncontainer-image-reference=ostree-unverified-registry:"+f.Registry.Host()+"/elsewhere:x\n"), 0o644))
	shell(t, f.Host, "ostree admin deploy --sysroot=sysroot --os=os --origin-file=run/origin "+commit)
	f.Boot()
	s, err := newMachine(t, f.Host).Status(t.Context())
	must(t, err)
	if s.Booted.Commit != commit || s.Phase != pivot.PhaseDone {
		t.Errorf("it runs %s, wanted %s; phase %s, notes %q", s.Booted.Commit, commit, s.Phase, s.Notes)
	}
	if differences, err := newMachine(t, f.Host).Verify(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("it differs: %v, %v", differences, err)
	}
	if f.change(day2.Rebase{Image: strings.TrimSuffix(f.tag, ":stable") + "@" + one}) {
		t.Error("the same image again has changed something")
	}
}

// TestStagedBySomebodyElse (P92): what another program has staged, locked or not, is shown by the status and named by
// the plan. A change says that it drops it, and keeps its image.
func TestStagedBySomebodyElse(t *testing.T) {
	for _, locked := range []bool{false, true} {
		f := newFollower(t)
		f.Ostree.Version = hostdir.LockInState
		f.push("one")
		f.change(day2.Rebase{Image: f.tag})
		f.Boot()
		theirs := f.push("two")
		// As another program does it, up to and including the staging.
		f.change(day2.Rebase{Image: f.tag})
		all, err := f.Sysroot().Deployments()
		must(t, err)
		commit := all[0].Checksum.String()
		must(t, os.WriteFile(f.Path("/run/origin"), all[0].Origin.Bytes(), 0o644))
		must(t, f.Undeploy(0))
		argv := []string{"ostree", "admin", "deploy", "--os=os", "--stage", "--karg-append=root=LABEL=root", "--origin-file=" + f.Path("/run/origin")}
		if locked {
			must(t, os.MkdirAll(f.Path("/run/ostree"), 0o755))
			must(t, os.WriteFile(f.Path("/run/ostree/staged-deployment-locked"), nil, 0o600))
		}
		_, err = f.Run(t.Context(), append(argv, commit)...)
		must(t, err)
		s, err := newMachine(t, f.Host).Status(t.Context())
		must(t, err)
		shown := s.Pending
		if locked {
			shown = s.HeldBack
			if s.Pending != nil {
				t.Errorf("what is locked is shown as the next boot: %+v", s.Pending)
			}
		}
		if shown == nil || !shown.Staged || shown.Commit != commit || shown.Manifest != theirs {
			t.Errorf("locked %v: status shows %+v, want the staged %s", locked, shown, commit)
		}
		images := slices.DeleteFunc(f.refs(), func(ref string) bool { return !strings.HasPrefix(ref, "ostree/") })
		f.push("three")
		f.move(f.tag)
		what := map[bool]string{true: "is staged and locked", false: "is staged and will be replaced"}[locked]
		if !strings.Contains(f.notes, what) || !strings.Contains(f.notes, commit) || !strings.Contains(f.notes, theirs) || !strings.Contains(f.notes, "stays in the repository") {
			t.Errorf("locked %v: the notes are %s", locked, f.notes)
		}
		kept := f.refs()
		for _, ref := range images {
			if !slices.Contains(kept, ref) {
				t.Errorf("locked %v: ref %s is gone", locked, ref)
			}
		}
	}
}
