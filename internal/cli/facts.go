package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
)

// maxFacts limits a document with facts, in bytes. A machine with a hundred disks has some 200 KB.
const maxFacts = 16 << 20

// ReadFacts reads a document that pivot facts has printed. isWhole reports whether into has what the command needs.
func ReadFacts(cmd *cobra.Command, path string, into any, isWhole func() bool) error {
	data, err := input.File{What: "the facts", Path: path, Max: maxFacts, Stdin: cmd.InOrStdin()}.Read(cmd.Context())
	if err != nil {
		return err
	}
	var kind struct{ Kind api.Kind }
	if err = json.Unmarshal(data, &kind); err == nil {
		err = json.Unmarshal(data, into)
	}
	if err == nil && kind.Kind == api.Facts && isWhole() {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("it is no whole document of kind %s", api.Facts)
	}
	return fault.New(fault.BadInput, "cannot use the facts in %s: %w", path, err).WithHint("have the machine print them: pivot facts")
}
