package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
)

// Lock records what was fetched, so that a later snapshot is either the same or reports what
// changed. The lock file may be readable by others, so URLs are stored without their secrets. One
// such URL can have several contents, for different queries or headers.
type Lock struct {
	entries map[string][]known // by URL
}

// known is an entry and its status in this snapshot.
type known struct {
	Entry
	fresh bool // it is new in this snapshot
	seen  bool // it was fetched in this snapshot
}

// Entry is a content that was fetched from a URL.
type Entry struct {
	URL     string    `json:"url"`     // without secrets, see ignition.Address
	Digest  string    `json:"digest"`  // sha256:HEX of the response body, before decompression
	Bytes   int       `json:"bytes"`   // size of the response body, before decompression
	Fetched time.Time `json:"fetched"` // when this content was first fetched
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

const newLock = "remove the lock file, and make the snapshot again: it writes a new one"

// lockFile is the format of a lock on disk.
type lockFile struct {
	Version   int     `json:"version"`
	Resources []Entry `json:"resources"`
}

// ParseLock reads a lock written by JSON. Empty data is an empty lock.
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
		return nil, fault.New(fault.BadInput, "cannot read the lock file: it is of version %d, not 1", file.Version).WithHint(newLock)
	}
	for _, e := range file.Resources {
		if e.URL == "" || !digestForm.MatchString(e.Digest) {
			return nil, fault.New(fault.BadInput, "cannot read the lock file: the entry of %q is not whole", e.URL).WithHint(newLock)
		}
		e.URL = ignition.Address(e.URL) // older versions kept the query
		if lock.find(e) < 0 {
			lock.entries[e.URL] = append(lock.entries[e.URL], known{Entry: e})
		}
	}
	return lock, nil
}

// JSON returns the content of the lock file, sorted by URL. If a URL has a new content, its
// contents that were not fetched this time are dropped.
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
	text, err := authored.IndentedJSON(file)
	if err != nil {
		panic(err) // strings, numbers and times can all be written
	}
	return text
}

// record adds a fetched content. A content that is not in the lock is an error if the URL is,
// unless accept is set.
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

// find returns the index of the entry with the same URL and digest, among those of its URL; -1 if
// there is none.
func (l *Lock) find(e Entry) int {
	return slices.IndexFunc(l.entries[e.URL], func(k known) bool { return k.Digest == e.Digest })
}
