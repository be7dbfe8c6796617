package render_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
)

// runtimeConfig returns a ContainerRuntimeConfig for the pool of a name.
func runtimeConfig(name, pool, settings string) string {
	return fmt.Sprintf(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"ContainerRuntimeConfig","metadata":{"name":%q},
"spec":{"machineConfigPoolSelector":{"matchLabels":{"pools.operator.machineconfiguration.openshift.io/%s":""}},"containerRuntimeConfig":%s}}`, name, pool, settings)
}

// says waits until the status of a ContainerRuntimeConfig is of its generation, and has a condition with parts.
func (w *world) says(name, kind string, parts ...string) *api.ContainerRuntimeConfig {
	w.Helper()
	o := &api.ContainerRuntimeConfig{}
	w.eventually(fmt.Sprintf("%s is %s %q", name, kind, parts), func(ctx context.Context) (bool, string) {
		if err := w.admin.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
			return false, err.Error()
		}
		s := o.Status
		return len(s.Conditions) == 1 && s.Conditions[0].Type == kind && s.ObservedGeneration == o.Generation && has(s.Conditions[0].Message, parts), fmt.Sprintf("%+v", s)
	})
	return o
}

// generated waits until there are exactly these generated MachineConfigs.
func (w *world) generated(names ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("the generated MachineConfigs are %q", names), func(context.Context) (bool, string) {
		now := slices.DeleteFunc(w.names("99-"), func(name string) bool { return !strings.Contains(name, "-generated-") })
		return slices.Equal(now, names), strings.Join(now, " ")
	})
}

func runtimeConfigs(w *world) {
	const first, second = "99-worker-generated-containerruntime", "99-worker-generated-containerruntime-1"
	before := w.renders("worker", "")
	w.apply(runtimeConfig("pids", "worker", `{"pidsLimit":2048}`))
	w.says("pids", api.ConfigSuccess)
	w.generated(first)
	with := w.renders("worker", before)
	w.apply(runtimeConfig("size", "worker", `{"overlaySize":"8G"}`))
	w.says("size", api.ConfigFailure, "storage.conf")
	w.apply(machineConfig("worker", "40-storage", `{"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/containers/storage.conf","contents":{"source":"data:,%5Bstorage%5D%0Adriver%20%3D%20%22overlay%22%0A"}}]}}}`))
	if o := w.says("size", api.ConfigSuccess); o.Annotations["machineconfiguration.openshift.io/mc-name-suffix"] != "1" || len(o.Finalizers) != 1 {
		w.Errorf("%+v", o.ObjectMeta)
	}
	w.generated(first, second)

	w.apply(runtimeConfig("pids", "worker", `{"pidsLimit":1}`))
	w.says("pids", api.ConfigFailure, "invalid PidsLimit 1")
	w.generated(first, second)
	w.apply(runtimeConfig("pids", "worker", `{"pidsLimit":4000}`))
	w.says("pids", api.ConfigSuccess)

	w.apply(runtimeConfig("size", "nowhere", `{"logLevel":"debug"}`))
	w.says("size", api.ConfigFailure, "could not find any MachineConfigPool set for ContainerRuntimeConfig size")
	w.generated(first)
	w.apply(runtimeConfig("size", "infra", `{"logLevel":"debug"}`))
	w.says("size", api.ConfigSuccess)
	w.generated("99-infra-generated-containerruntime-1", first)

	w.remove(&api.ContainerRuntimeConfig{}, "size")
	w.generated(first)
	w.remove(&api.ContainerRuntimeConfig{}, "pids")
	w.generated()
	w.remove(&api.MachineConfig{}, "40-storage")
	w.eventually("the pool has its default again", func(ctx context.Context) (bool, string) {
		p := &api.MachineConfigPool{}
		err := w.admin.Get(ctx, client.ObjectKey{Name: "worker"}, p)
		gone := w.admin.Get(ctx, client.ObjectKey{Name: "pids"}, &api.ContainerRuntimeConfig{})
		return err == nil && p.Spec.Configuration.Name == before && apierrors.IsNotFound(gone), p.Spec.Configuration.Name + " " + with
	})

	w.apply(machineConfig("worker", first, `{"kernelArguments":["mine"]}`), runtimeConfig("pids", "worker", `{"pidsLimit":100}`))
	w.says("pids", api.ConfigFailure, first, "not overwritten")
	w.remove(&api.MachineConfig{}, first)
	w.says("pids", api.ConfigSuccess)
	w.generated(first)
	w.remove(&api.MachineConfig{}, first) // in the middle
	w.generated(first)
	w.remove(&api.ContainerRuntimeConfig{}, "pids")
	w.generated()

	w.pool("picky", "worker") // which does not select what is generated for it
	w.apply(runtimeConfig("picky", "picky", `{"pidsLimit":2048}`))
	w.says("picky", api.ConfigFailure, "the pools picky do not select what is generated for them")
	w.pool("picky", "worker", "picky")
	w.says("picky", api.ConfigSuccess)
	w.remove(&api.ContainerRuntimeConfig{}, "picky")
	w.generated()
}
