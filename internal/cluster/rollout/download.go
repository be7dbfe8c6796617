package rollout

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
)

// Downloads before the turn of a node, of which a limited number continues at a time. A place in that limit is an
// entry of the PoolRollout, taken and given back by the rules of a slot: see Controller.carryOut.

const (
	// answersWithin is after what time a node that does not say what became of its download gives its place back.
	answersWithin = time.Hour
	// askAgainAfter is after what time a node is asked again after a failed download.
	askAgainAfter = time.Hour
	// mostFailures is how many failures are remembered with their reason. While there are so many, nobody else is
	// asked: what all of these cannot download, others cannot, either.
	mostFailures = 20
)

// download ends the downloads that are done, have failed or are not wanted any more, and asks further nodes, in
// the order of their turn.
func (v *view) download(nodes map[string]*Node) {
	v.status.Downloads = nil
	loading, failed := 0, 0
	for _, d := range v.pool.Rollout.Downloads {
		if d, keep := v.continued(d, nodes[d.Name]); keep {
			v.status.Downloads = append(v.status.Downloads, d)
			if d.Failure == "" {
				loading++
			} else if failed++; failed > mostFailures { // the status must not be too large to be written
				v.status.Downloads[len(v.status.Downloads)-1].Failure = "see status.download of its NodeSystem"
			}
		}
	}
	for i := range v.members {
		if m := &v.members[i]; loading < v.loads && failed < mostFailures && v.mayDownload(m) {
			v.status.Downloads = append(v.status.Downloads, api.NodeDownload{Name: m.Name, Since: v.second()})
			v.asked = append(v.asked, *m.Node)
			loading++
		}
	}
}

// continued returns what becomes of a download, and whether it is still to be known. n is nil if the node is gone.
func (v *view) continued(d api.NodeDownload, n *Node) (api.NodeDownload, bool) {
	m := v.member(d.Name)
	if m != nil {
		n = m.Node
	}
	if v.isFuture(d.Since) {
		d.Since = v.second()
	}
	changed := v.pool.Rollout.Target != v.target
	switch {
	case n == nil:
		v.isGone(d.Name)
		return d, false
	case n.Refused != "": // it cannot be taken back now
		v.kept = append(v.kept, n.Name+", which cannot be changed: "+n.Refused)
		return d, true
	case d.Failure != "":
		again := d.Since.Add(askAgainAfter)
		v.remindAt(again)
		return d, m != nil && !changed && !m.refuses(v.target) && v.wantsDownloads() && m.desired() != v.target && v.now.Before(again)
	case v.isGiven(n.Name): // which takes the request back
		return d, true
	case m == nil || !v.wantsDownloads() || m.hasBegun() || m.desired() == v.target || m.has(v.target) || m.refuses(v.target):
		v.end(n)
		return d, false
	case v.isReleased(n.Name): // with its slot
		return d, false
	}
	if changed {
		d.Since = v.second()
	}
	if d.Failure = m.downloadFailure(v.target, d.Since.Time, v.now); d.Failure != "" {
		v.end(n)
		d.Since, d.Failure = v.second(), bounded(d.Failure)
		return d, true
	}
	v.remindAt(d.Since.Add(answersWithin))
	if n.asked() != v.target {
		v.asked = append(v.asked, *n)
	}
	return d, true
}

// wantsDownloads reports whether the target is worth a download: it does not fail, and not all nodes had it.
func (v *view) wantsDownloads() bool {
	return v.loads > 0 && v.target != "" && !v.isStopped() && !v.isReturning() && !v.pool.Deleted
}

// mayDownload reports whether a node may be asked for a download. One that is cordoned may; one that is not taken in has
// no agent that answers.
func (v *view) mayDownload(m *member) bool {
	if m.taken || m.elsewhere != "" || m.Refused != "" || m.desired() == "" || m.desired() == v.target || m.hasBegun() || m.Problem != "" || m.System == nil || m.has(v.target) || m.refuses(v.target) {
		return false
	}
	known := slices.ContainsFunc(v.status.Downloads, func(d api.NodeDownload) bool { return d.Name == m.Name })
	return v.wantsDownloads() && !known && !v.isReleased(m.Name)
}

// has reports whether a node says that it has downloaded a configuration.
func (n *Node) has(config string) bool {
	return n.System != nil && n.System.Download != nil && n.System.Download.Config == config && n.System.Download.Failure == ""
}

// downloadFailure returns why the download of a configuration that was asked for at a time has failed; "" if it
// has not. What the node said about an earlier request does not count; its clock may be another one.
func (n *Node) downloadFailure(config string, since, now time.Time) string {
	if s := n.System; s != nil && s.Download != nil && s.Download.Config == config && s.Download.Failure != "" && s.Download.FailedAt.After(since.Add(-askAgainAfter/2)) {
		return s.Download.Failure
	}
	if !now.Before(since.Add(answersWithin)) {
		return fmt.Sprintf("no answer since %s", since.UTC().Format(time.RFC3339))
	}
	return ""
}

// end takes the request back, before the place is given to another node.
func (v *view) end(n *Node) {
	if !v.isReleased(n.Name) {
		v.released = append(v.released, *n)
	}
}

func (v *view) isGone(name string) {
	if !slices.Contains(v.gone, name) {
		v.gone = append(v.gone, name)
	}
}

func (v *view) isReleased(name string) bool { return named(v.released, name) }
func (v *view) isGiven(name string) bool {
	return slices.ContainsFunc(v.given, func(c Change) bool { return c.Name == name })
}

func named(nodes []Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name })
}

func (v *view) member(name string) *member {
	i := slices.IndexFunc(v.members, func(m member) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &v.members[i]
}

func (v *view) second() v1.Time { return v1.Time{Time: v.now.UTC().Truncate(time.Second)} }

// withDownloads adds to what a rollout waits for how far the downloads are.
func (v *view) withDownloads(waiting string) string {
	if len(v.kept) > 0 && waiting != "" {
		waiting += "; waits for the download of " + some(v.kept)
	}
	if waiting == "" || v.loads == 0 {
		return waiting
	}
	done, loading := 0, 0
	for i := range v.members {
		if m := &v.members[i]; m.desired() != v.target && m.has(v.target) {
			done++
		}
	}
	var failed []string
	for _, d := range v.status.Downloads {
		if d.Failure == "" {
			loading++
		} else {
			failed = append(failed, d.Name+": "+d.Failure)
		}
	}
	if done+loading > 0 {
		waiting += fmt.Sprintf("; downloaded before their turn: %d, downloading: %d", done, loading)
	}
	if len(failed) > 0 {
		waiting += "; cannot download " + v.target + ": " + some(failed)
	}
	return waiting
}
