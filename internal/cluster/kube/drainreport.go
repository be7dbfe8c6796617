package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
)

// report is what stands in the way of a drain: pods, by why each does not go. It has no times and counts
// that change all the time, since it becomes an event whenever it changes.
type report map[string][]string

func (r report) add(why string, p *corev1.Pod) { r[why] = append(r[why], nameOf(p)) }

// err returns the report as an error of a kind; nil if nothing stands in the way.
func (r report) err(kind fault.Kind) error {
	const mostReasons, mostPods = 8, 5
	if len(r) == 0 {
		return nil
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(r)) {
		slices.Sort(r[why])
		parts = append(parts, node.First(r[why], mostPods, ", ")+": "+why)
	}
	return fault.New(kind, "%s", node.First(parts, mostReasons, "; "))
}

// nameOf returns the namespace and the name of a pod.
func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// ends is the word for a pod within its grace period.
const ends = "still ending"

// stuck is how long after its grace period a pod counts as one that does not end.
const stuck = time.Minute

// late returns how long a pod should have been gone: the API server has added its grace period to the time
// of its deletion. It is negative before. That is a time of another clock, so what the drainer has seen itself counts more.
func (d *Drainer) late(p *corev1.Pod) time.Duration {
	now, seen, grace := d.Cluster.Now(), d.seen[p.UID], time.Duration(0)
	if p.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
	}
	late := now.Sub(p.DeletionTimestamp.Time)
	if !seen.deleted.IsZero() {
		late = max(late, now.Sub(seen.deleted)-grace)
	}
	if !seen.alive.IsZero() {
		late = min(late, now.Sub(seen.alive)-grace)
	}
	return late
}

// lost returns for how long a drainer has seen a pod that does not serve on a node that does not, either.
func (d *Drainer) lost(p *corev1.Pod) time.Duration {
	if since := d.seen[p.UID].lost; !since.IsZero() {
		return d.Cluster.Now().Sub(since)
	}
	return 0
}

// sighting is when a drainer has seen a pod, by its own clock.
type sighting struct {
	alive   time.Time // the last time not deleted
	deleted time.Time // the first time
	lost    time.Time // since when it does not serve on a node that does not, either
}

// sight records that the drainer sees pods, and forgets those that are gone.
func (d *Drainer) sight(pods []corev1.Pod, on node.Node) {
	now, before := d.Cluster.Now(), d.seen
	d.seen = make(map[types.UID]sighting, len(pods))
	for i := range pods {
		s := before[pods[i].UID]
		if pods[i].DeletionTimestamp == nil {
			s.alive = now
		} else if s.deleted.IsZero() {
			s.deleted = now
		}
		if on.Ready || isReady(&pods[i]) {
			s.lost = time.Time{}
		} else if s.lost.IsZero() {
			s.lost = now
		}
		d.seen[pods[i].UID] = s
	}
}

// whyNotEnded returns why a pod that was deleted is still there, as far as that can be known.
func (d *Drainer) whyNotEnded(p *corev1.Pod) string {
	late := d.late(p)
	if late < stuck {
		return ends
	}
	cause := "kubelet does not report the end"
	if len(p.Finalizers) > 0 {
		cause += ", or nobody removes the finalizers " + node.First(p.Finalizers, 3, ", ")
	}
	return fmt.Sprintf("not ended, although the grace period was over more than %s ago: %s", coarse(late), cause)
}

// coarse returns the largest of some round times that is not longer than a time, so that the text changes rarely.
func coarse(t time.Duration) string {
	for _, round := range []struct {
		time time.Duration
		name string
	}{{24 * time.Hour, "a day"}, {6 * time.Hour, "6 hours"}, {time.Hour, "an hour"}, {10 * time.Minute, "10 minutes"}, {5 * time.Minute, "5 minutes"}} {
		if t >= round.time {
			return round.name
		}
	}
	return "a minute"
}
