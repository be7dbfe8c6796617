package main

import (
	"context"
	"os/exec"
)

// The reference implementation, ostree-ext, as test/worlds/oscontainer/reference builds it. It fetches by skopeo.
// In the end the image gets the name by which sameFiles finds it.
const (
	referenceScript = `"$REFERENCE" container image pull --quiet --authfile "$REGISTRY_AUTH_FILE" --cert-dir "$CERTS" repo "ostree-unverified-registry:$TARGET"
exec ostree refs --repo=repo --create=os "$(ostree refs --repo=repo --list ostree/container/image)"`
	noFsync = "ostree config --repo=repo set core.fsync false\n"
)

// Names of the reference in the report.
const (
	ostreeExt        = "ostree-ext"
	ostreeExtNoFsync = "ostree-ext, no fsync"
)

// references returns the reference with the chunked and the derived image, with ostree's fsync and without. The
// image chunked is alone, because the repository with which derived begins must be empty.
func (w *world) references(ctx context.Context) (all []*contender) {
	if w.referenceProgram == "" {
		return nil
	}
	for _, name := range []string{chunkedImage, derivedImage} {
		i, there := w.images[name]
		if !there {
			continue
		}
		all = append(all, w.referenceWith(ctx, i, ostreeExt, referenceScript), w.referenceWith(ctx, i, ostreeExtNoFsync, noFsync+referenceScript))
	}
	return all
}

func (w *world) referenceWith(ctx context.Context, i image, name, script string) *contender {
	c := &contender{name: name, rival: true, steps: []step{{image: i, output: repoDir, phases: []phase{{"import", script}}}}}
	version, err := toolVersion(ctx, "skopeo")
	if err == nil {
		_, err = exec.LookPath(w.referenceProgram)
	}
	if err != nil {
		c.unavailable = err.Error()
	}
	c.tools = version
	return c
}
