package status_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"

	"machine-pivot/internal/status"
)

// tell reports the results of checks on a scratch host. It returns the journal entries and the
// metrics after the last check.
func tell(t *testing.T, looks ...[]string) (got []sent, metrics map[string]float64) {
	t.Helper()
	log := status.NewLog(&bytes.Buffer{}, func(message string, p journal.Priority, fields map[string]string) error {
		got = append(got, sent{message, p, fields})
		return nil
	})
	d := status.Drift{Log: log, Notify: func(string) {}, Now: newClock().Now, Metrics: filepath.Join(t.TempDir(), "collector/pivot-drift.prom")}
	for _, differences := range looks {
		d.Tell(differences)
	}
	data, err := os.ReadFile(d.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	return got, samples(t, data)
}

// TestDrift (P66): the log has one entry when differences appear, change or disappear, and none
// while nothing changes. The metrics follow each check.
func TestDrift(t *testing.T) {
	got, metrics := tell(t, nil, nil, []string{"file /etc/x: differs"}, []string{"file /etc/x: differs"}, []string{"file /etc/x: differs", "y"}, nil, nil)
	var logged []string
	for _, m := range got {
		logged = append(logged, m.message+" "+m.fields["PIVOT_DIFFERENCES"])
	}
	want := []string{
		"warning: the machine now differs from its target: file /etc/x: differs 1",
		"warning: the machine now differs from its target: file /etc/x: differs; y 2",
		"the machine is what was asked for again 0",
	}
	if strings.Join(logged, "\n") != strings.Join(want, "\n") {
		t.Errorf("said\n%s\nwant\n%s", strings.Join(logged, "\n"), strings.Join(want, "\n"))
	}
	at := float64(newClock().Now().Unix())
	if want := map[string]float64{"pivot_differences": 0, "pivot_compared_timestamp_seconds": at}; !maps.Equal(metrics, want) {
		t.Errorf("metrics %v, want %v", metrics, want)
	}
	if _, metrics := tell(t, []string{"x", "y"}); metrics["pivot_differences"] != 2 {
		t.Errorf("metrics %v", metrics)
	}
}
