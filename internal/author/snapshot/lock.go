package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
)

// Lock records what was fetched, so that a later snapshot is the same or says
// what changed. It is kept where others can read it, and so knows URLs only by what
// is no secret: with different queries or headers one URL may have given several
// contents.
type Lock struct {
	entries map[string][]known // by URL
}

// known is an entry and what it is to this snapshot.
type known struct {
	Entry
	fresh bool // it was not there before
	seen  bool // it was fetched
}

// Entry is a content that a URL gave.
type Entry struct {
	URL     string    `json:"url"`     // see ignition.Address
	Digest  string    `json:"digest"`  // sha256:HEX of what the server gave, compressed if that is
	Bytes   int       `json:"bytes"`   // of the same
	Fetched time.Time `json:"fetched"` // when it was first seen like this
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// lockFile is the form of a lock on disk.
type lockFile struct {
	Version   int     `json:"version"`
	Resources []Entry `json:"resources"`
}

// ParseLock reads a lock that JSON wrote; no data at all is an empty one.
func ParseLock(data []byte) (*Lock, error) {
	lock := &Lock{entries: map[string][]known{}}
	if len(data) == 0 {
		return lock, nil
	}
	var file lockFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fault.New(fault.BadInput, "cannot read the lock file: %w", err)
	}
	if file.Version != 1 {
		return nil, fault.New(fault.BadInput, "cannot read the lock file: it is of version %d, not 1", file.Version)
	}
	for _, e := range file.Resources {
		if e.URL == "" || !digestForm.MatchString(e.Digest) {
			return nil, fault.New(fault.BadInput, "cannot read the lock file: the entry of %q is not whole", e.URL)
		}
		e.URL = ignition.Address(e.URL) // older versions kept the query
		if lock.find(e) < 0 {
			lock.entries[e.URL] = append(lock.entries[e.URL], known{Entry: e})
		}
	}
	return lock, nil
}

// JSON is the lock as a file, its entries in the order of their URLs. Of a URL that
// has given something new, what it did not give any more is left out.
func (l *Lock) JSON() []byte {
	file := lockFile{1, []Entry{}}
	for _, url := range slices.Sorted(maps.Keys(l.entries)) {
		all := l.entries[url]
		changed := slices.ContainsFunc(all, func(k known) bool { return k.fresh })
		for _, k := range all {
			if k.seen || !changed {
				file.Resources = append(file.Resources, k.Entry)
			}
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(file); err != nil {
		panic(err) // strings, numbers and times can all be written
	}
	return b.Bytes()
}

// record takes what was fetched. Something else than was there before is an error,
// unless it shall be accepted.
func (l *Lock) record(found Entry, accept bool) error {
	all := l.entries[found.URL]
	if i := l.find(found); i >= 0 {
		all[i].seen = true
		return nil
	}
	if i := slices.IndexFunc(all, func(k known) bool { return !k.fresh }); i >= 0 && !accept {
		old := all[i]
		return fmt.Errorf("its content has changed: since %s it was %s with %d bytes, now it is %s with %d",
			old.Fetched.Format(time.RFC3339), old.Digest, old.Bytes, found.Digest, found.Bytes)
	}
	l.entries[found.URL] = append(all, known{Entry: found, fresh: true, seen: true})
	return nil
}

// find is the index, among those of its URL, of an entry with the same content; -1 if there is none.
func (l *Lock) find(e Entry) int {
	return slices.IndexFunc(l.entries[e.URL], func(k known) bool { return k.Digest == e.Digest })
}
