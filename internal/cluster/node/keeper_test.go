package node_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/node"
)

// keeping is a node with its cluster and its host, at a time.
type keeping struct {
	*testing.T
	*node.Keeper
	node node.Resources
	now  time.Time

	types   []string
	problem string
	asked   int
	broken  error // of the host

	changes int
	down    error // of the API server
	events  []string
}

func newKeeping(t *testing.T, types ...string) *keeping {
	t.Helper()
	w := &keeping{T: t, types: types, now: time.Unix(1e9, 0), node: node.Resources{Name: "n1", CPUs: 4000, Capacity: cores(""), Allocatable: cores("")}}
	log := logrus.New()
	log.SetOutput(io.Discard)
	w.Keeper = &node.Keeper{Cluster: w, Runner: w, Now: func() time.Time { return w.now }, Log: log, Metrics: &node.Metrics{}}
	w.Keeper.Events = &node.Events{Cluster: w, Now: w.Keeper.Now}
	return w
}

// measures checks that the metrics have a line.
func (w *keeping) measures(line string) {
	w.Helper()
	var page strings.Builder
	if err := w.Metrics.Write(&page); err != nil || !strings.Contains(page.String(), "\n"+line+"\n") {
		w.Errorf("no %s (%v) in\n%s", line, err, &page)
	}
}

// Workloads implements node.WorkloadsRunner.
func (w *keeping) Workloads(context.Context) (hostpivot.Workloads, error) {
	w.asked++
	if w.broken != nil {
		return hostpivot.Workloads{}, w.broken
	}
	if w.problem != "" {
		return hostpivot.Workloads{Problem: w.problem}, nil
	}
	return hostpivot.Workloads{Types: slices.Clone(w.types)}, nil
}

// Advertise implements node.Advertiser.
func (w *keeping) Advertise(_ context.Context, p node.ResourcesPatch) (node.Resources, error) {
	w.changes++
	if w.down != nil {
		return node.Resources{}, w.down
	}
	w.node = applied(w.node, p)
	return w.node, nil
}

// Record implements node.Advertiser.
func (w *keeping) Record(_ context.Context, of node.Node, e node.Event) error {
	if of.Name != "n1" {
		w.Errorf("an event about %q", of.Name)
	}
	w.events = append(w.events, e.Reason+": "+e.Message)
	return nil
}

// pass lets time pass, in which the Keeper does what is due.
func (w *keeping) pass(d time.Duration) {
	w.Helper()
	for end := w.now.Add(d); ; {
		after, wait := w.Step(w.Context(), w.node)
		if !after.Equal(w.node) {
			w.Errorf("it returns %+v, and the node is %+v", after, w.node)
		}
		if wait <= 0 {
			w.Fatalf("it waits %v", wait)
		}
		if w.now = w.now.Add(wait); w.now.After(end) {
			w.now = end
			return
		}
	}
}

// kubelet is what kubelet says of the resources.
func (w *keeping) kubelet(amounts string) {
	w.node.Capacity, w.node.Allocatable = cores(amounts), cores(amounts)
}

// have requires what the node has.
func (w *keeping) have(amounts string) {
	w.Helper()
	if !w.node.Equal(node.Resources{Name: "n1", Config: w.node.Config, CPUs: w.node.CPUs, Advertised: w.node.Advertised, Capacity: cores(amounts), Allocatable: cores(amounts)}) {
		w.Errorf("the node is %+v, want %s", w.node, amounts)
	}
}

// TestKeeper is the life of a node's resources.
func TestKeeper(t *testing.T) {
	w := newKeeping(t, "management")
	w.pass(time.Minute)
	w.have("management=4000")
	w.pass(time.Hour)
	if w.changes != 1 || w.asked > 8 {
		t.Errorf("%d changes, %d questions", w.changes, w.asked)
	}
	w.kubelet("management=0") // it was restarted
	w.pass(time.Second)
	w.have("management=4000")
	w.kubelet("")
	w.pass(time.Minute)
	w.have("management=4000")

	w.types, w.node.Config = []string{"management", "other"}, "b" // a MachineConfig was carried out
	w.pass(time.Minute)
	w.have("management=4000 other=4000")
	w.types = []string{"other"} // by hand
	w.pass(11 * time.Minute)
	w.have("other=4000")
	w.types, w.node.Config = nil, "c"
	w.pass(time.Minute)
	w.have("")
	if w.node.Advertised != nil {
		t.Errorf("%q is left", w.node.Advertised)
	}
	if last := w.events[len(w.events)-1]; last != api.EventWorkloadsAdvertised+": the node advertises no longer other.workload.openshift.io/cores" {
		t.Errorf("the last event is %s", last)
	}
}

// TestKeeperUndone: something that undoes each change is not answered more and more often, and is forgotten later.
func TestKeeperUndone(t *testing.T) {
	w := newKeeping(t, "management")
	for range 3600 {
		w.kubelet("management=0")
		w.pass(time.Second)
	}
	if w.changes < 10 || w.changes > 20 {
		t.Errorf("%d changes in an hour", w.changes)
	}
	w.pass(20 * time.Minute)
	before := w.changes
	w.kubelet("")
	w.pass(time.Second)
	if w.have("management=4000"); w.changes != before+1 {
		t.Errorf("%d changes after it has ended", w.changes-before)
	}
	if len(w.events) != 2 { // one an hour, as long as a cluster keeps it
		t.Errorf("events %q", w.events)
	}
}

// TestKeeperUnknown: while the types of the host are not known, the node has the resources of the last known ones.
func TestKeeperUnknown(t *testing.T) {
	w := newKeeping(t)
	w.problem = "cannot use the file; correct it"
	w.node.Advertised = []string{"management"} // by an agent before
	w.kubelet("management=4000")
	w.pass(10 * time.Minute)
	if w.have("management=4000"); w.changes > 0 || w.asked < 5 {
		t.Errorf("%d changes, %d questions", w.changes, w.asked)
	}
	if want := []string{api.EventWorkloadsUnknown + ": cannot use the file; correct it"}; !slices.Equal(w.events, want) {
		t.Errorf("events %q", w.events)
	}
	w.measures("pivot_agent_workloads_unknown 1")
	w.problem, w.types = "", []string{"management"}
	w.pass(2 * time.Minute)
	w.measures("pivot_agent_workloads_unknown 0")
	w.broken = errors.New("systemd does not answer")
	w.kubelet("management=0")
	w.pass(time.Hour)
	w.have("management=4000")
}

// TestKeeperDown: what fails is tried again, and not all the time.
func TestKeeperDown(t *testing.T) {
	w := newKeeping(t, "management")
	w.down = errors.New("no answer")
	w.pass(time.Hour)
	if w.changes < 10 || w.changes > 20 || len(w.events) > 0 {
		t.Errorf("%d tries in an hour, events %q", w.changes, w.events)
	}
	w.down = nil
	w.pass(6 * time.Minute)
	w.have("management=4000")
}

// TestKeeperClock: a clock that is set back delays nothing.
func TestKeeperClock(t *testing.T) {
	w := newKeeping(t, "management")
	w.pass(time.Minute)
	w.now = w.now.AddDate(-1, 0, 0)
	w.types = []string{"management", "other"}
	w.pass(time.Minute)
	w.have("management=4000 other=4000")
}

// TestKeeperRun: the Keeper ends with its context, also if it has never seen the node.
func TestKeeperRun(t *testing.T) {
	w := newKeeping(t, "management")
	ctx, cancel := context.WithCancel(t.Context())
	nodes, ended := make(chan node.Resources, 1), make(chan struct{})
	go func() { w.Keeper.Run(ctx, nodes); close(ended) }()
	cancel()
	<-ended
	ctx, cancel = context.WithCancel(t.Context())
	ended = make(chan struct{})
	recorded := recorder{w, make(chan string, 1)}
	w.Keeper.Cluster, w.Keeper.Events = recorded, &node.Events{Cluster: recorded, Now: w.Keeper.Now}
	nodes <- w.node
	go func() { w.Keeper.Run(ctx, nodes); close(ended) }()
	if e := <-recorded.events; !strings.Contains(e, "management") {
		t.Errorf("the event %s", e)
	}
	cancel()
	<-ended
	w.have("management=4000")
}

// recorder sends the events of a Keeper.
type recorder struct {
	*keeping
	events chan string
}

func (r recorder) Record(_ context.Context, _ node.Node, e node.Event) error {
	r.events <- e.Message
	return nil
}
