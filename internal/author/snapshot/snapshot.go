// Package snapshot makes MachineConfigs whole: everything that they would have
// machines fetch from elsewhere is fetched now, once, verified and put in its
// place, so that every machine gets the same. Configs that a config names are
// merged into it as Ignition would; files, keys and certificates become data URLs.
//
// The sources are http and https. Each fetch is bounded in time, size and
// redirects, and repeated where the reason of a failure may pass.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"machine-pivot/internal/author/machineconfig"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/internal/retry"
)

// The bounds of one snapshot, beside those of each fetch.
const (
	maxTotal   = 256 << 20 // bytes of all that is fetched
	maxConfigs = 1000      // configs that are merged, each counted as often as it is
	maxDepth   = 10        // configs that name configs
)

// Taker takes snapshots. Its zero value cannot be used; see New.
type Taker struct {
	Lock   *Lock  // what was fetched before, and now; nil records nothing
	Accept bool   // take content that is another than the lock has
	Roots  string // PEM: certificate authorities beside the system's and a config's own
	Now    func() time.Time
	Wait   func(context.Context, time.Duration) error // between two tries

	seen    map[string]fetched // by request
	warned  map[string]bool    // by URL
	bytes   int
	configs int
	failed  error // the first failure that may pass
}

type fetched struct {
	body []byte
	err  error
}

// New is a taker without a lock.
func New() *Taker {
	return &Taker{Now: time.Now, Wait: retry.Sleep, seen: map[string]fetched{}, warned: map[string]bool{}}
}

// Inline makes MachineConfigs whole; those given are not changed. The report
// holds everything that cannot be had; the error says that trying again may help.
func (t *Taker) Inline(ctx context.Context, all []*machineconfig.MachineConfig) ([]*machineconfig.MachineConfig, problem.Report, error) {
	t.failed, t.configs = nil, 0
	var report problem.Report
	whole := make([]*machineconfig.MachineConfig, len(all))
	for i, mc := range all {
		whole[i] = mc
		if mc.Spec.Config == nil {
			continue
		}
		copied := *mc
		s := source{taker: t, report: &report, file: mc.File(), path: "$.spec.config", roots: t.Roots}
		config := s.whole(ctx, *mc.Spec.Config)
		copied.Spec.Config = &config
		whole[i] = &copied
	}
	if t.failed != nil {
		return nil, report, fault.New(fault.Unavailable, "cannot fetch what MachineConfigs need: %w", t.failed).
			WithHint("what they fetch from must be reachable from here, now: machines get the result and fetch nothing")
	}
	return whole, report, nil
}

// fetch is the content of a remote resource: decompressed, verified against its
// hash, and recorded in the lock.
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
	return ignition.Unpack(r, f.body, maxBody)
}

// first reports whether a URL has not been warned of before, and takes it that it is now.
func (t *Taker) first(url string) bool {
	before := t.warned[url]
	t.warned[url] = true
	return !before
}

// inline is a resource that holds the content, in the shorter of the forms that
// a data URL can have.
func inline(r ignition.Resource, content []byte) ignition.Resource {
	held := ignition.Inline(content)
	if encoded := ";base64," + base64.StdEncoding.EncodeToString(content); len("data:"+encoded) < len(*held.Source) {
		source := "data:" + encoded
		held.Source = &source
	}
	held.Verification = r.Verification // it covers the decompressed content
	return held
}
