package ostree

import (
	"cmp"
	"strings"
)

// compareVersions compares versions of boot entries as strverscmp(3) does, by which libostree sorts them. At the first
// difference, digits count as the number that they belong to; one with leading zeros is a fraction.
func compareVersions(a, b string) int {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	same := a[len(strings.TrimRight(a[:at], "0123456789")):at] // the beginning of both numbers
	restA, restB := digits(a[at:]), digits(b[at:])
	goesOn := cmp.Compare(min(restA, 1), min(restB, 1))
	switch bytes := strings.Compare(a[at:], b[at:]); {
	case same == "" && (restA == 0 || restB == 0 || a[at] == '0' || b[at] == '0'):
		return bytes
	case same != "" && strings.Trim(same, "0") == "" && goesOn != 0: // 00 is less than 0
		return -goesOn
	case strings.HasPrefix(same, "0"):
		return bytes
	default:
		return cmp.Or(cmp.Compare(restA, restB), bytes)
	}
}

// digits returns the number of digits at the beginning of a text.
func digits(text string) int { return len(text) - len(strings.TrimLeft(text, "0123456789")) }
