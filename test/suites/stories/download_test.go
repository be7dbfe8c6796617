package stories_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/day2/slot"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// downloader is a machine that downloads and applies downloads.
type downloader struct {
	*hostdir.Host
	t     *testing.T
	notes string
}

func (d *downloader) newMachine() *machine.Machine {
	m := newMachine(d.t, d.Host)
	d.notes = ""
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			d.notes += e.Message + "\n"
		}
	}
	return m
}

// configFor returns a MachineConfig for an image, with a file that only root may read.
func configFor(image, content string) []byte {
	return []byte("metadata: {name: a}\nspec:\n  osImageURL: " + image + "\n  kernelArguments: [a=1]\n  config:\n    ignition: {version: 3.4.0}\n" +
		"    storage: {files: [{path: /etc/secret, mode: 0600, contents: {source: \"data:," + content + "\"}}]}\n")
}

func (d *downloader) download(data []byte) (changed bool, err error) {
	d.t.Helper()
	a := day2.Apply{Machine: d.newMachine(), Config: day2.Config{File: "mc.yaml", Data: data}}
	p, err := a.Download(d.t.Context())
	return p.New, err
}

// use applies what was downloaded: with the MachineConfig in data, or, if that is nil, with the
// downloaded one.
func (d *downloader) use(data []byte) error {
	d.t.Helper()
	a := day2.Apply{Machine: d.newMachine(), Config: day2.Config{File: "given.yaml", Data: data}}
	_, err := a.Run(d.t.Context(), day2.RunOptions{Downloaded: true})
	return err
}

// move commits another system with a pivot by hand.
func (d *downloader) move(image string, appended ...string) {
	d.t.Helper()
	r := day2.Rebase{Machine: d.newMachine(), Image: image, Append: appended}
	_, err := r.Run(d.t.Context(), day2.RunOptions{})
	must(d.t, err)
}

func (d *downloader) journal() pivot.JournalContent {
	d.t.Helper()
	r, err := pivot.JournalIn(d.Root).Load()
	must(d.t, err)
	return r
}

// seen lists everything that the running system and the next boot use: boot entries,
// deployments, the staged state, and the running /etc.
func (d *downloader) seen() string {
	d.t.Helper()
	return shell(d.t, d.Host, "find sysroot/boot/ sysroot/ostree/deploy/os/deploy/ etc/ run/ ! -path '*/deploy/*/sysroot/*' ! -path '*/run/ostree-booted' ! -path '*/run/pivot*' -printf '%p %i %T@\\n' | sort")
}

// contents returns the kept contents, which only root may read, after their modes.
func (d *downloader) contents() string {
	d.t.Helper()
	return shell(d.t, d.Host, "cd var/lib/pivot && find contents -printf '%m\\n' 2>/dev/null; cat contents/* 2>/dev/null || true")
}

// refs returns the refs of images in the repository.
func (d *downloader) refs() (refs []string) {
	for _, ref := range d.Refs() {
		if strings.HasPrefix(ref, "pivot/") || strings.HasPrefix(ref, "ostree/container/") {
			refs = append(refs, ref)
		}
	}
	return refs
}

// downloadOf returns the download in a journal; nil if there is none.
func downloadOf(t *testing.T, r pivot.JournalContent) *day2.Download {
	t.Helper()
	d, err := day2.DownloadIn(r)
	must(t, err)
	return d
}

// TestDownload (P77): a download pulls and keeps everything, and changes neither the running
// system nor the next boot. It is then applied without a registry, and leaves nothing behind.
func TestDownload(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	tag := d.Registry.Host() + "/os/content:b"
	before := d.seen()
	for _, again := range []bool{false, true} {
		fetched := d.Registry.BytesServed()
		if changed, err := d.download(configFor(tag, "one")); err != nil || changed == again {
			t.Fatalf("again %v: changed %v, %v", again, changed, err)
		}
		if again && d.Registry.BytesServed()-fetched > 20_000 {
			t.Errorf("%d bytes were fetched again", d.Registry.BytesServed()-fetched)
		}
		if after := d.seen(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	}
	if !strings.Contains(d.notes, "nothing to do, it was downloaded at ") || !strings.Contains(d.notes, "what is left: pivot apply --from-downloaded") {
		t.Errorf("notes: %s", d.notes)
	}
	if got := d.contents(); !strings.HasPrefix(got, "700\n600\nmetadata:") || !strings.Contains(got, "data:,one") {
		t.Errorf("the MachineConfig is kept as %q", got)
	}
	if journal := string(d.Read("/var/lib/pivot/journal.json")); strings.Contains(journal, "data:,one") {
		t.Error("the journal, which everybody may read, has the MachineConfig")
	}
	m := d.newMachine()
	s, err := m.Status(t.Context())
	if err != nil || s.Phase != pivot.PhaseIdle || !strings.Contains(string(s.Features["downloaded"].Data), d.Commit) || downloadOf(t, d.journal()).At.IsZero() {
		t.Errorf("status %+v, %v", s, err)
	}
	shell(t, d.Host, "ostree prune --repo=sysroot/ostree/repo --refs-only")

	d.Registry.Spoil(registry.Rule{Fault: registry.Status(500)}) // must not be asked
	asked := len(d.Registry.RequestLog())
	if err := d.use(nil); err != nil {
		t.Fatal(err)
	}
	if n := len(d.Registry.RequestLog()) - asked; n > 0 {
		t.Errorf("%d requests to the registry", n)
	}
	if got := d.refs(); len(got) > 0 || d.contents() != "700\n" || downloadOf(t, d.journal()) != nil {
		t.Errorf("left: refs %q, contents %q, %+v", got, d.contents(), downloadOf(t, d.journal()))
	}
	d.Boot()
	if d.Version() != "B.2" || string(d.Read("/etc/secret")) != "one" || !strings.HasSuffix(d.Options(), " a=1") {
		t.Errorf("version %s, options %s", d.Version(), d.Options())
	}
	if err := d.use(nil); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "nothing was") || !strings.Contains(fault.HintOf(err), "--download-only") {
		t.Errorf("once more: %v", err)
	}
}

// TestDownloadedTagMoved: a tag stays what it resolved to at the download, also for another
// MachineConfig with that tag. Another image is refused by name.
func TestDownloadedTagMoved(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	name := d.Registry.Host() + "/os/content:b"
	_, err := d.download(configFor(name, "one"))
	must(t, err)
	d.ExtendNext("usr/share/more")
	img, err := oscontainer.Legacy(d.Archive, d.Commit, "C.3", oscontainer.WithWorkDir(t.TempDir()))
	must(t, err)
	moved, err := d.Registry.Push(t.Context(), "os/content", "b", img)
	must(t, err)
	other := d.Registry.Host() + "/os/content@" + moved
	err = d.use(configFor(other, "one"))
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), d.Image) {
		t.Errorf("another image: %v", err)
	}
	must(t, d.use(configFor(name, "two")))
	d.Boot()
	if string(d.Read("/etc/secret")) != "two" || d.journal().Target.Image.Reference().String() != d.Image {
		t.Errorf("%s is booted", d.journal().Target.Image.Reference())
	}
}

// TestDownloadReplaced: a download replaces the previous one, of which neither refs nor
// contents are left, except for layers that both have. A pending commit and other refs stay.
func TestDownloadReplaced(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	first := d.Push(d.NativeImage(oscontainer.WithChunks(2)))
	d.move("", "waits=1")
	d.ExtendNext("usr/share/more")
	second := d.Push(d.NativeImage(oscontainer.WithChunks(2)))

	_, err := d.download(configFor(first, "one"))
	must(t, err)
	old := d.refs()
	_, err = d.download(configFor(second, "two"))
	must(t, err)
	r := d.journal()
	if r.Phase != pivot.PhaseCommitted || downloadOf(t, r).Image.Reference().String() != second || len(downloadOf(t, r).Left) > 0 {
		t.Errorf("journal: %s, %+v", r.Phase, downloadOf(t, r))
	}
	if got := d.contents(); !strings.Contains(got, "data:,two") || strings.Contains(got, "data:,one") {
		t.Errorf("contents %q", got)
	}
	now := strings.Join(d.refs(), "\n")
	for _, ref := range []string{"pivot/" + downloadOf(t, r).Image.Commit, "ostree/container/image/", "ostree/container/blob/"} {
		if !strings.Contains(now, ref) {
			t.Errorf("ref %s is missing of\n%s", ref, now)
		}
	}
	if strings.Count(now, "pivot/") != 1 || strings.Count(now, "ostree/container/image/") != 1 || len(d.refs()) > len(old) {
		t.Errorf("refs before:\n%s\nafter:\n%s", strings.Join(old, "\n"), now)
	}

	// A download without an image keeps only its MachineConfig, and nothing of the earlier image.
	_, err = d.download([]byte("metadata: {name: a}\nspec: {kernelArguments: [b=2]}\n"))
	must(t, err)
	if got := d.refs(); len(got) > 0 {
		t.Errorf("refs %q", got)
	}
	must(t, d.use(nil))
	if downloadOf(t, d.journal()) != nil {
		t.Errorf("journal: %+v", downloadOf(t, d.journal()))
	}
}

// TestDownloadedThenApplied: an ordinary run that applies the downloaded image uses up the
// download; a run that applies something else keeps it.
func TestDownloadedThenApplied(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	_, err := d.download(configFor(d.Image, "one"))
	must(t, err)
	d.move("", "other=1")
	if downloadOf(t, d.journal()) == nil || len(d.refs()) != 1 {
		t.Errorf("after something else: %+v, refs %q", downloadOf(t, d.journal()), d.refs())
	}
	d.move(d.Image)
	if downloadOf(t, d.journal()) != nil || len(d.refs()) > 0 || strings.Contains(d.contents(), "one") {
		t.Errorf("after the same: %+v, refs %q", downloadOf(t, d.journal()), d.refs())
	}
}

// TestDownloadInterrupted: an interrupted download cannot be used, and the next download
// removes everything that it has left.
func TestDownloadInterrupted(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	image := d.Push(d.NativeImage(oscontainer.WithChunks(2)))
	d.Registry.Spoil(registry.Rule{On: "/blobs/", Skip: 1, Times: 1000, Fault: registry.Status(401)})
	if _, err := d.download(configFor(image, "one")); err == nil {
		t.Fatal("no error")
	}
	d.Registry.Spoil()
	if err := d.use(nil); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "was interrupted") {
		t.Errorf("an interrupted download: %v", err)
	}
	_, err := d.download(configFor(image, "one"))
	must(t, err)
	// Killed between the import and the journal.
	r := d.journal()
	commit := downloadOf(t, r).Image.Commit
	must(t, day2.Download{Left: []pivot.Image{downloadOf(t, r).Image.Pinned()}}.KeepIn(&r))
	must(t, pivot.JournalIn(d.Root).Save(r))
	_, err = d.download(configFor(d.Image, "two"))
	must(t, err)
	if got := d.refs(); len(got) != 1 || got[0] == "pivot/"+commit {
		t.Errorf("refs %q", got)
	}
}

// TestDownloadFails: a download that fails leaves nothing behind, and the previous one can still
// be used.
func TestDownloadFails(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	first := d.Push(d.NativeImage(oscontainer.WithChunks(2)))
	d.ExtendNext("usr/share/more")
	second := d.Push(d.NativeImage(oscontainer.WithChunks(2)))
	_, err := d.download(configFor(first, "one"))
	must(t, err)
	before := downloadOf(t, d.journal())
	for name, data := range map[string][]byte{
		"wrong":        []byte("spec: {osImageURL: x}"),
		"refused":      []byte("metadata: {name: a}\nspec: {osImageURL: \"" + second + "\", fips: true}"),
		"unit lacking": []byte(strings.Replace(string(configFor(second, "two")), "    storage:", "    systemd: {units: [{name: lost.service, enabled: true}]}\n    storage:", 1)),
	} {
		if _, err := d.download(data); err == nil {
			t.Errorf("%s: no error", name)
		}
		now := *downloadOf(t, d.journal())
		if !now.Same(*before) || now.Image != before.Image || now.At != before.At || !strings.Contains(d.contents(), "data:,one") {
			t.Errorf("%s: %+v", name, now)
		}
	}
	must(t, d.use(nil))
	d.Boot()
	if string(d.Read("/etc/secret")) != "one" || d.journal().Target.Image.Reference().String() != first || downloadOf(t, d.journal()) != nil {
		t.Errorf("%s, %+v", d.journal().Target.Image.Reference(), downloadOf(t, d.journal()))
	}
	if now := strings.Join(d.refs(), "\n"); strings.Count(now, "ostree/container/image/") != 1 || strings.Contains(now, "pivot/") {
		t.Errorf("refs %s", now)
	}
}

// TestDownloadedDamaged: a damaged download is refused, with a hint.
func TestDownloadedDamaged(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	_, err := d.download(configFor(d.Image, "one"))
	must(t, err)
	kept, err := filepath.Glob(d.Path("/var/lib/pivot/contents/*"))
	must(t, err)
	must(t, os.WriteFile(kept[0], nil, 0o600))
	if err := d.use(nil); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "is not kept any more") {
		t.Errorf("the MachineConfig is damaged: %v", err)
	}
	shell(t, d.Host, "ostree refs --repo=sysroot/ostree/repo --delete "+osimage.KeepAliveRef(d.Commit)+" && ostree prune --repo=sysroot/ostree/repo --refs-only")
	if err := d.use(configFor(d.Image, "one")); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "is not complete any more") {
		t.Errorf("the image is damaged: %v", err)
	}
	if _, err := d.download(configFor(d.Image, "one")); err != nil {
		t.Errorf("to download it again: %v", err)
	}
	must(t, d.use(nil))
}

// TestDownloadOfRebase downloads only an image, without a MachineConfig.
func TestDownloadOfRebase(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	r := day2.Rebase{Machine: d.newMachine(), Image: d.Image}
	if p, err := r.Download(t.Context()); err != nil || !p.New {
		t.Fatalf("new %v, %v", p.New, err)
	}
	if err := d.use(nil); fault.KindOf(err) != fault.Refused || !strings.Contains(fault.HintOf(err), "pivot rebase --from-downloaded") {
		t.Errorf("no MachineConfig: %v", err)
	}
	d.Registry.Spoil(registry.Rule{Fault: registry.Status(500)})
	r = day2.Rebase{Machine: d.newMachine()}
	_, err := r.Run(t.Context(), day2.RunOptions{Downloaded: true})
	must(t, err)
	d.Boot()
	if d.Version() != "B.2" || downloadOf(t, d.journal()) != nil {
		t.Errorf("version %s, %+v", d.Version(), downloadOf(t, d.journal()))
	}
}

// TestDownloadAndFirstBootAgain: opening the first boot again drops neither a download nor a slot
// of the fleet's lock.
func TestDownloadAndFirstBootAgain(t *testing.T) {
	d := &downloader{Host: newHost(t), t: t}
	must(t, boot(t, d.Host))
	d.Boot()
	must(t, boot(t, d.Host))
	_, err := d.download(configFor(d.Image, "one"))
	must(t, err)
	r := d.journal()
	hold(t, &r, slot.Slot{ID: "this"})
	must(t, pivot.JournalIn(d.Root).Save(r))
	must(t, run(t, d.Host, firstboot.FirstBoot{Again: true}))
	if r := d.journal(); downloadOf(t, r) == nil || slotOf(t, r) == nil || !strings.Contains(d.contents(), "data:,one") {
		t.Errorf("%+v, %+v, contents %q", downloadOf(t, r), slotOf(t, r), d.contents())
	}
}

// TestDownloadChecks: a download fails early if applying it would fail, and keeps nothing.
func TestDownloadChecks(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	unit := strings.Replace(string(configFor(d.Image, "one")), "    storage:", "    systemd: {units: [{name: lost.service, enabled: true}]}\n    storage:", 1)
	if _, err := d.download([]byte(unit)); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "lost.service") {
		t.Errorf("a unit that the new image lacks: %v", err)
	}
	if _, err := d.download(configFor("registry.example/none@sha256:x", "one")); fault.KindOf(err) != fault.BadInput {
		t.Errorf("no reference: %v", err)
	}
	var r pivot.JournalContent
	must(t, json.Unmarshal(d.Read("/var/lib/pivot/journal.json"), &r))
	if downloadOf(t, r) == nil || !downloadOf(t, r).At.IsZero() {
		t.Errorf("complete: %+v", downloadOf(t, r))
	}
}

// dies downloads on a disk on which the process dies after some effects on the journal and the
// kept contents. It reports whether the process died.
func (d *downloader) dies(data []byte, effects int) (dead bool) {
	d.t.Helper()
	defer recoverDeath(&dead)
	m := d.newMachine()
	m.Progress.Journal.Disk = dying{left: &effects}
	a := day2.Apply{Machine: m, Config: day2.Config{File: "mc.yaml", Data: data}}
	_, err := a.Download(d.t.Context())
	must(d.t, err)
	return false
}

// recoverDeath sets dead if the process has died as intended. It must be deferred.
func recoverDeath(dead *bool) {
	if r := recover(); r != nil {
		if _, expected := r.(died); !expected {
			panic(r)
		}
		*dead = true
	}
}

// TestDownloadKilled (P77): killed at any point, a download can be continued, or replaced by
// another one. Nothing is left but what the last download needs.
func TestDownloadKilled(t *testing.T) {
	d := &downloader{Host: hostdir.New(t), t: t}
	first := d.Push(d.NativeImage(oscontainer.WithChunks(2)))
	d.ExtendNext("usr/share/more")
	second := d.Push(d.NativeImage(oscontainer.WithChunks(2)))
	here, other := configFor(first, "one"), configFor(second, "two")
	_, err := d.download(here)
	must(t, err)
	n := 0
	for dead := true; dead; n += sample.Step(13) {
		dead = d.dies(other, n)
		then := other
		if n%2 == 0 {
			then = here // the other download is abandoned
		}
		_, err := d.download(then)
		must(t, err)
		r := d.journal()
		if strings.Count(strings.Join(d.refs(), "\n"), "ostree/container/image/") != 1 || !slices.Contains(d.refs(), "pivot/"+downloadOf(t, r).Image.Commit) || len(d.refs()) > 6 {
			t.Errorf("killed before effect %d: refs %q of %s", n, d.refs(), downloadOf(t, r).Image.Commit)
		}
		if got := d.contents(); !strings.HasSuffix(got, string(then)) || strings.Count(got, "metadata:") != 1 || downloadOf(t, r).At.IsZero() || len(downloadOf(t, r).Left) > 0 {
			t.Errorf("killed before effect %d: contents %q, %+v", n, got, downloadOf(t, r))
		}
		if n%2 == 1 {
			here, other = other, here
		}
	}
	if n < 10 {
		t.Errorf("it died only %d times", n)
	}
}
