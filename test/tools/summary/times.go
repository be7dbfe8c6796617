package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// timed is a passed test with its duration.
type timed struct {
	pkg, name string
	seconds   float64
}

type times []timed

// table returns a Markdown table of the tests and their cases, by package and then the longest first;
// "" if there are none. Deeper subtests are omitted, as part of their case.
func (t times) table() string {
	if len(t) == 0 {
		return ""
	}
	rows := slices.SortedStableFunc(slices.Values(t), func(x, y timed) int {
		return cmp.Or(cmp.Compare(x.pkg, y.pkg), cmp.Compare(y.seconds, x.seconds))
	})
	var b strings.Builder
	b.WriteString("| test | seconds |\n|---|---:|\n")
	for _, row := range rows {
		if strings.Count(row.name, "/") < 2 {
			fmt.Fprintf(&b, "| `%s.%s` | %.0f |\n", row.pkg, row.name, row.seconds)
		}
	}
	return b.String()
}
