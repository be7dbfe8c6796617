package crash

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Resolve implements pivot.Images. The tests do not use tags.
func (m *Machine) Resolve(_ context.Context, image pivot.Image) (pivot.Image, error) {
	return image, fmt.Errorf("cannot resolve %s", image)
}

// Preflight implements pivot.Engine.
func (m *Machine) Preflight(ctx context.Context, _ pivot.Plan) error { return ctx.Err() }

// builtLayers is the number of layers in the image of a container build.
const builtLayers = 3

// Check implements pivot.Images.
func (m *Machine) Check(ctx context.Context, _ pivot.Image) error { return ctx.Err() }

// Import implements pivot.Images. The repository has the whole commit or nothing: half an import
// has no effect.
func (m *Machine) Import(ctx context.Context, image pivot.Image, _ func(pivot.Amount)) (pivot.Image, error) {
	image.Commit, image.Version = commitB, "B.2"
	if m.built {
		image.Native = true
		for range builtLayers {
			if err := m.effect("layer", func() {}, ctx.Err); err != nil {
				return image, err
			}
		}
	}
	return image, m.effect("import", func() {}, ctx.Err)
}

// Arguments implements machine.Images.
func (m *Machine) Arguments(commit string) (osimage.Arguments, error) {
	return osimage.Arguments{Line: kargs.Split(m.applying.brings(commit))}, nil
}

// CheckPrepareRoot implements pivot.Engine.
func (m *Machine) CheckPrepareRoot(context.Context, ostree.PrepareRoot) error { return nil }

// CheckSpace implements pivot.Engine.
func (m *Machine) CheckSpace(context.Context, string) error { return nil }

// Secure implements pivot.Images. Nothing else changes the repository.
func (m *Machine) Secure(ctx context.Context, _ pivot.Image) error { return ctx.Err() }

// Release implements pivot.Images.
func (m *Machine) Release(context.Context, pivot.Image, ...string) error {
	return m.effect("release", nil, func() error { return nil })
}

// Remove implements pivot.Images.
func (m *Machine) Remove(_ context.Context, images []pivot.Image) error {
	if len(images) == 0 {
		return nil
	}
	return m.effect("remove", nil, func() error { return nil })
}

// Prepare implements pivot.Engine. Like libostree it stages a checkout on disk, with a locked
// marker in /run.
func (m *Machine) Prepare(ctx context.Context, r pivot.Spec) error {
	err := m.effect("stage", func() { _ = os.MkdirAll(m.deployment(r.Commit), 0o755) }, func() error {
		if err := os.MkdirAll(m.deployment(r.Commit), 0o755); err != nil {
			return err
		}
		m.staged, m.locked = &r, true
		return nil
	})
	if m.premature && err == nil {
		err = m.effect("finalize", nil, func() error { return m.merge(r) })
	}
	if err == nil {
		err = ctx.Err() // the program that staged was stopped together with us
	}
	if err != nil {
		return err
	}
	return m.prepared(r)
}

// Commit implements pivot.Engine with one rename at the end. With LeftToShutdown it only unlocks
// the staged deployment, for the shutdown to finalize.
func (m *Machine) Commit(_ context.Context, r pivot.Spec) error {
	if m.staged == nil {
		return fmt.Errorf("nothing is staged")
	}
	if m.late {
		return m.effect("unlock", nil, func() error { m.locked = false; return nil })
	}
	// The deployment is complete and durable before the rename.
	half := func() { _ = m.merge(r) }
	return m.effect("finalize", half, func() error { return m.finalize(r) })
}

// Discard implements pivot.Engine.
func (m *Machine) Discard(context.Context) error {
	return m.effect("discard", nil, func() error { m.staged = nil; return nil })
}

func (m *Machine) finalize(r pivot.Spec) error {
	if err := m.merge(r); err != nil {
		return err
	}
	m.staged = nil
	return m.switchTo(r)
}

// merge creates the new deployment: the files of the old /etc, and the request's entries over them.
func (m *Machine) merge(r pivot.Spec) error {
	if m.applying != nil {
		return m.mergeWhole(r)
	}
	var etc []hostfiles.File
	err := filepath.WalkDir(filepath.Join(m.root, "etc"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, _, err := hostfiles.Read(m.root, strings.TrimPrefix(path, m.root))
		etc = append(etc, f)
		return err
	})
	if err != nil {
		return err
	}
	return m.checkout(r, append(etc, r.Entries...))
}

// next returns the default deployment for the next boot.
func (m *Machine) next() (ostree.Deployment, error) {
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("the machine cannot boot: it has no boot entry")
	}
	if err != nil {
		return ostree.Deployment{}, err
	}
	return all[0], nil
}

// secret is content that only root may read.
const secret = "nobody shall read this"

// pinningMode is the mode of the pinning files.
const pinningMode = 0o600

// pinningFiles returns the contents of the requested pinning files, by path.
func pinningFiles() map[string]string {
	return map[string]string{
		dropIn:  "# " + secret + "\n[crio.runtime.workloads.management]\nactivation_annotation = \"target.workload.openshift.io/management\"\nannotation_prefix = \"resources.workload.openshift.io\"\nresources = { \"cpushares\" = 0, \"cpuset\" = \"0-1\" }\n",
		kubelet: `{"management": {"cpuset": "0-1"}}` + "\n",
	}
}

// encapsulated returns the MachineConfig that Ignition wrote.
func (m *Machine) encapsulated() []byte {
	type object = map[string]any
	files := []object{}
	for path, content := range pinningFiles() {
		if m.served {
			break
		}
		source := "data:;base64," + base64.StdEncoding.EncodeToString([]byte(content))
		files = append(files, object{"path": path, "mode": pinningMode, "overwrite": true, "contents": object{"source": source}})
	}
	data, err := json.Marshal(object{"spec": object{
		"osImageURL": imageB, "kernelArguments": []string{argsB}, "fips": false,
		"config": object{"ignition": object{"version": "3.2.0"}, "storage": object{"files": files}},
	}})
	if err != nil {
		panic(err) // constants
	}
	return data
}
