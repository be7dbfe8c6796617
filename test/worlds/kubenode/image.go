package kubenode

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Image is a container image that a node has without a registry.
type Image struct {
	Name    string // as pods name it
	Archive string // an OCI image layout as a tar, which containerd imports
}

// PodImage is the image of the test's own pods, and of what holds their namespaces: see the program pod.
const PodImage = "registry.example/pod:test"

// AgentImage is the image of the node agent.
const AgentImage = "registry.example/pivot-agent:test"

// Images makes the images of the test's pods and of the node agent in the directory dir. source is the root
// of this project's checkout, bin the directory with what "make build" has made.
func Images(ctx context.Context, source, bin, dir string) ([]Image, error) {
	tree, layout := filepath.Join(dir, "tree"), filepath.Join(dir, "pod")
	for _, argv := range [][]string{
		{"go", "build", "-C", source, "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(tree, "pod"), "./test/worlds/kubenode/pod"},
		{"go", "run", "-C", source, "./test/tools/ociimage", "-arch", runtime.GOARCH, "-version", "test", "-title", "pod", "-program", "/pod", tree, layout},
		{"make", "-s", "-C", source, "BIN=" + bin, "agent-image"},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot make the images of a node: %w\n%s", err, out)
		}
	}
	images := []Image{{PodImage, filepath.Join(dir, "pod.tar")}, {AgentImage, filepath.Join(dir, "agent.tar")}}
	return images, errors.Join(archive(layout, images[0]), archive(filepath.Join(bin, "agent-image"), images[1]))
}

// archive writes an image layout as a tar with the image's name, by which containerd finds it.
func archive(layout string, image Image) (err error) {
	if err := name(filepath.Join(layout, "index.json"), image.Name); err != nil {
		return err
	}
	f, err := os.Create(image.Archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	return errors.Join(w.AddFS(os.DirFS(layout)), w.Close())
}

// name notes the name of the only image in the index of a layout.
func name(index, image string) error {
	text, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	manifests, _ := all["manifests"].([]any)
	if len(manifests) != 1 {
		return fmt.Errorf("cannot name the image in %s: it has %d", index, len(manifests))
	}
	manifests[0].(map[string]any)["annotations"] = map[string]string{"io.containerd.image.name": image}
	if text, err = json.Marshal(all); err != nil {
		return err
	}
	return os.WriteFile(index, text, 0o644)
}
