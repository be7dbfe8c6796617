package fleet_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"machine-pivot/test/tools/need"
)

// The module with the schemas that the machine-config operator installs: the newest version that could be had in
// November 2026, and its hash as in a go.sum.
const (
	operatorsModule = "github.com/openshift/api@v0.0.0-20260813212709-d4bb0b443cb8"
	operatorsSum    = "h1:SLdLnLLwLeQI5iJNOsRNYfb9mTme1G2FmmM2T7Nly44="
)

// operatorsSchemas returns the files with the operator's CustomResourceDefinitions of the kinds that ours have, too,
// for a cluster that runs its own control plane.
func operatorsSchemas(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operatorsModule)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		need.Lacking(t, "needs the schemas of the machine-config operator, by the Go proxy: "+err.Error()+"\n"+string(out))
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil || module.Sum != operatorsSum {
		t.Fatalf("%s has the hash %s, want %s: %v", operatorsModule, module.Sum, operatorsSum, err)
	}
	var files []string
	for _, name := range []string{"containerruntimeconfigs", "machineconfignodes-SelfManagedHA-Default", "machineconfigpools-SelfManagedHA", "machineconfigs"} {
		files = append(files, filepath.Join(module.Dir, "machineconfiguration/v1/zz_generated.crd-manifests", "0000_80_machine-config_01_"+name+".crd.yaml"))
	}
	return files
}
