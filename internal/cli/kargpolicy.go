package cli

import (
	"context"

	"github.com/spf13/cobra"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/kargs"
)

// KargPolicy is the flag --karg-policy, the administrator's policy for kernel arguments. Each command
// that judges kernel arguments without a machine has it.
type KargPolicy struct{ File string }

// Add adds the flag.
func (f *KargPolicy) Add(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&f.File, "karg-policy", "", usage)
}

// Read returns the built-in policy with the rules of the file, and the text of the file; nil if none is
// given. A command calls it once: a pipe cannot be read again.
func (f *KargPolicy) Read(ctx context.Context) (policy kargs.Policy, text []byte, err error) {
	policy = kargs.DefaultPolicy()
	if f.File == "" {
		return policy, nil, nil
	}
	if text, err = (input.File{What: "the policy for kernel arguments", Path: f.File}).Read(ctx); err != nil {
		return policy, nil, err
	}
	if policy, err = policy.Extend(string(text)); err != nil {
		return policy, nil, fault.New(fault.BadInput, "cannot use the policy for kernel arguments %s:\n%w", f.File, err)
	}
	return policy, text, nil
}
