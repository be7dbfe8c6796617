package osimage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"

	"machine-pivot/fault"
)

// policyPath is the system's signature policy, containers-policy.json(5). It
// comes before a user's, unlike in podman: what the machine runs is decided by
// the machine's administrator.
const policyPath = "/etc/containers/policy.json"

// checkPolicy holds an image against the signature policy.
func (p *Puller) checkPolicy(ctx context.Context, sys *types.SystemContext, ref Reference, image types.UnparsedImage) (err error) {
	if remote, ok := strings.CutPrefix(string(ref.trust), string(trustRemote)+":"); ok {
		return fault.New(fault.Refused, "checking the commit with the keys of the ostree remote %q is not implemented", remote).
			WithHint("require signatures of the image in %s and use %s:docker://…", p.path(policyPath), trustSigned)
	}
	policy, err := p.policy(sys)
	if err != nil {
		return fault.New(fault.Refused, "cannot read the signature policy: %w", err)
	}
	check, err := signature.NewPolicyContext(policy)
	if err != nil {
		return fmt.Errorf("cannot use the signature policy: %w", err)
	}
	defer func() { err = errors.Join(err, check.Destroy()) }()
	check.RequireSignatureVerification(ref.trust == trustSigned)
	if _, err := check.IsRunningImageAllowed(ctx, image); err != nil {
		return rejection(err, p.path(policyPath))
	}
	return nil
}

// rejection tells a policy's "no" from a failure to fetch signatures.
func rejection(err error, path string) error {
	if _, ok := errors.AsType[signature.PolicyRequirementError](err); ok {
		return fault.New(fault.Refused, "the signature policy rejects it: %w", err).
			WithHint("the policy is %s; have the image signed or trust its key there", path)
	}
	return fmt.Errorf("cannot check the signature: %w", err)
}

// policy reads the system's policy, else whatever the library finds by default.
// Without any policy file each image is accepted, and that is said.
func (p *Puller) policy(sys *types.SystemContext) (*signature.Policy, error) {
	path := p.path(policyPath)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return signature.NewPolicyFromFile(path)
	}
	policy, err := signature.DefaultPolicy(sys)
	if !errors.Is(err, configfile.ErrConfigFileNotFound) {
		return policy, err
	}
	p.log("no signature policy (%s): images are accepted without a signature", path)
	return &signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}}, nil
}
