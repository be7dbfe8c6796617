package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"
)

// Ledger is how a token has been used. Ignition sends nothing that identifies a machine, so a machine is the address
// that it has. A use is the first request from an address, and the requests from there within the grace time after it
// are its retries.
type Ledger struct {
	Used   int                      `json:"used"`             // how many uses there were
	Recent map[netip.Addr]time.Time `json:"recent,omitempty"` // the uses within the grace time, and when they began
}

// Verdict is what a request from an address means.
type Verdict int

// The verdicts.
const (
	Spent Verdict = iota // refused: all uses are used
	Free                 // allowed, and not counted: a retry, or a token that is not counted
	Count                // allowed when the ledger that Use returns is stored
)

// Use decides about a request from an address. A time in the future, from another server's clock, is treated
// like one as long ago.
func (t Token) Use(from netip.Addr, now time.Time) (Verdict, Ledger) {
	if t.Uses == 0 {
		return Free, t.Ledger
	}
	if at, ok := t.Ledger.Recent[from]; ok && now.Sub(at).Abs() < t.Grace {
		return Free, t.Ledger
	}
	if t.Ledger.Used >= t.Uses {
		return Spent, t.Ledger
	}
	next := Ledger{Used: t.Ledger.Used + 1, Recent: maps.Clone(t.Ledger.Recent)}
	maps.DeleteFunc(next.Recent, func(_ netip.Addr, at time.Time) bool { return now.Sub(at).Abs() >= t.Grace })
	if next.Recent == nil {
		next.Recent = map[netip.Addr]time.Time{}
	}
	next.Recent[from] = now.UTC().Truncate(time.Second)
	return Count, next
}

// JSON returns the ledger as the Secret stores it.
func (l Ledger) JSON() ([]byte, error) { return json.Marshal(l) }

func parseLedger(text []byte) (l Ledger, err error) {
	if len(text) == 0 {
		return l, nil
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return Ledger{}, fmt.Errorf("it cannot be read as JSON: %w", err)
	}
	if l.Used < 0 {
		return Ledger{}, errors.New("the number of uses is negative")
	}
	return l, nil
}

// joined returns one error of several, on one line.
func joined(problems []error) error {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}
