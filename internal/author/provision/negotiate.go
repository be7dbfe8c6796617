package provision

import (
	"regexp"
	"strconv"
	"strings"

	"machine-pivot/internal/author/authored"
)

// oldest is the version for clients that do not send theirs, as old versions of Ignition do not.
const oldest = "2.2.0"

// subtype is the media subtype of Ignition configs.
const subtype = "vnd.coreos.ignition+json"

// negotiate chooses the config version for an Accept header like the machine-config server, except
// that 3.0 is served, too. The preferred entry with an Ignition version decides. The result is ""
// if that version cannot be served, whatever else the header accepts: a machine that states its
// version would fail on any other.
//
// The header is parsed like in that server, which implements less than RFC 9110, section 12.5.1:
// parameters are not quoted, and a quality of 0 means only the lowest preference.
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
	version *version // the first valid parameter of this name; nil: none
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

// version is an Ignition version; the patch number does not matter.
type version struct{ major, minor int }

// semantic matches a semantic version.
var semantic = regexp.MustCompile(`^([0-9]{1,9})\.([0-9]{1,9})\.[0-9]{1,9}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// parseVersion parses a version; nil if it is invalid.
func parseVersion(text string) *version {
	parts := semantic.FindStringSubmatch(text)
	if parts == nil {
		return nil
	}
	major, _ := strconv.Atoi(parts[1]) // at most nine digits
	minor, _ := strconv.Atoi(parts[2])
	return &version{major, minor}
}

// serve returns the version to serve to a client that supports v; "" if there is none.
func (v version) serve() string {
	switch {
	case v.major == 2 && v.minor >= 2:
		return oldest
	case v.major == 3:
		return newestUpTo(v.minor)
	}
	return ""
}

// newestUpTo returns the newest version 3.x with a minor number of at most minor.
func newestUpTo(minor int) string {
	for _, v := range authored.IgnitionVersions() {
		if have, err := strconv.Atoi(strings.Split(v, ".")[1]); err == nil && strings.HasPrefix(v, "3.") && have <= minor {
			return v
		}
	}
	return ""
}
