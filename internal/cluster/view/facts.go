package view

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
)

// Facts are what the API server says about a fleet, and what it does not say.
type Facts struct {
	Now      time.Time
	Pools    []api.MachineConfigPool
	Rollouts []api.PoolRollout
	Nodes    []Node
	Systems  []api.NodeSystem
	Events   []Event // about nodes
	Missing  []string
}

// Node is what is read of a Node.
type Node struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		NodeInfo   struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// ready reports whether kubelet says that the node is.
func (n Node) ready() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// Event is what is read of an Event.
type Event struct {
	InvolvedObject struct {
		Name string `json:"name"`
	} `json:"involvedObject"`
	Reason         string      `json:"reason"`
	Message        string      `json:"message"`
	FirstTimestamp metav1.Time `json:"firstTimestamp"`
	LastTimestamp  metav1.Time `json:"lastTimestamp"`
}

// Paths of what is read.
const (
	operatorPath = "/apis/" + api.OperatorGroup + "/" + api.OperatorVersion + "/"
	ownPath      = "/apis/" + api.Group + "/" + api.Version + "/"

	poolsPath    = operatorPath + "machineconfigpools"
	configsPath  = operatorPath + api.MachineConfigs
	ctrcfgsPath  = operatorPath + "containerruntimeconfigs"
	mcnodesPath  = operatorPath + api.MachineConfigNodes
	rolloutsPath = ownPath + "poolrollouts"
	systemsPath  = ownPath + api.NodeSystems
	nodesPath    = "/api/v1/nodes"
	eventsPath   = "/api/v1/namespaces/default/events"
)

// aboutNodes selects events about nodes.
const aboutNodes = "involvedObject.kind=Node"

// Observe reads what Judge needs. It returns an error if the API server does not answer, or lets the reader see
// neither pools nor nodes.
func Observe(ctx context.Context, c *Client, now time.Time) (Facts, error) {
	f, r, err := observeNodes(ctx, c, now)
	if err != nil {
		return f, err
	}
	observe(&r, "rollouts (PoolRollout)", rolloutsPath, "", &f.Rollouts)
	observe(&r, "the state of systems (NodeSystem)", systemsPath, "", &f.Systems)
	observe(&r, "events about nodes", eventsPath, aboutNodes, &f.Events)
	f.Missing = r.missing
	return f, r.stopped
}

// ObserveNodes is Observe for pools and nodes only, which is what a plan needs.
func ObserveNodes(ctx context.Context, c *Client, now time.Time) (Facts, error) {
	f, r, err := observeNodes(ctx, c, now)
	f.Missing = r.missing
	return f, err
}

func observeNodes(ctx context.Context, c *Client, now time.Time) (Facts, reader, error) {
	f := Facts{Now: now}
	r := reader{ctx: ctx, client: c}
	observe(&r, "pools", poolsPath, "", &f.Pools)
	observe(&r, "nodes", nodesPath, "", &f.Nodes)
	if r.stopped == nil && len(r.failures) == 2 {
		return f, r, r.failures[0]
	}
	return f, r, r.stopped
}

// reader reads lists until the API server does not answer.
type reader struct {
	ctx      context.Context
	client   *Client
	missing  []string
	failures []error
	stopped  error
}

// observe reads a list; what names it in words.
func observe[T any](r *reader, what, path, fields string, into *[]T) {
	if r.stopped != nil {
		return
	}
	found, err := list[T](r.ctx, r.client, path, fields)
	switch {
	case err == nil:
		*into = found
		return
	case errors.Is(err, errAbsent):
		r.missing = append(r.missing, what+": the cluster does not have this kind of objects")
	case fault.KindOf(err) == fault.Refused:
		r.missing = append(r.missing, what+": "+err.Error())
	default:
		r.stopped = err
	}
	r.failures = append(r.failures, err)
}
