package configserver

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"machine-pivot/internal/author/provision"
)

// Limits of storing a ledger. Other servers write it, too: each conflict is a use that one of them has counted.
const (
	saveLimit = 10 * time.Second
	saveTries = 20
)

// counter counts the uses of one token. Uses that are asked for while a ledger is being stored are stored
// together afterwards, so that thousands of machines with one token cost a few requests.
type counter struct {
	store store
	now   func() time.Time

	mu      sync.Mutex
	known   kept
	waiting []ask
	busy    bool
}

// ask is a request that waits for its use to be counted.
type ask struct {
	from   netip.Addr
	answer chan error // receives one value, and never blocks
}

func (c *counter) get() kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

func (c *counter) set(k kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = k
}

// use counts a use by a machine. It may be counted although ctx has ended; then the machine's next request is
// a retry, and free.
func (c *counter) use(ctx context.Context, from netip.Addr) error {
	if verdict, _ := c.get().Use(from, c.now()); verdict == provision.Free {
		return nil
	}
	a := ask{from, make(chan error, 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, a)
	first := !c.busy
	c.busy = true
	c.mu.Unlock()
	if first {
		go c.work()
	}
	select {
	case err := <-a.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work counts what waits, until nothing does.
func (c *counter) work() {
	for {
		c.mu.Lock()
		batch := c.waiting
		c.waiting = nil
		c.busy = len(batch) > 0
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), saveLimit)
		answers, err := c.count(ctx, batch)
		cancel()
		for i, a := range batch {
			if err != nil {
				a.answer <- err
				continue
			}
			a.answer <- answers[i]
		}
	}
}

// count counts the uses of a batch by one write, again after each conflict with another server. It returns the
// answer for each ask; the error is that for all of them.
func (c *counter) count(ctx context.Context, batch []ask) ([]error, error) {
	k := c.get()
	asked := k.Token
	for range saveTries {
		answers, ledger, changed := decide(k.Token, batch, c.now())
		if !changed {
			return answers, nil
		}
		saved, err := c.store.save(ctx, k, ledger)
		if err == nil {
			c.set(saved)
			return answers, nil
		}
		if apierrors.IsConflict(err) {
			k, err = c.store.read(ctx, k.name)
		}
		switch {
		case gone(err), err == nil && (k.Digest != asked.Digest || k.Pool != asked.Pool || k.Expired(c.now())):
			return nil, provision.ErrSpent // it was revoked
		case err != nil:
			return nil, err
		}
	}
	return nil, errors.New("other servers write the token all the time")
}

// decide returns the answer for each ask, and the ledger with their uses.
func decide(t provision.Token, batch []ask, now time.Time) (answers []error, ledger provision.Ledger, changed bool) {
	for _, a := range batch {
		verdict, next := t.Use(a.from, now)
		t.Ledger = next
		changed = changed || verdict == provision.Count
		var answer error
		if verdict == provision.Spent {
			answer = provision.ErrSpent
		}
		answers = append(answers, answer)
	}
	return answers, t.Ledger, changed
}
