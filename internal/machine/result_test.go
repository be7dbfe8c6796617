package machine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/machine"
	"machine-pivot/internal/verdict"
)

// TestVerdicts: the result of a run that was refused has the names of the verdicts, each once, however the error is wrapped.
func TestVerdicts(t *testing.T) {
	found := []verdict.Finding{
		{Name: verdict.TPM, Weight: verdict.Refused, Text: "x"}, {Name: verdict.TPM, Weight: verdict.Refused, Text: "y"},
		{Name: verdict.Drivers, Weight: verdict.Refused, Text: "z"}, {Name: verdict.Processor, Weight: verdict.Warned, Text: "w"},
	}
	_, _, err := verdict.Decide(found, nil)
	data, failed := json.Marshal(machine.Result{}.Completed(fmt.Errorf("cannot pull: %w", err)))
	if failed != nil || !strings.Contains(string(data), `"class":"refused"`) || !strings.Contains(string(data), `"verdicts":["tpm","drivers"]`) {
		t.Errorf("%s, %v", data, failed)
	}
	_, _, err = verdict.Decide(found, []verdict.Name{verdict.TPM, verdict.Drivers})
	if err != nil {
		t.Error(err)
	}
}
