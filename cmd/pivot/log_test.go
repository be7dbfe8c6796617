package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/sirupsen/logrus"
)

// TestLibraryLogsWithUs: messages of the image library have the form of our log lines,
// with text from a registry escaped, and appear once.
func TestLibraryLogsWithUs(t *testing.T) {
	global := logrus.StandardLogger()
	t.Cleanup(func() { global.SetOutput(io.Discard); global.ReplaceHooks(logrus.LevelHooks{}) })
	var first, second bytes.Buffer
	plainLog(&first)
	plainLog(&second)
	logrus.Warnf("Warning from registry: %s", "\x1b[2J")
	logrus.Debug("nobody asked for this")
	if first.Len() > 0 || second.String() != "pivot: warning: Warning from registry: \\x1b[2J\n" {
		t.Errorf("an earlier log has %q, the log %q", &first, &second)
	}
}
