package main

import (
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/worlds/hostdir"
)

// TestUnchangedScripts runs commands that fail on a machine that is done: it runs its
// second system at $ROOT, and the first one is the deployment before it. The script brings the
// programs of the machine.
func TestUnchangedScripts(t *testing.T) {
	h := hostdir.New(t)
	next := h.PullCommit()
	if out, err := exec.Command("ostree", "admin", "deploy", "--sysroot="+h.Physical(), "--os=os", next).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.Boot()
	params := scripts("testdata/unchanged")
	params.Setup = func(env *testscript.Env) error {
		env.Setenv("ROOT", h.Root)
		env.Setenv("IMAGE", h.Image)
		env.Setenv("PATH", env.Getenv("WORK")+"/bin:"+env.Getenv("PATH"))
		return nil
	}
	testscript.Run(t, params)
}
