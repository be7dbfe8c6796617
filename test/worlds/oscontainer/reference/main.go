// Command reference makes the inputs that make.sh needs for the reference implementation: the
// tree to commit, and an image with derived layers.
//
//	reference tree DIR
//	reference derive FROM TO    (OCI layouts)
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "tree":
		return ostreetree.Write(args[1], ostreetree.Contents{})
	case len(args) == 3 && args[0] == "derive":
		return derive(args[1], args[2])
	}
	return errors.New("usage: reference tree DIR | derive FROM TO")
}

// derive adds layers with the changes of oscontainer.Changes to an image.
func derive(from, to string) error {
	base, err := layout.Path(from).ImageIndex()
	if err != nil {
		return err
	}
	index, err := base.IndexManifest()
	if err != nil {
		return err
	}
	img, err := base.Image(index.Manifests[0].Digest)
	if err != nil {
		return err
	}
	img, err = oscontainer.Derive(img, oscontainer.Changes()...)
	if err != nil {
		return err
	}
	return oscontainer.WriteLayout(to, img)
}
