package containerruntime

import (
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// Limits in a cluster.
const (
	minPidsLimit = 20
	minLogSize   = 8192 // bytes; this size itself is refused, though CRI-O accepts it
	// kubeletPidsLimit is podPidsLimit in a cluster's kubelet configuration. It limits the pod's
	// cgroup, whatever CRI-O allows for the containers.
	kubeletPidsLimit = 4096
)

// logLevels returns the log levels of CRI-O's logging library.
func logLevels() []string {
	return []string{"error", "fatal", "panic", "warn", "info", "debug", "trace"}
}

// judge reports what a cluster refuses, in the cluster's words, and warns about what it accepts but
// does not apply as written. n is the node of the settings.
func (s Settings) judge(n document.Node) {
	if p := s.PidsLimit; p != nil && *p != 0 && *p < minPidsLimit {
		n.Get("pidsLimit").Fail("invalid PidsLimit %d: it is at least %d, or 0 for no limit", *p, minPidsLimit)
	} else if p != nil && (*p == 0 || *p > kubeletPidsLimit) {
		n.Get("pidsLimit").Warn("kubelet limits each pod to its podPidsLimit all the same, which is %d in a cluster unless a KubeletConfig raises it", kubeletPidsLimit)
	}
	if p := s.PodPidsLimit; p != nil {
		if *p < -1 || *p > 0 && *p < minPidsLimit {
			n.Get("podPidsLimit").Fail("invalid podPidsLimit %d: it is at least %d, or 0 or -1 for no limit", *p, minPidsLimit)
		}
		n.Get("podPidsLimit").Warn("kubelet reads it only with --config-dir=%s", strings.TrimSuffix(kubeletDropIns, "/"))
	}
	if q := s.LogSizeMax; q != nil && q.Sign() > 0 && q.Value() <= minLogSize {
		n.Get("logSizeMax").Fail("invalid LogSizeMax %q, cannot be less than 8kB: it is more than %d bytes, or negative for no limit", q, minLogSize)
	}
	if q := s.OverlaySize; q != nil && q.Sign() < 0 {
		n.Get("overlaySize").Fail("invalid overlaySize %q, cannot be less than 0", q)
	}
	if s.LogLevel != "" && !slices.Contains(logLevels(), s.LogLevel) {
		n.Get("logLevel").Fail("invalid LogLevel %s, must be one of %s", problem.Quoted(s.LogLevel), strings.Join(logLevels(), ", "))
	}
	if !slices.Contains([]string{"", "crun", "runc"}, s.DefaultRuntime) {
		n.Get("defaultRuntime").Fail("invalid DefaultRuntime %s, must be one of crun, runc", problem.Quoted(s.DefaultRuntime))
	}
	if n.IsEmpty() {
		n.Warn("it sets nothing")
	}
}
