// Package window is the times of a week at which a machine may be changed.
package window

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Window is one or more spans of each week.
type Window struct {
	text  string
	spans []span
}

// span is a span of each of some days, in a time zone. One that ends before it begins ends
// on the next day.
type span struct {
	days     [7]bool // by time.Weekday
	from, to int     // minutes of the wall clock, from midnight; to is up to 24 hours
	zone     *time.Location
}

// spanText is [DAYS] HH:MM-HH:MM [ZONE].
var spanText = regexp.MustCompile(`^(?:([A-Za-z.,]+) +)?(\d\d):(\d\d)-(\d\d):(\d\d)(?: +([A-Za-z0-9_+/-]+))?$`)

// Parse reads spans with semicolons between them:
//
//	[DAYS] HH:MM-HH:MM [ZONE]
//
// Days are written as in systemd.time(7), as "Sat,Sun" or "Mon..Fri"; without them each day
// counts. The zone is one of the time zone database, or UTC; without it local counts. An
// end of 24:00 is midnight; one before the beginning is on the next day.
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

// minutes are those of a time of day since midnight, at most some.
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

// parseDays reads a list of days and ranges of days.
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

// parseDay reads the English name of a day, or the first three letters of it.
func parseDay(text string) (time.Weekday, error) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if name := day.String(); strings.EqualFold(text, name) || strings.EqualFold(text, name[:3]) {
			return day, nil
		}
	}
	return 0, fmt.Errorf("there is no day %q; there are Mon, Tue, Wed, Thu, Fri, Sat and Sun", text)
}

// Next is the span that contains a time, or else the next one: from opens on, before closes.
// Times of the wall clock that a change of the clock leaves out are moved by that change.
func (w Window) Next(now time.Time) (opens, closes time.Time) {
	for _, s := range w.spans {
		from, to := s.next(now)
		if opens.IsZero() || from.Before(opens) {
			opens, closes = from, to
		}
	}
	return opens, closes
}

// next is Window.Next for one span.
func (s span) next(now time.Time) (from, to time.Time) {
	year, month, day := now.In(s.zone).Date()
	for n := day - 1; ; n++ { // yesterday's may go on; there is one within each eight days
		from, to = s.on(year, month, n)
		if s.days[time.Date(year, month, n, 12, 0, 0, 0, s.zone).Weekday()] && to.After(now) && to.After(from) {
			return from, to
		}
	}
}

// on is the span of one day.
func (s span) on(year int, month time.Month, day int) (from, to time.Time) {
	next := day
	if s.to < s.from {
		next++
	}
	return time.Date(year, month, day, 0, s.from, 0, 0, s.zone), time.Date(year, month, next, 0, s.to, 0, 0, s.zone)
}

// String is the window as it was written.
func (w Window) String() string { return w.text }
