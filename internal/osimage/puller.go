// Package osimage imports OS images: it resolves a reference to content, checks it by the
// host's signature policy, and writes the ostree commit that the image carries into a
// repository. Every byte is verified, and no container is unpacked.
//
// Package imageref names images, package source fetches them, package layer reads their
// layers, and package merge merges derived ones. This package puts them together: it reads
// several layers at once into one ostree.Import, writes the refs and the merge commit of
// an ostree-native container as ostree-ext does, and reports progress.
//
// Formats. A legacy image (machine-os-content) is a container image with an archive
// repository at /srv/repo; the label com.coreos.ostree-commit or the only ref names the
// commit. An ostree-native container has the commit's objects in its layers
// ("encapsulated"), perhaps with derived layers on top ("layered"). An image of a whole OS
// without a commit ("plain") has only layers like derived ones.
//
// Limits. At most four layers are read at once. The repository must have mode bare, and
// room for the compressed layers before anything is written.
package osimage

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"time"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/kargsd"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
)

// Puller reads images with a host's configuration, of which source.Host says more.
type Puller struct {
	Root     string               // the host's root directory, for default paths; "" is "/"
	AuthFile string               // the pull secret; "" looks in the known places
	Patience time.Duration        // how long a registry may be silent; 0 is the default
	Retry    retry.Policy         // of a layer's download; without Tries the default
	Log      func(message string) // notes for people, by any goroutine; may be nil
	// Architecture is that of the machine that the images are for, by any of its names;
	// "" is this program's. Images for another one can be opened, but not imported.
	Architecture string
}

// Progress is how far an import is.
type Progress struct {
	FetchedBytes, TotalBytes int64 // of compressed layers; what is fetched again counts in both
	Objects                  int   // ostree objects seen
	Layers, TotalLayers      int   // that are whole, of those to be read
	Writing                  bool  // all layers are read: the rest is this machine's
	Done                     bool  // all is imported
}

// Opened is an image that Puller.Open has opened: manifest and config are read, and the
// host's signature policy has accepted it. It can be imported, and must be closed.
type Opened struct {
	Image
	// Accept, unless nil, is called by Import with how the image's system mounts its root,
	// as soon as that is known. It returns an error if the host cannot make a deployment
	// that boots so, which ends the import.
	Accept  func(ostree.PrepareRoot) error
	machine platform // that images must be for
	stated  platform // that the image says it is for
	source  *source.Image
	asked   imageref.Reference // as it was asked for, perhaps by a tag
	root    string             // the host's
}

// Open reads the manifest and config of an image for the puller's platform, and checks it
// by the host's signature policy. The result is pinned to its digest.
func (p *Puller) Open(ctx context.Context, ref imageref.Reference) (opened *Opened, err error) {
	err = guard.Call(func() error {
		image, err := p.host().Open(ctx, ref)
		if err != nil {
			return err
		}
		opened = &Opened{Image: imageOf(image), machine: p.thisMachine(), stated: statedBy(image), source: image, asked: ref, root: cmp.Or(p.Root, "/")}
		if p.Log != nil {
			for _, note := range image.Notes {
				p.Log(note)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot resolve image %s: %w", ref, err)
	}
	return opened, nil
}

// Arguments are the kernel arguments that the image of a commit in a repository brings, for
// the machine that images are for.
func (p *Puller) Arguments(repo *ostree.Repo, commit ostree.Checksum) (kargsd.Arguments, error) {
	return kargsd.Read(repo, commit, p.thisMachine().architecture)
}

// Close ends the connections to the image's source.
func (o *Opened) Close() error { return o.source.Close() }

func (p *Puller) host() *source.Host {
	host := &source.Host{Root: p.Root, AuthFile: p.AuthFile, Patience: p.Patience, Retry: p.Retry, Log: p.Log}
	// For its own architecture the library knows which variants the processor has.
	if a := p.thisMachine().architecture; a != runtime.GOARCH {
		host.Architecture = a
	}
	return host
}
