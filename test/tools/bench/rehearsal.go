package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cavaliergopher/cpio"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/test/tools/machinefiles"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// The part of a benchmark that judges an image before its commit (docs/start.md).
const rehearsalPart = "rehearsal"

// Its images are named by how their initramfs is compressed.
const (
	rehearsedZstd = "rehearsed, zstd" // dracut's default
	rehearsedGzip = "rehearsed, gzip"
)

// rehearsing is the contender that judges an image which is in the repository already.
const rehearsing = "pivot, judging"

const (
	rehearsedFiles = 16_500      // that programs may need to start, as in Fedora CoreOS; ten times those of the tree if that is less
	rehearsedBytes = 100_000_000 // of the compressed initramfs, or the size of the tree if that is less
)

// The scripts of the contender. What the first one does is not measured.
const (
	rehearsalBefore = `"$PIVOT" image import -q --root "$HOST" --authfile "$REGISTRY_AUTH_FILE" --repo repo "docker://$TARGET"`
	rehearsalScript = `exec "$BENCH" judge repo "$COMMIT" "$PIVOT"`
)

// rehearsals returns pivot with the images of the part.
func (w *world) rehearsals() (all []*contender) {
	for _, name := range []string{rehearsedZstd, rehearsedGzip} {
		all = append(all, &contender{name: rehearsing, steps: []step{{image: w.images[name], before: rehearsalBefore, output: repoDir, phases: []phase{{"judge", rehearsalScript}}}}})
	}
	return all
}

// judge judges a system in a repository, as a first boot does, for a machine with an encrypted root file system. So pivot reads
// the initramfs. A finding is an error.
func judge(ctx context.Context, repo, sum, program string) error {
	next, err := ostree.ParseChecksum(sum)
	if err != nil {
		return err
	}
	facts := rehearse.Facts{FileSystems: []rehearse.FileSystem{{At: "/", Type: "ext4", On: []string{"crypt"}}}}
	found, err := rehearse.Stage{Self: program, Repo: repo}.Judge(ctx, rehearse.Change{Next: next, Running: next}, facts)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("the image has a finding: %+v", found)
	}
	return err
}

// rehearsed builds the images. Only their initramfs differs.
func (b *builder) rehearsed(ctx context.Context) error {
	tree, repo := filepath.Join(b.dir, "rehearsed"), filepath.Join(b.dir, "rehearsed-repo")
	if err := errors.Join(rehearsedTree(tree, min(rehearsedFiles, 10*b.files)), ostreetree.Init(repo, "bare")); err != nil {
		return err
	}
	for name, compress := range map[string]func(io.Writer) (io.WriteCloser, error){
		rehearsedZstd: func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, zstd.WithWindowSize(8<<20)) },
		rehearsedGzip: func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
	} {
		if err := b.initramfs(filepath.Join(tree, "usr/lib/modules/1/initramfs.img"), compress); err != nil {
			return err
		}
		sum, err := commit(repo, tree, "1")
		if err == nil {
			err = b.image(ctx, name, sum, func(dir oscontainer.Option) (v1.Image, error) { return oscontainer.Encapsulated(repo, sum, dir) })
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(tree), os.RemoveAll(repo))
}

// rehearsedTree writes a system with two of this machine's programs, which pivot runs, and small files.
func rehearsedTree(tree string, small int) error {
	files := map[string]string{"usr/lib/modules/1/vmlinuz": "kernel", "usr/lib/os-release": "ID=benchmark\n"}
	for n := range small {
		name := fmt.Sprintf("usr/lib/component-%02d/%d", n%components, n)
		files[name] = name
	}
	err := errors.Join(writeFiles(tree, files), writePolicy(filepath.Join(tree, "usr/etc/selinux")))
	for _, program := range []string{"/usr/bin/true", "/usr/lib/systemd/systemd"} {
		err = errors.Join(err, copyProgram(tree, program))
	}
	for _, dir := range []string{"lib", "lib64"} {
		err = errors.Join(err, os.Symlink("usr/"+dir, filepath.Join(tree, dir)))
	}
	for _, dir := range []string{"boot", "dev", "proc", "run", "sys", "sysroot", "var"} { // the boot mounts onto these
		err = errors.Join(err, os.Mkdir(filepath.Join(tree, dir), 0o755))
	}
	return err
}

// copyProgram copies a program of this machine and its libraries to where their links lead.
func copyProgram(tree, program string) error {
	all, err := machinefiles.WithLibraries(program)
	if err != nil {
		return err
	}
	for _, name := range all {
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err == nil {
			err = machinefiles.Copy(name, filepath.Join(tree, dir, filepath.Base(name)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// initramfs writes an initramfs of the machine's files, until it has the size that is wanted.
func (b *builder) initramfs(path string, compress func(io.Writer) (io.WriteCloser, error)) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	to, err := compress(file)
	if err != nil {
		return err
	}
	archive := cpio.NewWriter(to)
	add := func(name string, content []byte) error {
		err := archive.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | 0o644, Size: int64(len(content))})
		if err == nil {
			_, err = archive.Write(content)
		}
		return err
	}
	wanted := min(rehearsedBytes, b.bytes)
	for n, size := 0, int64(0); err == nil && size < wanted; n++ {
		for _, f := range machinefiles.Pick(b.from, 2000, 200e6, b.seed+uint64(n)) {
			content, rerr := os.ReadFile(f.Path)
			if err = rerr; err == nil {
				err = add(strings.TrimPrefix(f.Path, "/"), content)
			}
			if size, _ = file.Seek(0, io.SeekCurrent); err != nil || size >= wanted {
				break
			}
		}
	}
	return errors.Join(err, add("usr/lib/dracut/modules.txt", []byte("bash\ncrypt\nostree\n")), archive.Close(), to.Close(), file.Close())
}

// rehearsalTargets are the targets for an initramfs of 100 MB.
func (r *report) rehearsalTargets() (targets []target) {
	for _, name := range []string{rehearsedZstd, rehearsedGzip} {
		s := r.find(rehearsing, name)
		targets = append(targets, target{What: "seconds to judge an image: " + name, Bound: 2, Value: s.Wall},
			target{What: "peak memory in MB: " + name, Bound: 80, Value: float64(s.Peak) / 1e6})
	}
	return targets
}
