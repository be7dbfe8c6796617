package serve

import (
	"cmp"
	"mime"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/machineconfig/ignition"
)

// oldest is what a machine gets that does not say what it understands: old
// versions of Ignition do not.
const oldest = "2.2.0"

// subtype is what Ignition calls its configs.
const subtype = "vnd.coreos.ignition+json"

// negotiate chooses the version to serve by an Accept header, as the
// machine-config server does, except that 3.0 is served too. It is "" if the
// header names only versions that there is no config for.
func negotiate(accept string) string {
	if strings.TrimSpace(accept) == "" {
		return oldest
	}
	for _, m := range mediaRanges(accept) {
		if version := m.version(); version != "" {
			return version
		}
	}
	return ""
}

// mediaRange is one entry of an Accept header.
type mediaRange struct {
	subtype, asked string // asked is the parameter version
	quality        float64
}

// mediaRanges are the entries of a header, the preferred first (RFC 9110,
// section 12.5.1). Those that cannot be read are left out.
func mediaRanges(accept string) []mediaRange {
	var all []mediaRange
	for _, entry := range strings.Split(accept, ",") {
		kind, parameters, err := mime.ParseMediaType(entry)
		if err != nil {
			continue
		}
		_, subtype, _ := strings.Cut(kind, "/")
		m := mediaRange{subtype, parameters["version"], 1}
		if q, ok := parameters["q"]; ok {
			if m.quality, err = strconv.ParseFloat(q, 64); err != nil || m.quality <= 0 {
				continue
			}
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b mediaRange) int { return cmp.Compare(b.quality, a.quality) })
	return all
}

// semantic is a version number, of which a machine may say more than the numbers.
var semantic = regexp.MustCompile(`^([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(-.*)?$`)

// version is what to serve to a machine that accepts m; "" if there is no such.
func (m mediaRange) version() string {
	switch {
	case m.subtype == "*", m.subtype == subtype && m.asked == "":
		return oldest
	case m.subtype != subtype:
		return ""
	}
	parts := semantic.FindStringSubmatch(m.asked)
	if parts == nil {
		return ""
	}
	minor, _ := strconv.Atoi(parts[2]) // four digits at most
	switch {
	case parts[1] == "2" && minor >= 2:
		return oldest
	case parts[1] == "3":
		return newestUpTo(minor)
	}
	return ""
}

// newestUpTo is the newest version 3 that one of this minor version understands.
func newestUpTo(minor int) string {
	for _, v := range ignition.Versions() {
		if have, err := strconv.Atoi(strings.Split(v, ".")[1]); err == nil && strings.HasPrefix(v, "3.") && have <= minor {
			return v
		}
	}
	return ""
}
