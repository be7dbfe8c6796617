package main

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
)

// TestMachineScripts runs commands on a machine that runs its first system and had no transaction. $ROOT is its root
// directory, $IMAGE the next image, $DERIVED the same with derived layers, and $DEAD one with an empty initramfs.
func TestMachineScripts(t *testing.T) { machineScripts(t, "testdata/machine") }

// TestHostileText runs a command on a machine of its own with control characters in its journal.
func TestHostileText(t *testing.T) { machineScripts(t, "testdata/text") }

func machineScripts(t *testing.T, dir string) {
	h := hostdir.New(t)
	dead := h.Push(h.NativeImage(oscontainer.WithDerived(oscontainer.File("usr/lib/modules/6.1/initramfs.img", ""))))
	derived := h.Push(h.NativeImage(oscontainer.WithChunks(2), oscontainer.WithDerived(
		oscontainer.File("usr/lib/bootc/kargs.d/10-test.toml", "kargs = [\"loglevel=4\", \"x=\\\"a b\\\"\"]\n"),
		oscontainer.File("usr/lib/bootc/kargs.d/README", "why"),
	), oscontainer.WithDerived(oscontainer.File("etc/selinux/small/contexts/files/file_contexts", ""))))
	params := scripts(dir)
	params.Cmds["harmless"] = harmless
	params.Setup = func(env *testscript.Env) error {
		_, digest, _ := strings.Cut(h.Image, "@")
		_, digestOfDerived, _ := strings.Cut(derived, "@")
		env.Setenv("DEAD", dead)
		env.Setenv("DERIVED", derived)
		env.Setenv("DERIVED_DIGEST", digestOfDerived)
		env.Setenv("COMMIT", h.Commit)
		env.Setenv("TAGGED", h.Registry.Host()+"/os/native:b")
		for name, value := range map[string]string{"ROOT": h.Root, "IMAGE": h.Image, "DIGEST": digest, "HOSTILE": "x=\u202e\u009b31m"} {
			env.Setenv(name, value)
		}
		return nil
	}
	testscript.Run(t, params)
}
