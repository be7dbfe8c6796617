// Package api has the documents of a cluster, as the node agent and the controllers read and write them. These are the
// annotations, the events, the conditions and the objects. The schemas of the objects are in deploy/base/crds. A type has
// the fields that pivot uses. So an update must be a patch, or else it would remove the other ones.
//
// Names and values below the prefix of the machine-config operator are that operator's
// (openshift/machine-config-operator, pkg/daemon/constants/constants.go), so that its controllers, and
// people's scripts, understand a node that pivot maintains.
package api

import (
	"strings"
	"time"
)

// operatorPrefix is the prefix of the machine-config operator's annotations.
const operatorPrefix = "machineconfiguration.openshift.io/"

// The annotations of a Node that the machine-config operator defines, with who writes them.
const (
	// DesiredConfig names the MachineConfig that the node should have. A controller writes it. A node
	// without it is not maintained by anybody.
	DesiredConfig = operatorPrefix + "desiredConfig"
	// CurrentConfig names the MachineConfig that the node has. The agent writes it with StateDone.
	CurrentConfig = operatorPrefix + "currentConfig"
	// DesiredImage names an image that replaces the one of the MachineConfig. A controller writes it.
	DesiredImage = operatorPrefix + "desiredImage"
	// CurrentImage is the image that the node has instead of that of its MachineConfig. The operator's
	// daemon writes it.
	CurrentImage = operatorPrefix + "currentImage"
	// StateOfNode is one of the states below. The agent writes it.
	StateOfNode = operatorPrefix + "state"
	// Reason is why the state is StateDegraded or StateUnreconcilable, or what a node that is
	// StateWorking waits for; empty when it is StateDone. The agent writes it.
	Reason = operatorPrefix + "reason"
	// DesiredDrain is the drain or the end of a drain that the agent asks for: DrainFor or UncordonFor.
	DesiredDrain = operatorPrefix + "desiredDrain"
	// LastAppliedDrain is the DesiredDrain that is complete. Whoever drains writes it: a controller, or
	// the agent itself.
	LastAppliedDrain = operatorPrefix + "lastAppliedDrain"
	// PostConfigAction is ActionReboot from before a reboot until after it, else empty. The agent
	// writes it.
	PostConfigAction = operatorPrefix + "post-config-action"
	// Topology is TopologySingle on the only node of a control plane, which is never drained. A
	// controller writes it.
	Topology = operatorPrefix + "controlPlaneTopology"
)

// The values of those annotations.
const (
	StateDone           = "Done"           // CurrentConfig is DesiredConfig, and proven
	StateWorking        = "Working"        // the change is being made
	StateDegraded       = "Degraded"       // it failed, or the machine differs from its configuration
	StateUnreconcilable = "Unreconcilable" // the MachineConfig is invalid, or needs an installation

	ActionReboot   = "Rebooting"
	TopologySingle = "SingleReplica"

	drainVerb, uncordonVerb = "drain-", "uncordon-"
)

// DrainFor returns the value of DesiredDrain that asks for a drain before a MachineConfig is applied.
func DrainFor(config string) string { return drainVerb + config }

// UncordonFor returns the value of DesiredDrain that asks for the end of the drain.
func UncordonFor(config string) string { return uncordonVerb + config }

// IsDrain reports whether a value of DesiredDrain asks for a drain.
func IsDrain(value string) bool { return strings.HasPrefix(value, drainVerb) }

// Prefix is the prefix of pivot's own annotations, and the group of its own objects.
const Prefix = "machine-pivot.io"

// Try is the annotation of a Node with the time that each of its new systems has for a trial, such as 10m; then the old
// one is booted again. 0s is no trial. A controller or an administrator writes it. Without it, the agent's own setting
// holds.
const Try = Prefix + "/try"

// ForceDrainAfter is the annotation of a Node with the time after which its drain deletes the pods that a budget keeps from
// being evicted, such as 30m. The controllers write it, for a pool that wants that. Without it, no pod is deleted.
const ForceDrainAfter = Prefix + "/force-drain-after"

// Download is the annotation of a Node with the MachineConfig that it should download before it is desired. A
// controller or an administrator writes it, and removes it: the status of the NodeSystem has the result.
const Download = Prefix + "/download"

// The annotations of a Node that only the agent writes.
const (
	// CordonedFor exists while the node is cordoned because of the agent, and names the MachineConfig
	// for which it was. A node that an administrator has cordoned does not have it, and is not
	// uncordoned.
	CordonedFor = Prefix + "/cordoned-for"
	// DrainStarted is when the drain was asked for, in RFC 3339.
	DrainStarted = Prefix + "/drain-started"
	// DrainBlocked exists while the rehearsals of a drain fail: since when, in RFC 3339, and the MachineConfig that
	// needs the drain, with a space between them.
	DrainBlocked = Prefix + "/drain-blocked"
	// FailedConfig names the MachineConfig that has failed on this node, and is not tried at present.
	// Whoever removes it has it tried again.
	FailedConfig = Prefix + "/failed-config"
	// Attempt is the attempt to boot into a MachineConfig after a boot into the old system. Its fields, with spaces
	// between them, are its number, the ID of the start in which it began, and the MachineConfig. The ID is the boot ID,
	// with +N after the Nth soft reboot.
	Attempt = Prefix + "/attempt"
	// Retried exists while the node tries again what has failed, because somebody has removed FailedConfig. Its fields,
	// with spaces between them, are the IDs of the start in which that was and of the last run then ("-": none), and the
	// MachineConfig. What had failed by then is not reported again.
	Retried = Prefix + "/retried"
	// Advertised lists, separated by commas, the workload types with a resource that the node has because of the agent.
	// Without it, a resource is kubelet's own (OpenShift's advertises it, too), and is not removed.
	Advertised = Prefix + "/advertised-workloads"
	// CannotStart is the Cannot of the last image that the node could not start. Whoever removes it has the node judge the
	// image again.
	CannotStart = Prefix + "/cannot-start"
	// NeedsReplacement names the MachineConfig that only a new installation can give to this node, if
	// the agent was told to ask for it. It is for the program that replaces machines.
	NeedsReplacement = Prefix + "/needs-replacement"
)

// BlockedSince returns the value of DrainBlocked for the drain that a MachineConfig needs.
func BlockedSince(at time.Time, config string) string {
	return at.UTC().Format(time.RFC3339) + " " + config
}

// BlockedFor returns the MachineConfig in a value of DrainBlocked.
func BlockedFor(value string) string {
	_, config, _ := strings.Cut(value, " ")
	return config
}

// OfAgent returns the annotations of a Node that only the agent writes, and that mean nothing without it. Advertised is
// not one of them: it names the owner of the resources, which stay.
func OfAgent() []string {
	return []string{CordonedFor, DrainStarted, DrainBlocked, FailedConfig, Attempt, Retried, CannotStart, NeedsReplacement}
}

// AgentLabel is the label of a Node that has no agent if its value is "off". An administrator writes it.
const AgentLabel = Prefix + "/agent"

// IsControlPlane reports whether labels are those of a node of the control plane.
func IsControlPlane(labels map[string]string) bool {
	_, new := labels["node-role.kubernetes.io/control-plane"]
	_, old := labels["node-role.kubernetes.io/master"]
	return new || old
}
