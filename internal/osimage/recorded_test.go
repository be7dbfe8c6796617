package osimage_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// recordedDir has one file per image of the derived and plain cases, with the result of the
// reference implementation; testdata/reference/README.md says how the files are made.
const recordedDir = "testdata/reference/derived"

// recordedFile returns the file of a case.
func recordedFile(name string) string {
	return filepath.Join(recordedDir, strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name))
}

// madeNothing is the prefix of the lines about an image that was not imported.
const madeNothing = "error "

// asTheReference compares the result for an image with that of the reference. changes is the
// difference to the base, or madeNothing. If the results differ, differs must be the first cell
// of the row in docs/dev/import.md that explains the difference.
func (h *host) asTheReference(name string, img v1.Image, changes, differs string) {
	h.t.Helper()
	data, err := os.ReadFile(recordedFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		h.t.Fatalf("the reference was not given this image: %s", renew)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	image, outcome, _ := strings.Cut(string(data), "\n")
	if image != "image "+rootfs(h.t, img) {
		h.t.Fatalf("the reference was given another image: %s", renew)
	}
	same := outcome == changes || changes == madeNothing && strings.HasPrefix(outcome, madeNothing) // the error texts may differ
	switch {
	case differs == "" && !same:
		h.t.Errorf("it is not what the reference made:\n%s", difference(outcome, changes))
	case differs != "" && same:
		h.t.Errorf("it is what the reference made, but said to differ: %q", differs)
	case differs != "" && !slices.Contains(deviations(h.t), differs):
		h.t.Errorf("docs/dev/import.md has no row %q", differs)
	}
}

// renew is the hint for an image without a recorded result.
const renew = "make reference gives it this one"

// rootfs identifies the files of an image, regardless of the compression of its layers.
func rootfs(t *testing.T, img v1.Image) string {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, config.RootFS.DiffIDs)))
}

// deviations returns the first cells of the table in docs/dev/import.md about differences to the
// reference.
func deviations(t *testing.T) (rows []string) {
	t.Helper()
	data, err := os.ReadFile("../../docs/dev/import.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "\n| layer or image content | ostree-ext | pivot |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			t.Fatalf("docs/dev/import.md: a row of %d cells: %s", len(cells)-2, line)
		}
		rows = append(rows, strings.TrimSpace(cells[1]))
	}
	return rows
}

// recordReference runs the reference on an image and records the result, if PIVOT_REFERENCE
// names its program. It reports whether it did.
func (h *host) recordReference(name string, img v1.Image, base string) bool {
	h.t.Helper()
	program := os.Getenv("PIVOT_REFERENCE")
	if program == "" {
		return false
	}
	dir := filepath.Join(h.t.TempDir(), "image")
	if err := oscontainer.WriteLayout(dir, img); err != nil {
		h.t.Fatal(err)
	}
	repo := bare(h.t)
	outcome, err := referencePull(program, repo, dir)
	if err == nil {
		outcome = difference(base, list(h.t, repo, imageCommit(h.t, repo)))
		if _, err := ostreetree.Ostree("fsck", "--repo="+repo); err != nil {
			outcome += "damaged\n"
		}
	}
	text := "image " + rootfs(h.t, img) + "\n" + outcome
	if err := os.WriteFile(recordedFile(name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}

	// The reference recognizes an image that was imported here.
	ours := bare(h.t)
	if _, err := h.importRef(parse(h.t, "oci:"+dir), ours); err != nil {
		return true
	}
	if said, err := referencePull(program, ours, dir); err != nil || !strings.Contains(said, "No changes") {
		h.t.Errorf("the reference pulls again: %v\n%s", err, said)
	}
	return true
}

// referencePull imports an image from an OCI layout with the reference. It returns the output
// of the program or, after a failure, its causes, one per line with the prefix madeNothing.
func referencePull(program, repo, dir string) (string, error) {
	cmd := exec.Command(program, "container", "image", "pull", "--quiet", repo, "ostree-unverified-image:oci:"+dir)
	cmd.Env = append(os.Environ(), "RUST_BACKTRACE=0")
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err == nil {
		return said, nil
	}
	if _, causes, found := strings.Cut(said, "Caused by:\n"); found {
		said = causes
	}
	said = regexp.MustCompile(`(?m)^[ \d:]+`).ReplaceAllString(said, madeNothing)
	return strings.ReplaceAll(said, dir, "IMAGE") + "\n", err
}

// imageCommit returns the commit of a repository's only image.
func imageCommit(t *testing.T, repo string) string {
	t.Helper()
	for ref, commit := range allRefs(t, repo) {
		if strings.HasPrefix(ref, "ostree/container/image/") {
			return commit
		}
	}
	t.Fatal("no image ref")
	return ""
}
