package bootlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/worlds/oscontainer"
)

// DerivedUnit is a unit from a derived layer. It prints the contents of merged files on the console.
const DerivedUnit = "derived.service"

// Units from derived layers for a MachineConfig to switch: enabledUnit is not enabled in the layers,
// disabledUnit is enabled in their /etc. The Says constants are what they print on the console.
const (
	enabledUnit, disabledUnit = "derived-enabled.service", "derived-disabled.service"

	EnabledUnitSays, DisabledUnitSays = "@@unit " + enabledUnit + " runs", "@@unit " + disabledUnit + " runs"
)

// DerivedDir is a directory from derived layers.
const DerivedDir = "/usr/share/derived"

// DerivedSays is what DerivedUnit prints if the layers were merged correctly. The version of the
// image follows: see DerivedVersion.
const DerivedSays = "@@derived: two from the second layer, 0750, nothing that was removed"

// changes returns three layers such as a container build adds to an OS: a unit and its program, files
// that later layers replace or remove, and a change in /etc. The last layer differs between versions.
func changes(version int) []oscontainer.Option {
	program := oscontainer.File("usr/bin/derived-tool", `#!/bin/sh
[ -e /usr/share/derived/gone ] || [ -e /usr/share/derived/removed ] && gone="something that was removed"
echo "@@derived: $(cat /etc/derived.conf) from the $(cat /usr/share/derived/replaced), $(stat -c 0%a /usr/share/derived/private), ${gone:-nothing that was removed}, version $(cat /usr/share/openshift/metadata)"
`)
	program.Mode = 0o755
	program.PAXRecords = map[string]string{"SCHILY.xattr.user.derived": "1"}
	private := oscontainer.Directory("usr/share/derived/private")
	private.Mode = 0o750
	unit := oscontainer.File("usr/lib/systemd/system/"+DerivedUnit, `[Unit]
Before=boot-report.service
[Service]
Type=oneshot
ExecStart=/usr/bin/derived-tool
StandardOutput=journal+console
`)
	return []oscontainer.Option{
		oscontainer.WithDerived(program, private, unit,
			oscontainer.Symlink("usr/lib/systemd/system/multi-user.target.wants/"+DerivedUnit, "../"+DerivedUnit),
			oscontainer.File("usr/lib/systemd/system/"+enabledUnit, saying(EnabledUnitSays)),
			oscontainer.File("usr/lib/systemd/system/"+disabledUnit, saying(DisabledUnitSays)),
			oscontainer.Symlink("etc/systemd/system/multi-user.target.wants/"+disabledUnit, "/usr/lib/systemd/system/"+disabledUnit),
			oscontainer.File("usr/share/derived/replaced", "first layer"), oscontainer.File("usr/share/derived/gone", "x"),
			oscontainer.File("usr/share/derived/removed/inside", "x"), oscontainer.File("etc/derived.conf", "one")),
		oscontainer.WithDerived(oscontainer.File("usr/share/derived/replaced", "second layer"), oscontainer.File("etc/derived.conf", "two"),
			oscontainer.File("usr/share/derived/.wh.gone", ""), oscontainer.File("usr/share/derived/.wh.removed", "")),
		oscontainer.WithDerived(oscontainer.File("usr/share/openshift/metadata", fmt.Sprint(version))),
	}
}

// Image is an image that the registry serves.
type Image struct {
	Reference string // with the registry's name for guests and the digest
	v1.Image
}

// Derived pushes B with derived layers to the registry and returns the reference.
func (l *Lab) Derived(ctx context.Context) (image string, err error) {
	img, err := l.DerivedVersion(ctx, 1)
	return img.Reference, err
}

// DerivedVersion is like Derived, for a given version. Versions differ in the last layer.
func (l *Lab) DerivedVersion(ctx context.Context, version int) (Image, error) {
	layers, err := l.layers(version)
	if err != nil {
		return Image{}, err
	}
	opts := append(layers, l.workDir(fmt.Sprintf("derived-%d", version)), oscontainer.WithChunks(8))
	img, err := oscontainer.Encapsulated(l.Guest.BareRepo(), l.Guest.CommitB, opts...)
	if err != nil {
		return Image{}, err
	}
	reference, err := l.Push(ctx, "derived", img)
	return Image{reference, img}, err
}

// WithFiles pushes B with a derived layer of files, given by path and content, and of more entries, to the registry and
// returns the reference.
func (l *Lab) WithFiles(ctx context.Context, name string, files map[string]string, more ...oscontainer.Entry) (image string, err error) {
	layer := slices.Clone(more)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		layer = append(layer, oscontainer.File(path, files[path]))
	}
	img, err := oscontainer.Encapsulated(l.Guest.BareRepo(), l.Guest.CommitB, oscontainer.WithDerived(layer...), oscontainer.WithLabel("ostree.bootable", "true"), l.workDir(name), oscontainer.WithChunks(8))
	if err != nil {
		return "", err
	}
	return l.Push(ctx, name, img)
}

// Plain pushes B with the same derived layers as an image without an ostree commit to the registry
// and returns the reference. B is divided into n layers.
func (l *Lab) Plain(ctx context.Context, n int) (image string, err error) {
	tree := filepath.Join(l.dir, fmt.Sprintf("tree-%d", n))
	out, err := exec.CommandContext(ctx, "ostree", "checkout", "--repo="+l.Guest.BareRepo(), l.Guest.CommitB, tree).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot check out B: %w\n%s", err, out)
	}
	layers, err := l.layers(1)
	if err != nil {
		return "", err
	}
	img, err := oscontainer.PlainTree(tree, "B.2", n, append(layers, l.workDir(fmt.Sprintf("plain-%d", n)))...)
	if err != nil {
		return "", err
	}
	return l.Push(ctx, "plain", img)
}

// Inspect runs "pivot image inspect" on an image in the registry and returns how many layers belong
// to the ostree commit and how many are derived.
func (l *Lab) Inspect(ctx context.Context, image string) (base, derived int, err error) {
	dir, err := os.MkdirTemp(l.dir, "inspect-*")
	if err != nil {
		return 0, 0, err
	}
	out, err := l.onImage(ctx, dir, "inspect", image, "-o=json")
	if err != nil {
		return 0, 0, err
	}
	var found struct {
		Layers  []any
		Derived int
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return 0, 0, fmt.Errorf("cannot read what pivot says of image %s: %w", image, err)
	}
	return len(found.Layers) - found.Derived, found.Derived, nil
}

// onImage runs a "pivot image" command on an image, with a root below dir that has the registry's
// certificate and credentials.
func (l *Lab) onImage(ctx context.Context, dir, command, image string, flags ...string) ([]byte, error) {
	root := filepath.Join(dir, "root")
	for _, f := range l.accessAs(l.Registry.Host()) {
		path := filepath.Join(root, f.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Content, f.Mode)); err != nil {
			return nil, err
		}
	}
	here := strings.Replace(image, l.Registry.HostAs(GuestHost), l.Registry.Host(), 1)
	return l.program(ctx, "pivot", append([]string{"image", command, "--root=" + root, here}, flags...)...)
}

// workDir returns the option that sets the directory for an image's layers.
func (l *Lab) workDir(name string) oscontainer.Option {
	dir := filepath.Join(l.dir, name)
	_ = os.Mkdir(dir, 0o755) // if this fails, so does writing the layers
	return oscontainer.WithWorkDir(dir)
}

// Push pushes an image to the registry and returns its reference for guests, with the digest.
func (l *Lab) Push(ctx context.Context, name string, img v1.Image) (string, error) {
	digest, err := l.Registry.Push(ctx, "os/"+name, "b", img)
	if err != nil {
		return "", err
	}
	return l.Registry.HostAs(GuestHost) + "/os/" + name + "@" + digest, nil
}
