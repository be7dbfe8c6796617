package connect_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"machine-pivot/internal/cluster/connect"
)

// TestLogLibraries: what client-go logs, by klog, is a JSON line of our log with its values, and debugging only if wanted.
func TestLogLibraries(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.SetFormatter(&logrus.JSONFormatter{})
	logger := connect.LogLibraries(log)
	t.Cleanup(klog.ClearLogger)
	klog.ErrorS(errors.New("no way"), "cannot watch", "kind", "Node")
	klog.Warningf("it is %s", "late")
	klog.V(9).Info("much")
	logger.WithName("part").WithValues("a", 1).Info("said")
	var lines []map[string]any
	for line := range bytes.Lines(out.Bytes()) {
		var of map[string]any
		if err := json.Unmarshal(line, &of); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, of)
	}
	if len(lines) != 3 || lines[0]["error"] != "no way" || lines[0]["kind"] != "Node" || lines[1]["msg"] != "it is late" || lines[2]["part"] != "part" || lines[2]["a"] != 1.0 {
		t.Errorf("%v", lines)
	}
}
