package main

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/hostdir"
)

// TestMachineScripts runs commands on a machine that has booted its first system and
// of which nothing was asked yet: root directory $ROOT, its next image $IMAGE.
func TestMachineScripts(t *testing.T) {
	h := hostdir.New(t)
	params := scripts("testdata/machine")
	params.Cmds["harmless"] = harmless
	params.Setup = func(env *testscript.Env) error {
		_, digest, _ := strings.Cut(h.Image, "@")
		for name, value := range map[string]string{"ROOT": h.Root, "IMAGE": h.Image, "DIGEST": digest, "HOSTILE": "x=\u202e\u009b31m"} {
			env.Setenv(name, value)
		}
		return nil
	}
	testscript.Run(t, params)
}
