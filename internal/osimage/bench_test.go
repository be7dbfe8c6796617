package osimage_test

import (
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/ostreetree"
)

// benchImage is the environment variable with the image that BenchmarkImportImage imports, such as oci:DIR. benchRoot
// is the one with the root directory of a host: its SELinux policy is used to guess labels. docs/dev/benchmark.md says
// where to get them.
const (
	benchImage = "PIVOT_BENCH_IMAGE"
	benchRoot  = "PIVOT_BENCH_ROOT"
)

// BenchmarkImportImage imports a whole image into an empty repository, as the command does. It
// is meant for the profiler.
func BenchmarkImportImage(b *testing.B) {
	name := os.Getenv(benchImage)
	if name == "" {
		b.Skipf("%s names no image", benchImage)
	}
	need.Ostree(b)
	ref, err := imageref.Parse(name)
	if err != nil {
		b.Fatal(err)
	}
	puller := &osimage.Puller{Root: os.Getenv(benchRoot)}
	image, err := puller.Open(b.Context(), ref)
	if err != nil {
		b.Fatal(err)
	}
	defer image.Close()
	b.SetBytes(image.Bytes)
	path := filepath.Join(b.TempDir(), "repo")
	for b.Loop() {
		b.StopTimer()
		repo := emptyRepo(b, path)
		b.StartTimer()
		if _, err := image.Import(b.Context(), repo, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// emptyRepo removes what is at path and makes a new repository there.
func emptyRepo(b *testing.B, path string) *ostree.Repo {
	b.Helper()
	if err := os.RemoveAll(path); err != nil {
		b.Fatal(err)
	}
	if err := ostreetree.Init(path, "bare"); err != nil {
		b.Fatal(err)
	}
	repo, err := ostree.OpenRepo(path)
	if err != nil {
		b.Fatal(err)
	}
	return repo
}
