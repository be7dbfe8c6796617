package pinning

import "slices"

// allowedAnnotations returns the values that allowed_annotations of a workload may have: all
// that any CRI-O up to 1.37 accepts. CRI-O does not start with any other. Source: CRI-O's
// pkg/annotations.
func allowedAnnotations() []string {
	return []string{
		// names since 1.35
		"cgroup2-mount-hierarchy-rw.crio.io", "devices.crio.io", "disable-fips.crio.io", "link-logs.crio.io",
		"platform-runtime-path.crio.io", "pod-linux-overhead.crio.io", "pod-linux-resources.crio.io",
		"seccomp-notifier-action.crio.io", "seccomp-profile.crio.io", "shm-size.crio.io", "spoofed.crio.io",
		"try-skip-volume-selinux-label.crio.io", "umask.crio.io", "unified-cgroup.crio.io", "userns-mode.crio.io",
		// names before 1.35
		"io.kubernetes.cri-o.cgroup2-mount-hierarchy-rw", "io.kubernetes.cri-o.Devices", "io.kubernetes.cri-o.DisableFIPS",
		"io.kubernetes.cri-o.LinkLogs", "io.kubernetes.cri-o.PlatformRuntimePath", "io.kubernetes.cri-o.PodLinuxOverhead",
		"io.kubernetes.cri-o.PodLinuxResources", "io.kubernetes.cri-o.seccompNotifierAction", "seccomp-profile.kubernetes.cri-o.io",
		"io.kubernetes.cri-o.ShmSize", "io.kubernetes.cri-o.Spoofed", "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel",
		"io.kubernetes.cri-o.umask", "io.kubernetes.cri-o.UnifiedCgroup", "io.kubernetes.cri-o.userns-mode",
		// names that have not changed
		"cpu-c-states.crio.io", "cpu-freq-governor.crio.io", "cpu-load-balancing.crio.io", "cpu-quota.crio.io",
		"cpu-shared.crio.io", "irq-load-balancing.crio.io", "io.containers.trace-syscall", "org.opencontainers.image.stopSignal",
		// names of runtimes
		"io.kubernetes.cri.rdt-class", "bundle", "org.systemd.property.", "org.criu.config", "module.wasm.image/variant",
		"io.kubernetes.cri.container-type", "run.oci.",
	}
}

// allowed warns about allowed annotations that no known CRI-O accepts. It is not an error,
// because a newer CRI-O may accept them, and the machine must be able to update to it.
func (c *checker) allowed(p, name string, w workload) {
	known := allowedAnnotations()
	for _, annotation := range w.allowed {
		if !slices.Contains(known, annotation) {
			c.warn(p, "%s: allowed_annotations has %q, which no CRI-O up to 1.37 knows; a CRI-O that does not know it does not start", ofWorkload(name), annotation)
		}
	}
}
