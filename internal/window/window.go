// Package window implements maintenance windows: the times of a week at which a machine may be
// changed.
package window

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Window is one or more time spans that recur every week.
type Window struct {
	text  string
	spans []span
}

// span is a span of the wall clock on some days of the week, in a time zone. A span with its end before its start ends
// on the next day.
type span struct {
	days     [7]bool // by time.Weekday
	from, to int     // minutes since midnight; to is at most 24 hours
	zone     *time.Location
}

// spanText matches [DAYS] HH:MM-HH:MM [ZONE].
var spanText = regexp.MustCompile(`^(?:([A-Za-z.,]+) +)?(\d\d):(\d\d)-(\d\d):(\d\d)(?: +([A-Za-z0-9_+/-]+))?$`)

// Parse parses one or more spans, separated by semicolons:
//
//	[DAYS] HH:MM-HH:MM [ZONE]
//
// Days are written as in systemd.time(7), such as "Sat,Sun" or "Mon..Fri"; the default is every
// day. The zone is a name from the time zone database, or UTC; the default is local. An end of
// 24:00 is midnight; an end before the start is on the next day.
func Parse(text string, local *time.Location) (Window, error) {
	w := Window{text: text}
	for part := range strings.SplitSeq(text, ";") {
		s, err := parseSpan(strings.TrimSpace(part), local)
		if err != nil {
			return w, fmt.Errorf("%q is not allowed: %w", text, err)
		}
		w.spans = append(w.spans, s)
	}
	return w, nil
}

func parseSpan(text string, local *time.Location) (s span, err error) {
	m := spanText.FindStringSubmatch(text)
	if m == nil {
		return s, fmt.Errorf("it is [DAYS] HH:MM-HH:MM [ZONE], as \"Sat,Sun 22:00-04:00\" or \"Mon..Fri 01:00-03:30 Europe/Berlin\", and perhaps more of them with semicolons between")
	}
	if s.days, err = parseDays(m[1]); err != nil {
		return s, err
	}
	if s.from, err = minutes(m[2], m[3], 23*60+59); err != nil {
		return s, err
	}
	if s.to, err = minutes(m[4], m[5], 24*60); err != nil {
		return s, err
	}
	if s.from == s.to {
		return s, fmt.Errorf("it ends when it begins; a whole day is 00:00-24:00")
	}
	if s.zone = local; m[6] != "" {
		if s.zone, err = time.LoadLocation(m[6]); err != nil {
			return s, fmt.Errorf("this machine knows no time zone %s", m[6])
		}
	}
	return s, nil
}

// minutes converts a time of day to minutes since midnight, and rejects more than most.
func minutes(hour, minute string, most int) (int, error) {
	h, err := strconv.Atoi(hour)
	if err != nil {
		return 0, err
	}
	m, err := strconv.Atoi(minute)
	if err == nil && (m > 59 || 60*h+m > most) {
		err = fmt.Errorf("there is no time %s:%s", hour, minute)
	}
	return 60*h + m, err
}

// parseDays parses a comma-separated list of days and ranges of days.
func parseDays(text string) (days [7]bool, err error) {
	if text == "" {
		return [7]bool{true, true, true, true, true, true, true}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "..")
		if !ranged {
			last = first
		}
		from, err := parseDay(first)
		if err != nil {
			return days, err
		}
		to, err := parseDay(last)
		if err != nil {
			return days, err
		}
		for day := from; ; day = (day + 1) % 7 {
			days[day] = true
			if day == to {
				break
			}
		}
	}
	return days, nil
}

// parseDay parses the English name of a day or its first three letters, ignoring case.
func parseDay(text string) (time.Weekday, error) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if name := day.String(); strings.EqualFold(text, name) || strings.EqualFold(text, name[:3]) {
			return day, nil
		}
	}
	return 0, fmt.Errorf("there is no day %q; there are Mon, Tue, Wed, Thu, Fri, Sat and Sun", text)
}

// Next returns the span that contains now, or else the next one: the window is open from opens
// until just before closes. A time that a change of the clock skips is shifted by that change.
func (w Window) Next(now time.Time) (opens, closes time.Time) {
	for _, s := range w.spans {
		from, to := s.next(now)
		if opens.IsZero() || from.Before(opens) {
			opens, closes = from, to
		}
	}
	return opens, closes
}

// next implements Window.Next for one span.
func (s span) next(now time.Time) (from, to time.Time) {
	year, month, day := now.In(s.zone).Date()
	for n := day - 1; ; n++ { // yesterday's span may still be open; a match follows within eight days
		from, to = s.on(year, month, n)
		if s.days[time.Date(year, month, n, 12, 0, 0, 0, s.zone).Weekday()] && to.After(now) && to.After(from) {
			return from, to
		}
	}
}

// on returns the span that starts on the given day.
func (s span) on(year int, month time.Month, day int) (from, to time.Time) {
	next := day
	if s.to < s.from {
		next++
	}
	return time.Date(year, month, day, 0, s.from, 0, 0, s.zone), time.Date(year, month, next, 0, s.to, 0, 0, s.zone)
}

// String returns the window as it was written.
func (w Window) String() string { return w.text }
