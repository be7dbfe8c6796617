package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/guestfleet"
	"machine-pivot/test/worlds/testenv"
)

// director has the acts played, and shows them.
type director struct {
	testenv.T
	world  *guestfleet.World
	to     io.Writer
	start  time.Time
	images images

	shown  string    // the last status, without what differs all the time
	looked time.Time // when that was
	had    string    // the MachineConfig that was rolled out last
	boots  int       // of each node, so far
}

// Logf implements stage.T. What is waited for, and how long, is shown by the cluster's status.
func (d *director) Logf(string, ...any) {}

func heading(w io.Writer, text string) { fmt.Fprintf(w, "\n=== %s\n", text) }

// play shows an act until all nodes have what it is for, and checks it.
func (d *director) play(a act) {
	heading(d.to, a.title)
	if a.do != nil {
		a.do(d)
	}
	ended := false
	d.world.Until(d, "the act ends", func() bool {
		d.show()
		ended = d.hasEnded(a.ends)
		return ended || d.failed()
	})
	d.showNow()
	if a.ends != waits {
		d.had = d.world.ReadPool(d.Context()).Spec.Configuration.Name
	}
	d.boots += a.boots
	claims := &bootlab.Claims{To: d.to}
	a.claim(claims, ended, len(d.world.MostOut()))
	for _, n := range d.world.Nodes {
		saw := d.see(n)
		saw.boots -= d.boots - a.boots
		a.claimOf(claims, n.Name, d.images, saw)
	}
	if err := claims.Err(); err != nil {
		d.Fatal(err) // the next act depends on this one
	}
}

// hasEnded reports whether an act has ended as it should.
func (d *director) hasEnded(as ending) bool {
	given := 0
	for _, n := range d.world.Nodes {
		if desired := d.world.Read(d.Context(), n).Annotations[api.DesiredConfig]; desired != "" && desired != d.had {
			given++
		}
	}
	switch waiting := d.world.Waiting(d.Context()); as {
	case waits:
		return given == 0 && strings.Contains(waiting, "not taken in")
	case stops:
		return given == 1 && strings.HasPrefix(waiting, "stopped: ")
	}
	return d.world.Arrived(d.Context(), d.had)
}

// failed reports whether the rollout does not go on by itself. The failure of an earlier act does not count.
func (d *director) failed() bool {
	p := d.world.ReadPool(d.Context())
	for _, c := range p.Status.Conditions {
		if c.Type == api.PoolRenderDegraded && c.Status == api.True {
			return true
		}
	}
	waiting, name := d.world.Waiting(d.Context()), p.Spec.Configuration.Name
	return name != d.had && strings.HasPrefix(waiting, "stopped: ") && strings.Contains(waiting, name)
}

// showEvery is the time between two looks at the cluster.
const showEvery = 2 * time.Second

// show shows the status of the cluster if it has changed.
func (d *director) show() {
	if time.Since(d.looked) >= showEvery {
		d.showNow()
	}
}

func (d *director) showNow() {
	d.looked = time.Now()
	status, err := d.world.Status(d.Context())
	if err != nil {
		d.Fatalf("cannot show the cluster: %v", err)
	}
	if lasting := lasting(status); lasting != d.shown {
		d.shown = lasting
		fmt.Fprintf(d.to, "%.0f s  $ pivotctl cluster status\n  %s\n", time.Since(d.start).Seconds(), strings.ReplaceAll(strings.TrimSpace(status), "\n", "\n  "))
	}
}

// lasting returns a status without what differs each time: progress, and the expected time.
func lasting(status string) string {
	return regexp.MustCompile(`[0-9]+%|, [0-9.]+ [kMG]?B\b| +expected .*|  +`).ReplaceAllString(status, " ")
}

// see looks at a node, with a shell on its machine.
func (d *director) see(n *guestfleet.Node) (s saw) {
	var answer string
	d.world.Until(d, "a shell on "+n.Name+" answers", func() (ok bool) {
		answer, ok = n.Types(d, look)
		return ok
	})
	s.boots = n.Booted()
	s.argument, answer, _ = strings.Cut(answer, ";")
	s.file, s.limit, _ = strings.Cut(answer, ";")
	system := d.world.System(d.Context(), n)
	if system.Booted != nil {
		s.image = system.Booted.Image
	}
	s.proven = system.Proof != nil && system.Proof.OK
	return s
}
