package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// contender is a way to import an image into a repository.
type contender struct {
	name        string
	tools       string // versions of its tools
	unavailable string // the reason why it cannot run
	rival       bool   // not pivot
	steps       []step // run on one repository, which is empty at first
}

// step is one measurement.
type step struct {
	image    image
	deployed string // a commit that the repository has before, which is not measured; "": none
	before   string // a script that runs before, which is not measured
	output   string // output directory, relative to the trial's directory
	phases   []phase
	samples  []sample
}

// Directories of a trial: the repository, and the floor's output.
const (
	repoDir  = "repo"
	floorDir = "floor"
)

// The scripts run in the trial's directory. Their variables are set by world.job.
const (
	pivotScript = `exec "$PIVOT" image import -o json --root "$HOST" --authfile "$REGISTRY_AUTH_FILE" --repo repo "docker://$TARGET" >result`
	floorScript = `exec "$BENCH" floor "$PACKS" floor`
	fetchScript = `exec "$BENCH" fetch "$CERTS" "$REGISTRY_AUTH_FILE" floor $BLOBS`
	filesScript = `exec "$BENCH" files "$CERTS" "$REGISTRY_AUTH_FILE" floor $BLOBS`

	// The storage driver follows, then podmanPull or podmanMount.
	podman      = `podman --root storage --runroot run --storage-driver `
	podmanPull  = ` pull -q --cert-dir "$CERTS" "$TARGET"`
	podmanMount = ` image mount "$TARGET" >mounted`
	podmanLocal = `exec ostree pull-local --repo=repo "$(cat mounted)/srv/repo" "$COMMIT"`

	// For an image with other layers than those of a commit: commit all files of the container, except /sysroot, which
	// has the base's repository with the same files again.
	ostreeCommit = `echo /sysroot >skip
ostree init --repo=made --mode=bare
exec ostree commit --repo=made --branch=os --skip-list=skip --selinux-policy="$(cat mounted)" --tree=dir="$(cat mounted)"`
	podmanMade = `exec ostree pull-local --repo=repo made os`

	skopeoCopy  = `exec skopeo copy -q --src-cert-dir "$CERTS" "docker://$TARGET" oci:layout:os`
	umociUnpack = `exec umoci raw unpack --image layout:os rootfs`
	skopeoLocal = `exec ostree pull-local --repo=repo rootfs/srv/repo "$COMMIT"`
)

// containersConf keeps podman away from state that it shares with other uses on the machine.
const containersConf = `[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
tmp_dir = %q
`

func (w *world) contenders(ctx context.Context) []*contender {
	var all []*contender
	chunked := []step{ours(w.images[chunkedImage])}
	if w.has(basePart) {
		legacy := w.images[legacyImage]
		all = append(all, pivot(ours(legacy)))
		if w.rivals {
			all = append(all, w.podman(ctx, legacy, phase{"pull-local", podmanLocal}), w.skopeo(ctx, legacy))
		}
		chunked = append(chunked, ours(w.images[updatedImage]))
	}
	if w.inChunks() {
		all = append(all, pivot(chunked...))
	}
	if w.has(partsPart) {
		all = append(all, w.partContenders()...)
	}
	if w.has(derivedPart) {
		derived := w.images[derivedImage]
		all = append(all, pivot(ours(derived)), pivot(ours(w.images[plainImage])))
		if w.rivals {
			all = append(all, w.podman(ctx, derived, phase{"commit", ostreeCommit}, phase{"pull-local", podmanMade}))
		}
	}
	if w.has(rehearsalPart) {
		all = append(all, w.rehearsals()...)
	}
	all = append(all, w.seals()...)
	all = append(all, w.references(ctx)...)
	for _, name := range []string{legacyImage, chunkedImage, derivedImage} {
		if i, ok := w.images[name]; ok {
			all = append(all, floorOf("floor", i, fetchScript), floorOf(filesFloor, i, filesScript))
		}
	}
	return append(all, floorOf("floor", image{Name: contentsImage}, floorScript))
}

// filesFloor is the name of the floor with files.
const filesFloor = "floor, files"

// floorOf returns a floor for an image.
func floorOf(name string, i image, script string) *contender {
	return &contender{name: name, steps: []step{{image: i, output: floorDir, phases: []phase{{"floor", script}}}}}
}

func pivot(steps ...step) *contender { return &contender{name: "pivot", steps: steps} }

func ours(i image) step {
	return step{image: i, output: repoDir, phases: []phase{{"import", pivotScript}}}
}

// podman returns podman with the fastest storage driver that works here. The phases in after import
// the mounted image into the repository.
func (w *world) podman(ctx context.Context, i image, after ...phase) *contender {
	c := &contender{name: "podman", rival: true, steps: []step{{image: i, output: repoDir}}}
	version, err := toolVersion(ctx, "podman")
	if err != nil {
		c.unavailable = err.Error()
		return c
	}
	for _, driver := range []string{"overlay", "vfs"} {
		info := step{phases: []phase{{"info", podman + driver + " info"}}}
		if err = w.inTrial(func() error { _, err := launch(ctx, w.job(info)); return err }); err != nil {
			continue
		}
		c.tools = version + ", storage driver " + driver
		c.steps[0].phases = append([]phase{{"pull", podman + driver + podmanPull}, {"mount", podman + driver + podmanMount}}, after...)
		return c
	}
	c.unavailable = err.Error()
	return c
}

// skopeo returns skopeo with an available tool to unpack the image.
func (w *world) skopeo(ctx context.Context, i image) *contender {
	c := &contender{name: "skopeo", rival: true, steps: []step{{image: i, output: repoDir}}}
	version, err := toolVersion(ctx, "skopeo")
	if err != nil {
		c.unavailable = err.Error()
		return c
	}
	unpack := umociUnpack
	c.tools = version + ", umoci"
	if _, err := exec.LookPath("umoci"); err != nil {
		c.tools = version + ", tar"
		unpack = "mkdir rootfs"
		for _, layer := range i.Layers {
			unpack += "\ntar -xzf layout/blobs/sha256/" + layer + " -C rootfs"
		}
	}
	c.steps[0].phases = []phase{{"copy", skopeoCopy}, {"unpack", unpack}, {"pull-local", skopeoLocal}}
	return c
}

// toolVersion returns the version line of a program.
func toolVersion(ctx context.Context, tool string) (string, error) {
	out, err := exec.CommandContext(ctx, tool, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("cannot run %s: %w", tool, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(first), nil
}

// job returns the job for a step. Whatever podman and skopeo write outside of their stores is also
// kept below the trial's directory.
func (w *world) job(s step) job {
	env := map[string]string{
		"PATH":               os.Getenv("PATH"),
		"HOME":               w.trial(),
		"TMPDIR":             filepath.Join(w.trial(), "tmp"),
		"TARGET":             w.reference(s.image),
		"COMMIT":             s.image.Commit,
		"PIVOT":              w.pivot,
		"REFERENCE":          w.referenceProgram,
		"HOST":               w.host(),
		"CERTS":              w.certs(),
		"REGISTRY_AUTH_FILE": w.secret(),
		"CONTAINERS_CONF":    filepath.Join(w.host(), containersConfPath),
		"PACKS":              w.packs(),
		"BLOBS":              strings.Join(w.blobURLs(s.image), " "),
	}
	j := job{Dir: w.trial(), CPUs: w.cpus, Phases: s.phases, Before: `mkdir -p tmp shared
if [ -d /var/lib/containers ]; then mount --bind shared /var/lib/containers; fi
` + s.before}
	for key, value := range env {
		j.Env = append(j.Env, key+"="+value)
	}
	return j
}
