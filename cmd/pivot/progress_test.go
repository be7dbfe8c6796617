package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/hostdir"
)

// TestProgressScripts (P63, P64, P65): what is told of a run while it goes on, and other scripts that write the status of their machine, each
// with a machine of its own, for its status is: root directory $ROOT, its next image $IMAGE.
func TestProgressScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/progress/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			h := hostdir.New(t)
			params := scripts("")
			params.Files = []string{file}
			params.Setup = func(env *testscript.Env) error {
				env.Setenv("ROOT", h.Root)
				env.Setenv("IMAGE", h.Image)
				return startSilent(env)
			}
			testscript.Run(t, params)
		})
	}
}
