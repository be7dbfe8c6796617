package main

import (
	"bytes"
	"testing"
)

func TestReport(t *testing.T) {
	var port bytes.Buffer
	peak := int64(0)
	for _, available := range []string{"900", "899", "100", "5000"} { // in KiB
		var err error
		peak, err = report(&port, peak, []byte("MemTotal: 9000 kB\nMemFree: 7 kB\nMemAvailable: "+available+" kB\n"))
		if err != nil {
			t.Fatal(err)
		}
	}
	// The second differs by less than a MiB, and so does the third; the last one is less.
	if got := port.String(); got != "8294400\n" || peak != 8294400 {
		t.Errorf("reported %q, peak %d", got, peak)
	}
	if _, err := report(&port, 0, []byte("MemTotal: 9000 kB\n")); err == nil {
		t.Error("no error for a meminfo without MemAvailable")
	}
}
