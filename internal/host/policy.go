package host

import (
	"errors"
	"io/fs"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/kargs"
)

// KargPolicy returns the policy for kernel arguments on this machine: the built-in policy,
// followed by the rules of the administrator's file, if it exists.
func (h *Host) KargPolicy() (kargs.Policy, error) {
	policy := kargs.DefaultPolicy()
	text, err := hostfiles.ReadSettings(h.Root, kargs.PolicyPath)
	if errors.Is(err, fs.ErrNotExist) {
		return policy, nil
	}
	if err == nil {
		policy, err = policy.Extend(string(text))
	}
	if err != nil {
		return kargs.Policy{}, fault.New(fault.BadInput, "cannot use the policy for kernel arguments %s:\n%w", kargs.PolicyPath, err).
			WithHint("correct %s, or remove it: then only the built-in policy applies", kargs.PolicyPath)
	}
	return policy, nil
}
