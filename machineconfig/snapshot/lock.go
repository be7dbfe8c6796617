package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"machine-pivot/fault"
)

// Lock records what was fetched, so that a later snapshot is the same or says
// what changed.
type Lock struct {
	entries map[string]Entry // by URL
}

// Entry is one URL's content.
type Entry struct {
	URL     string    `json:"url"`     // without a password
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
	lock := &Lock{entries: map[string]Entry{}}
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
		if _, twice := lock.entries[e.URL]; twice || e.URL == "" || !digestForm.MatchString(e.Digest) {
			return nil, fault.New(fault.BadInput, "cannot read the lock file: the entry of %q is there twice or is not whole", e.URL)
		}
		lock.entries[e.URL] = e
	}
	return lock, nil
}

// JSON is the lock as a file, its entries in the order of their URLs.
func (l *Lock) JSON() []byte {
	file := lockFile{1, []Entry{}}
	for _, url := range slices.Sorted(maps.Keys(l.entries)) {
		file.Resources = append(file.Resources, l.entries[url])
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

// record takes what was fetched. Something else than before is an error, unless
// it shall be accepted.
func (l *Lock) record(found Entry, accept bool) error {
	old, known := l.entries[found.URL]
	if known && old.Digest == found.Digest {
		return nil
	}
	if known && !accept {
		return fmt.Errorf("its content has changed: since %s it was %s with %d bytes, now it is %s with %d",
			old.Fetched.Format(time.RFC3339), old.Digest, old.Bytes, found.Digest, found.Bytes)
	}
	l.entries[found.URL] = found
	return nil
}
