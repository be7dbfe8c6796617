package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/hostdir"
)

// TestAnsible builds and installs the Ansible collection, and runs its module by the real
// Ansible on a machine with root directory $ROOT.
func TestAnsible(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Ansible")
	}
	need.Program(t, "ansible-playbook")
	h := hostdir.New(t)
	collection, err := filepath.Abs("../../contrib/ansible")
	if err != nil {
		t.Fatal(err)
	}
	params := scripts("testdata/ansible")
	params.Setup = func(env *testscript.Env) error {
		for name, value := range map[string]string{
			"ROOT": h.Root, "COLLECTION": collection, "HOME": env.WorkDir, "LC_ALL": "C.UTF-8",
			"ANSIBLE_COLLECTIONS_PATH": filepath.Join(env.WorkDir, "collections"), "ANSIBLE_LOCALHOST_WARNING": "False",
			"ANSIBLE_INVENTORY_UNPARSED_WARNING": "False", "ANSIBLE_NOCOLOR": "1",
		} {
			env.Setenv(name, value)
		}
		return nil
	}
	testscript.Run(t, params)
}
