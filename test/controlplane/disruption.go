package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/disruption"
)

// disruptionMain runs the controller that computes the status of PodDisruptionBudgets, from which the
// API server decides about evictions. Its only argument is a kubeconfig. It is run by itself, because
// kube-controller-manager takes a third more to compile.
func disruptionMain(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: controlplane disruption KUBECONFIG")
		return 64
	}
	if err := runDisruption(ctx, args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runDisruption(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	discovered := memory.NewMemCacheClient(client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(discovered)
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return fmt.Errorf("cannot make a client of scales: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	controller := disruption.NewDisruptionController(ctx,
		shared.Core().V1().Pods(), shared.Policy().V1().PodDisruptionBudgets(), shared.Core().V1().ReplicationControllers(),
		shared.Apps().V1().ReplicaSets(), shared.Apps().V1().Deployments(), shared.Apps().V1().StatefulSets(),
		client, mapper, scales, client.Discovery())
	shared.Start(ctx.Done())
	controller.Run(ctx, 1) // one worker is enough for a few budgets
	return nil
}
