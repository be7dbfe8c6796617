package serve

import (
	"regexp"
	"strconv"
	"strings"

	"machine-pivot/internal/author/legacy"
)

// oldest is what a machine gets that does not say what it understands: old
// versions of Ignition do not.
const oldest = "2.2.0"

// subtype is what Ignition calls its configs.
const subtype = "vnd.coreos.ignition+json"

// negotiate chooses the version to serve by an Accept header, as the
// machine-config server does, except that 3.0 is served too. Of the entries that
// name a version of Ignition's the preferred one decides; it is "" if there is no
// config of that version, whatever else the header accepts: a machine that says what
// it understands would fail on anything else.
//
// The header is read as that server reads it, which is less than RFC 9110, section
// 12.5.1: parameters are not quoted, and a quality of 0 is only the least.
func negotiate(accept string) string {
	var preferred mediaRange
	for entry := range strings.SplitSeq(accept, ",") {
		m := parseMediaRange(entry)
		if m.version != nil && (preferred.version == nil || m.quality > preferred.quality) {
			preferred = m
		}
	}
	if preferred.version == nil {
		return oldest
	}
	return preferred.version.serve()
}

// mediaRange is one entry of an Accept header.
type mediaRange struct {
	version *version // of Ignition's configs: the first parameter of that name that is one
	quality float64
}

func parseMediaRange(entry string) mediaRange {
	kind, parameters, _ := strings.Cut(entry, ";")
	if _, of, _ := strings.Cut(strings.TrimSpace(kind), "/"); of != subtype {
		return mediaRange{}
	}
	m, rated := mediaRange{quality: 1}, false
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		switch {
		case name == "version" && m.version == nil:
			m.version = parseVersion(value)
		case name == "q" && !rated:
			if q, err := strconv.ParseFloat(value, 32); err == nil {
				m.quality, rated = q, true
			}
		}
	}
	return m
}

// version is one that a machine understands; only these two numbers of it count.
type version struct{ major, minor int }

// semantic is a version number, of which a machine may say more than the numbers.
var semantic = regexp.MustCompile(`^([0-9]{1,9})\.([0-9]{1,9})\.[0-9]{1,9}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// parseVersion reads a version number; nil if it is none.
func parseVersion(text string) *version {
	parts := semantic.FindStringSubmatch(text)
	if parts == nil {
		return nil
	}
	major, _ := strconv.Atoi(parts[1]) // nine digits at most
	minor, _ := strconv.Atoi(parts[2])
	return &version{major, minor}
}

// serve is the version to serve to a machine that understands v; "" if there is none.
func (v version) serve() string {
	switch {
	case v.major == 2 && v.minor >= 2:
		return oldest
	case v.major == 3:
		return newestUpTo(v.minor)
	}
	return ""
}

// newestUpTo is the newest version 3 that one of this minor version understands.
func newestUpTo(minor int) string {
	for _, v := range legacy.Versions() {
		if have, err := strconv.Atoi(strings.Split(v, ".")[1]); err == nil && strings.HasPrefix(v, "3.") && have <= minor {
			return v
		}
	}
	return ""
}
