package window_test

import (
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/window"
	"machine-pivot/test/tools/need"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		need.Lacking(t, "needs time zones: "+err.Error())
	}
	return z
}

// TestNext (P78): returns the span that is open or opens next, for days, over midnight, in its
// time zone, and around clock changes.
func TestNext(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct{ spec, now, opens, closes string }{ // times in UTC; 2026-11-22 is a Sunday
		{"22:00-23:30", "2026-11-22T12:00", "2026-11-22T21:00", "2026-11-22T22:30"},
		{"22:00-23:30", "2026-11-22T21:00", "2026-11-22T21:00", "2026-11-22T22:30"},
		{"22:00-23:30", "2026-11-22T22:30", "2026-11-23T21:00", "2026-11-23T22:30"},
		{"22:00-04:00 UTC", "2026-11-22T02:00", "2026-11-21T22:00", "2026-11-22T04:00"},
		{"Sat 22:00-04:00 UTC", "2026-11-22T02:00", "2026-11-21T22:00", "2026-11-22T04:00"},
		{"sat 22:00-04:00 UTC", "2026-11-22T04:00", "2026-11-28T22:00", "2026-11-29T04:00"},
		{"Mon..Fri 01:00-02:00 UTC", "2026-11-22T01:30", "2026-11-23T01:00", "2026-11-23T02:00"},
		{"Fri..Mon 01:00-02:00 UTC", "2026-11-22T01:30", "2026-11-22T01:00", "2026-11-22T02:00"},
		{"Tuesday,Thu 00:00-24:00 UTC", "2026-11-22T01:30", "2026-11-24T00:00", "2026-11-25T00:00"},
		{"Mon 01:00-02:00 UTC; Sun 03:00-04:00 UTC", "2026-11-22T01:30", "2026-11-22T03:00", "2026-11-22T04:00"},
		{"22:00-23:00 America/New_York", "2026-11-22T12:00", "2026-11-23T03:00", "2026-11-23T04:00"},
		// The night without 02:00 to 03:00, and the one that has it twice.
		{"01:00-04:00", "2026-03-28T23:00", "2026-03-29T00:00", "2026-03-29T02:00"},
		{"01:00-04:00", "2026-10-24T22:00", "2026-10-24T23:00", "2026-10-25T03:00"},
		{"00:00-24:00", "2026-10-24T22:30", "2026-10-24T22:00", "2026-10-25T23:00"},
	} {
		w, err := window.Parse(c.spec, berlin)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		now, err := time.Parse("2006-01-02T15:04", c.now)
		if err != nil {
			t.Fatal(err)
		}
		opens, closes := w.Next(now)
		if got, want := opens.UTC().Format("2006-01-02T15:04")+" "+closes.UTC().Format("2006-01-02T15:04"), c.opens+" "+c.closes; got != want {
			t.Errorf("%s at %s: %s, want %s", c.spec, c.now, got, want)
		}
	}
}

// TestGap: a window within the hour that a clock change skips is shifted, not lost.
func TestGap(t *testing.T) {
	w, err := window.Parse("02:10-02:50", zone(t, "Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	opens, closes := w.Next(time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC))
	if day := opens.UTC().Format("01-02"); day != "03-29" || closes.Sub(opens) != 40*time.Minute {
		t.Errorf("from %v to %v", opens, closes)
	}
}

// TestAlways: at any time, a window opens within eight days and closes after now.
func TestAlways(t *testing.T) {
	for _, spec := range []string{"Sun 23:59-00:01", "02:30-02:31", "Mon..Sun 00:00-24:00", "Wed 23:00-22:59"} {
		w, err := window.Parse(spec, zone(t, "America/New_York"))
		if err != nil {
			t.Fatal(err)
		}
		for now := time.Date(2026, 1, 1, 0, 7, 0, 0, time.UTC); now.Year() == 2026; now = now.Add(97 * time.Minute) {
			opens, closes := w.Next(now)
			if !closes.After(now) || !closes.After(opens) || opens.Sub(now) > 8*24*time.Hour || closes.Sub(opens) > 25*time.Hour {
				t.Fatalf("%s at %v: from %v to %v", spec, now, opens, closes)
			}
		}
	}
}

// TestParseErrors: the error says what is wrong.
func TestParseErrors(t *testing.T) {
	for text, says := range map[string]string{
		"":                      "HH:MM-HH:MM",
		"22:00":                 "HH:MM-HH:MM",
		"Sat 22:00 4h":          "HH:MM-HH:MM",
		"Sat 2:00-4:00":         "HH:MM-HH:MM",
		"22:00-23:00;":          "HH:MM-HH:MM",
		"Sat 24:00-01:00":       "there is no time 24:00",
		"Sat 22:60-23:00":       "there is no time 22:60",
		"22:00-24:01":           "there is no time 24:01",
		"22:00-22:00":           "ends when it begins",
		"Caturday 22:00-23:00":  `there is no day "Caturday"`,
		"Mon.. 22:00-23:00":     `there is no day ""`,
		"22:00-23:00 Mars/Base": "knows no time zone Mars/Base",
		"22:00-23:00 ../../etc": "HH:MM-HH:MM",
	} {
		if _, err := window.Parse(text, time.UTC); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
