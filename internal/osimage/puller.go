// Package osimage reads OS images: it resolves a reference to content, checks
// it against the host's signature policy and imports the ostree commit that it
// carries into a repository, every byte verified, without unpacking a container.
//
// Where images come from is package source, what their layers hold package layer,
// and how they are named package imageref. Here these are put together: layers are
// read several at once into one ostree.Import, refs and the merge commit of an
// ostree-native container are written as ostree-ext does, and progress is told.
//
// Formats. A legacy "oscontainer" (machine-os-content) is an ordinary container
// image with an archive-mode repository at /srv/repo; its commit is named by the
// label com.coreos.ostree-commit or by the only ref. ostree-native containers
// carry it in layers of objects ("encapsulated"), perhaps with further layers on top
// ("layered"), which package merge makes part of it. Images of a whole OS that carry
// no commit ("plain") have only such layers.
//
// Limits. At most four layers are read at once. The repository must be of mode
// bare, and have room for the layers to be fetched before anything is written.
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
)

// Puller reads images with a host's configuration, of which source.Host says more.
type Puller struct {
	Root     string               // the host's root directory, for default paths; "" is "/"
	AuthFile string               // the pull secret; "" looks in the known places
	Patience time.Duration        // how long a registry may be silent; 0 is the default
	Retry    source.Retry         // of a layer's download; the zero value is the default
	Log      func(message string) // notes for people, by any goroutine; may be nil
	// Architecture is that of the machine that the images are for, by any of its
	// names; "" is this program's. Images that say they are for another are looked at,
	// but not imported.
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

// Opened is an image that was looked up and can be imported: manifest and config
// are read, and the host's signature policy has accepted it.
type Opened struct {
	Image
	// Accept is asked by Import whether the host can boot a system that mounts its root
	// so, as soon as that is known. Its error ends the import. nil accepts all.
	Accept  func(ostree.PrepareRoot) error
	machine platform // that it is for, if it can be imported
	stated  platform
	source  *source.Image
	asked   imageref.Reference // as it was asked for, perhaps by a tag
	root    string             // the host's
}

// Open looks an image up: manifest and config, of the platform that this program
// runs on. The result is pinned to the content, which the host's signature policy
// accepts. It must be closed.
func (p *Puller) Open(ctx context.Context, ref imageref.Reference) (opened *Opened, err error) {
	err = guard.Call(func() error {
		image, err := p.host().Open(ctx, ref)
		if err != nil {
			return err
		}
		opened = &Opened{Image: describe(image), machine: p.thisMachine(), stated: statedBy(image), source: image, asked: ref, root: cmp.Or(p.Root, "/")}
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

// Arguments are the kernel arguments that a commit in a repository brings of its own
// for the machine that images are for.
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
