package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

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
	had    string    // the MachineConfig that all nodes had after the last act
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
	arrived := false
	d.world.Until(d, "that was rolled out", func() bool {
		d.show()
		arrived = d.world.Arrived(d.Context(), d.had)
		return arrived || d.failed()
	})
	d.showNow()
	d.had = d.world.ReadPool(d.Context()).Spec.Configuration.Name
	d.boots += a.boots
	claims := &bootlab.Claims{To: d.to}
	a.claim(claims, arrived, len(d.world.MostOut()))
	for _, n := range d.world.Nodes {
		saw := d.see(n)
		saw.boots -= d.boots - a.boots
		a.claimOf(claims, n.Name, d.images, saw)
	}
	if err := claims.Err(); err != nil {
		d.Fatal(err) // the next act depends on this one
	}
}

// failed reports whether the rollout does not go on by itself.
func (d *director) failed() bool {
	for _, c := range d.world.ReadPool(d.Context()).Status.Conditions {
		if strings.HasSuffix(c.Type, "Degraded") && c.Status == "True" {
			return true
		}
	}
	return false
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
	if system := d.world.System(d.Context(), n); system.Booted != nil && system.Proof != nil {
		s.image, s.proven = system.Booted.Image, system.Proof.OK
	}
	return s
}
