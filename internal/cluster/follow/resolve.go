package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
)

// patience is how long a registry may be silent, and limit how long all answers about an image may take.
const (
	patience = 20 * time.Second
	limit    = 2 * time.Minute
)

// resolve returns the image of the spec with the digest that its tag has now. It is for the architecture of each node.
func (f *follower) resolve(ctx context.Context, r *api.PoolRollout, secret []byte, pool *api.MachineConfigPool) (pinned imageref.Reference, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked, err := imageref.Parse(r.Spec.Image.Ref)
	if err != nil || !asked.Remote() {
		return asked, fault.New(fault.BadInput, "cannot use spec.image.ref %q: it is not HOST/NAME:TAG", r.Spec.Image.Ref)
	}
	architectures, err := f.architectures(ctx, pool)
	if err != nil {
		return asked, err
	}
	puller := &osimage.Puller{Root: f.Root, Patience: patience}
	if secret != nil {
		file, err := inMemory(secret)
		if err != nil {
			return asked, err
		}
		defer file.Close()
		puller.AuthFile = fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	}
	pinned = asked
	for _, puller.Architecture = range architectures {
		opened, err := puller.OpenPinned(ctx, asked, pinned.Digest())
		if err == nil {
			pinned, err = asked.Pinned(opened.Digest), errors.Join(opened.CheckRuns(), opened.Close())
		}
		if err != nil {
			return asked, named(err, puller.AuthFile, r.Spec.Image.PullSecretRef)
		}
	}
	return pinned, nil
}

// named returns the error with the name of the Secret, instead of the file from which the library reads it.
func named(err error, path string, of *api.SecretReference) error {
	if path == "" {
		return err
	}
	rename := func(text string) string { return strings.ReplaceAll(text, path, "the Secret "+of.Name) }
	return fault.New(fault.KindOf(err), "%s", rename(err.Error())).WithHint("%s", rename(fault.HintOf(err)))
}

// inMemory returns a file with the text, which is on no disk.
func inMemory(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("pull-secret", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the pull secret in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "pull-secret")
	if _, err := file.Write(text); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// secret reads a pull secret. It is the only Secret that the controllers read for users, so it must be of that kind.
func (f *follower) secret(ctx context.Context, of *api.SecretReference) ([]byte, error) {
	if of == nil {
		return nil, nil
	}
	s := &corev1.Secret{}
	if err := f.direct.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: of.Name}, s); err != nil {
		return nil, fault.New(fault.Refused, "cannot read the Secret %s/%s: %v", f.Namespace, of.Name, err).
			WithHint("create it, and name it in the Role pivot-fleet-pull-secret")
	}
	text := s.Data[corev1.DockerConfigJsonKey]
	if s.Type != corev1.SecretTypeDockerConfigJson || len(text) == 0 {
		return nil, fault.New(fault.BadInput, "cannot use the Secret %s/%s: it is not of the type %s", f.Namespace, of.Name, corev1.SecretTypeDockerConfigJson)
	}
	return text, nil
}

// architectures returns those of the nodes that belong to a pool; that of this program if it has none.
func (f *follower) architectures(ctx context.Context, pool *api.MachineConfigPool) ([]string, error) {
	var nodes corev1.NodeList
	var pools api.MachineConfigPoolList
	if err := errors.Join(f.cached.List(ctx, &nodes), f.cached.List(ctx, &pools)); err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(pools.Items, func(p api.MachineConfigPool) bool { return p.Name == pool.Name })
	all := append(others, *pool) // the cache may not have it yet
	found := map[string]bool{}
	for _, n := range nodes.Items {
		if slices.Contains(api.PoolsOf(n.Labels, all), pool.Name) && n.Status.NodeInfo.Architecture != "" {
			found[n.Status.NodeInfo.Architecture] = true
		}
	}
	if len(found) == 0 {
		return []string{runtime.GOARCH}, nil
	}
	return slices.Sorted(maps.Keys(found)), nil
}
