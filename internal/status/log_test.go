package status_test

import (
	"bytes"
	"testing"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/status"
)

// TestLogsAreApart: logs are independent, and the process's standard logger is unchanged.
func TestLogsAreApart(t *testing.T) {
	var first, second, process bytes.Buffer
	global := logrus.StandardLogger()
	before := global.Out
	t.Cleanup(func() { global.SetOutput(before) })
	global.SetOutput(&process)
	a, b := status.NewLog(&first, nil), status.NewLog(&second, nil)
	a.Info("one")
	b.Info("two")
	if first.String() != "pivot: one\n" || second.String() != "pivot: two\n" || process.Len() > 0 {
		t.Errorf("the first has %q, the second %q, the process %q", &first, &second, &process)
	}
}
