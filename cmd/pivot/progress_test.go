package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/worlds/fleetlock"
	"machine-pivot/test/worlds/hostdir"
)

// TestProgressScripts (P63, P64, P65, P77, P78, P79): runs the scripts about the progress of a run, and others that
// write their machine's status. So each has its own machine: root directory $ROOT, next image $IMAGE, a window $CLOSED
// that is closed for hours, and a FleetLock server $FLEET with the CA in $FLEET_CA.
func TestProgressScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/progress/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel() // some wait for what does not answer
			h, fleet := hostdir.New(t), fleetlock.Start(t, 1)
			params := scripts("")
			params.Files = []string{file}
			params.Setup = func(env *testscript.Env) error {
				env.Setenv("ROOT", h.Root)
				env.Setenv("IMAGE", h.Image)
				env.Setenv("CLOSED", time.Now().UTC().Add(6*time.Hour).Format("15:04-")+time.Now().UTC().Add(9*time.Hour).Format("15:04")+" UTC")
				env.Setenv("FLEET", fleet.URL)
				env.Setenv("FLEET_CA", env.WorkDir+"/fleet.crt")
				if err := os.WriteFile(env.WorkDir+"/fleet.crt", fleet.CA(), 0o644); err != nil {
					return err
				}
				return startSilent(env)
			}
			testscript.Run(t, params)
		})
	}
}
