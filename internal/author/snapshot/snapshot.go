// Package snapshot makes MachineConfigs self-contained: everything that machines would fetch is
// fetched now, once, verified and inlined, so that every machine gets the same. Configs that a
// config refers to are merged into it, as Ignition does; files, keys and certificates become data
// URLs.
//
// Only http and https are supported. Each fetch is limited in time, size and redirects, and is
// retried if the failure may be temporary.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/internal/retry"
	"machine-pivot/kargs"
)

// Limits of one snapshot, in addition to those of each fetch.
const (
	maxTotal   = 32 << 20 // bytes fetched in total, and bytes of contents after decompression
	maxConfigs = 1000     // configs merged, counted each time they are merged
	maxDepth   = 10       // depth of references between configs
)

// Taker takes snapshots. Use New: the zero value is not usable.
type Taker struct {
	Lock   *Lock  // contents fetched before, and in this snapshot; nil: no lock
	Accept bool   // accept contents that differ from the lock
	Roots  string // PEM: certificate authorities in addition to the system's and those in a config
	Now    func() time.Time
	Wait   func(context.Context, time.Duration) error // sleeps between two attempts

	policy  kargs.Policy       // for kernel arguments in configs that others name
	seen    map[string]fetched // by request
	warned  map[string]bool    // by URL
	bytes   int
	configs int
	room    *ignition.Room // for contents
	failed  error          // the first temporary failure
}

type fetched struct {
	body []byte
	err  error
}

// New returns a Taker without a lock. The policy is for kernel arguments in configs that others name.
func New(policy kargs.Policy) *Taker {
	return &Taker{policy: policy, Now: time.Now, Wait: retry.Sleep, seen: map[string]fetched{}, warned: map[string]bool{}}
}

// Inline returns self-contained copies of MachineConfigs; the arguments are not changed. The report
// has every resource that cannot be used. The error is not nil if a later attempt may succeed.
func (t *Taker) Inline(ctx context.Context, all []*authored.MachineConfig) ([]*authored.MachineConfig, problem.Report, error) {
	t.failed, t.configs, t.room = nil, 0, ignition.NewRoom(ignition.MaxContent, maxTotal)
	var report problem.Report
	whole := make([]*authored.MachineConfig, len(all))
	for i, mc := range all {
		whole[i] = mc
		if mc.Spec.Config == nil {
			continue
		}
		copied := *mc
		s := source{taker: t, report: &report, file: mc.File(), path: "$.spec.config", roots: t.Roots}
		copied.Spec.Config = new(s.whole(ctx, *mc.Spec.Config))
		whole[i] = &copied
	}
	if t.failed != nil {
		return nil, report, fault.New(fault.Unavailable, "cannot fetch what MachineConfigs need: %w", t.failed).
			WithHint("make the URLs reachable from here: machines get the result and fetch nothing")
	}
	return whole, report, nil
}

// fetch returns the content of a remote resource, decompressed, verified against its hash, and
// recorded in the lock.
func (t *Taker) fetch(ctx context.Context, r ignition.Resource, roots string) ([]byte, error) {
	q, err := newRequest(r, roots)
	if err != nil {
		return nil, err
	}
	f, again := t.seen[q.key()]
	if !again {
		if t.bytes > maxTotal {
			return nil, fmt.Errorf("more than %d bytes were fetched already", maxTotal)
		}
		f.body, f.err = t.get(ctx, q)
		t.bytes += len(f.body)
		t.seen[q.key()] = f
	}
	if f.err != nil {
		return nil, f.err
	}
	if t.Lock != nil {
		err := t.Lock.record(Entry{
			URL: ignition.Address(q.url.String()), Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(f.body)), Bytes: len(f.body), Fetched: t.Now().UTC().Truncate(time.Second),
		}, t.Accept)
		if err != nil {
			return nil, err
		}
	}
	return ignition.Unpack(r, f.body, t.room)
}

// firstWarning reports whether this is the first warning about a URL.
func (t *Taker) firstWarning(url string) bool {
	before := t.warned[url]
	t.warned[url] = true
	return !before
}

// inline returns a resource that contains the content, in the shorter of the two forms of a data
// URL.
func inline(r ignition.Resource, content []byte) ignition.Resource {
	held := ignition.Inline(content)
	if encoded := ";base64," + base64.StdEncoding.EncodeToString(content); len("data:"+encoded) < len(*held.Source) {
		held.Source = new("data:" + encoded)
	}
	held.Verification = r.Verification // it covers the decompressed content
	return held
}
