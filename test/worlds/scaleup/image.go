package scaleup

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// The image: as many layers as a client reads at once, and more; content that cannot be compressed.
const (
	layers   = 6
	files    = 24
	fileSize = 20 << 10
)

// build returns the image, made below w.Dir.
func (w *world) build() (v1.Image, error) {
	tree, repo := filepath.Join(w.Dir, "tree"), filepath.Join(w.Dir, "archive")
	if err := ostreetree.Write(tree, ostreetree.Contents{}); err != nil {
		return nil, err
	}
	noise := rand.NewChaCha8([32]byte{1})
	for n := range files {
		content := make([]byte, fileSize)
		_, _ = noise.Read(content) // never fails
		if err := os.WriteFile(filepath.Join(tree, "usr", fmt.Sprintf("file-%d", n)), content, 0o644); err != nil {
			return nil, err
		}
	}
	if err := ostreetree.Init(repo, "archive"); err != nil {
		return nil, err
	}
	commit, err := ostreetree.Commit(repo, tree)
	if err != nil {
		return nil, err
	}
	return oscontainer.Legacy(repo, commit, ostreetree.Version, oscontainer.WithWorkDir(w.Dir), oscontainer.WithLayers(layers))
}
