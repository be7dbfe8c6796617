// Package scaleup has many machines do their first boot at the same time, all from one registry. That shows what a
// client's waits do to the server and to other clients, which one machine cannot.
//
// Each machine is the real client, as in a first boot. Package osimage imports the image into the machine's own
// repository, over TLS, package retry decides when it tries again, and a run that gives up is started again. The
// registry sends so many bytes per second and so many blobs at a time, refuses what is more with a Retry-After, and
// fails as a whole once.
//
// Time is scaled: the waits of the client, and the registry's Retry-After, are Scale times shorter than
// they say, and the image that many times smaller. All durations in options and results are as on the
// machines, which means Scale times those of the simulation.
package scaleup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// Options describe a simulation.
type Options struct {
	Dir        string // for images and repositories; removed by the caller
	Machines   int
	Scale      int           // how many times faster than real time it runs
	PowerOn    time.Duration // within which all machines begin
	Transfer   time.Duration // which the registry needs to send the image to all machines
	Transfers  int           // blobs that it sends at a time
	RetryAfter time.Duration // which it asks those for that it refuses
	FailsAfter time.Duration // when it fails as a whole
	FailsFor   time.Duration
}

// restartAfter is how long systemd waits before it starts a first boot again (pivot-firstboot.service).
const restartAfter = 30 * time.Second

// Machine is what became of one machine.
type Machine struct {
	Began, Ended time.Duration // since the start of the simulation
	Restarts     int           // how often its first boot gave up and was started again
	Bytes        int64         // that it has fetched
	Err          error         // nil: it has the image
}

// Result is the outcome of a simulation.
type Result struct {
	Machines []Machine
	Took     time.Duration // until the last machine had the image
	Image    int64         // bytes of the image's layers
	Sent     int64         // bytes of blobs that the registry has sent
	Late     time.Duration // by which a wait was too long on average, because the processors were busy
	Requests []Request
}

// Request is a request to the registry.
type Request struct {
	At      time.Duration // since the start of the simulation
	Blob    bool          // a layer or a config was requested
	Refused bool          // with status 503
}

// world is a running simulation.
type world struct {
	Options
	registry *registry.Registry
	limiter  *registry.Limiter
	image    imageref.Reference
	layers   int64 // bytes
	began    time.Time
	giveUp   time.Duration
	late     atomic.Int64 // nanoseconds by which waits were too long, together
	waits    atomic.Int64
}

// Run runs a simulation. A machine that does not get the image within twenty times the time in which all
// could have it has an error.
func Run(ctx context.Context, o Options) (*Result, error) {
	w := &world{Options: o, giveUp: 20 * (o.PowerOn + o.Transfer + o.FailsFor)}
	if err := w.serve(ctx); err != nil {
		return nil, err
	}
	defer w.registry.Close() // all machines have ended
	r := &Result{Machines: make([]Machine, o.Machines), Image: w.layers}
	hosts, err := w.hosts()
	if err != nil {
		return nil, err
	}
	w.began = time.Now()
	failing := w.fail()
	var all sync.WaitGroup
	for n := range r.Machines {
		all.Go(func() { r.Machines[n] = w.boot(ctx, n, hosts[n]) })
	}
	all.Wait()
	failing.Stop()
	for _, m := range r.Machines {
		r.Took = max(r.Took, m.Ended)
	}
	r.Sent = w.registry.BytesServed()
	r.Late = time.Duration(w.late.Load()/max(1, w.waits.Load())) * time.Duration(o.Scale)
	for _, a := range w.limiter.Answered() {
		r.Requests = append(r.Requests, Request{w.at(a.At), a.Blob, a.Status != 200})
	}
	return r, nil
}

// serve starts the registry with an image. Its limits apply from then on.
func (w *world) serve(ctx context.Context) (err error) {
	if w.registry, err = registry.Start(registry.Options{Dir: filepath.Join(w.Dir, "blobs"), Anonymous: true}); err != nil {
		return err
	}
	image, err := w.build()
	if err != nil {
		return err
	}
	digest, err := w.registry.Push(ctx, "os", "latest", image)
	if err != nil {
		return err
	}
	if w.image, err = imageref.Parse(w.registry.Host() + "/os@" + digest); err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return err
		}
		w.layers += size
	}
	w.limiter = registry.NewLimiter(registry.Limits{
		Bandwidth:  int64(float64(w.layers*int64(w.Machines)) / w.real(w.Transfer).Seconds()),
		Transfers:  w.Transfers,
		RetryAfter: strconv.Itoa(int(w.RetryAfter.Seconds())),
	})
	w.registry.Spoil(registry.Rule{Fault: w.limiter.Fault()})
	return nil
}

// fail lets the registry fail and come back. The returned timer stops it.
func (w *world) fail() *time.Timer {
	if w.FailsFor == 0 {
		return time.NewTimer(0)
	}
	return time.AfterFunc(w.real(w.FailsAfter), func() {
		w.limiter.SetDown(true)
		time.AfterFunc(w.real(w.FailsFor), func() { w.limiter.SetDown(false) })
	})
}

// host is a machine before its first boot.
type host struct {
	root string
	repo *ostree.Repo
}

// hosts makes the machines, each with an empty repository and the registry's certificate.
func (w *world) hosts() ([]host, error) {
	all := make([]host, w.Machines)
	for n := range all {
		h := host{root: filepath.Join(w.Dir, "machines", strconv.Itoa(n))}
		certs := filepath.Join(h.root, "etc/containers/certs.d", w.registry.Host())
		if err := os.MkdirAll(certs, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(certs, "ca.crt"), w.registry.CA(), 0o644); err != nil {
			return nil, err
		}
		repo := filepath.Join(h.root, "repo")
		if err := ostreetree.Init(repo, "bare"); err != nil {
			return nil, err
		}
		var err error
		if h.repo, err = ostree.OpenRepo(repo); err != nil {
			return nil, err
		}
		all[n] = h
	}
	return all, nil
}

// real converts a duration on a machine to one in this process.
func (w *world) real(d time.Duration) time.Duration { return d / time.Duration(w.Scale) }

// at converts a time in this process to one of the simulation.
func (w *world) at(t time.Time) time.Duration { return t.Sub(w.began) * time.Duration(w.Scale) }

// sleep waits as long as a machine would. It notes how much too long that was.
func (w *world) sleep(ctx context.Context, d time.Duration) error {
	start := time.Now()
	err := retry.Sleep(ctx, w.real(d))
	if err == nil {
		w.late.Add(int64(time.Since(start) - w.real(d)))
		w.waits.Add(1)
	}
	return err
}

// scaled returns a policy with the clock of the simulation.
func (w *world) scaled(p retry.Policy) retry.Policy {
	p.Sleep = w.sleep
	p.Now = func() time.Time { return w.began.Add(w.at(time.Now())) }
	return p
}

// boot is the first boot of the nth machine: it pulls the image, and is started again if it gives up.
func (w *world) boot(ctx context.Context, n int, h host) (m Machine) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.real(w.giveUp), fmt.Errorf("after %s", w.giveUp))
	defer cancel()
	if m.Err = w.sleep(ctx, w.PowerOn*time.Duration(n)/time.Duration(w.Machines)); m.Err != nil {
		return m
	}
	m.Began = w.at(time.Now())
	for {
		m.Err = w.pull(ctx, h, &m)
		m.Ended = w.at(time.Now())
		if m.Err == nil || ctx.Err() != nil || !fault.KindOf(m.Err).Transient() {
			return m
		}
		m.Restarts++
		if ended := w.sleep(ctx, restartAfter); ended != nil {
			return m
		}
	}
}

// pull is one run of the program: it opens the image, with retries, and imports it.
func (w *world) pull(ctx context.Context, h host, m *Machine) error {
	puller := &osimage.Puller{Root: h.root, Retry: w.scaled(retry.Policy{})}
	var opened *osimage.Opened
	err := w.scaled(pivot.DefaultRetry()).Do(ctx, nil, func(ctx context.Context) (err error) {
		opened, err = puller.Open(ctx, w.image)
		return err
	})
	if err != nil {
		return err
	}
	defer opened.Close() // all data was read, or an error is returned already
	var fetched int64
	_, err = opened.Import(ctx, h.repo, func(p osimage.Progress) { fetched = p.FetchedBytes })
	m.Bytes += fetched
	return err
}
