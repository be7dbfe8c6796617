package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
)

// policyPath is the system's signature policy, containers-policy.json(5). Unlike in podman it
// takes precedence over a user's policy: the administrator decides what the machine runs.
const policyPath = "/etc/containers/policy.json"

// ruling is the rule of the signature policy for a reference. The requested reference
// determines the rule, even if the image comes from a mirror; the signatures are read from
// the mirror.
type ruling struct {
	policy
	rule
	requested types.ImageReference
	signed    bool // the reference requires a signature
}

// rulingOn finds the rule for an image at an endpoint. It returns an error if the rule rejects every image.
func (h *Host) rulingOn(ctx context.Context, at endpoint) (ruling, error) {
	if remote := at.asked.OstreeRemote(); remote != "" {
		return ruling{}, imagefault.Final(fault.New(fault.Refused, "checking the commit with the keys of the ostree remote %q is not implemented", remote).
			WithHint("require signatures of the image in %s and use ostree-image-signed:docker://…", h.shown(policyPath)))
	}
	policy, err := h.policy()
	if err != nil {
		return ruling{}, imagefault.Final(fault.New(fault.Refused, "cannot read the signature policy: %w", err).
			WithHint("correct %s, see containers-policy.json(5)", policy.origin))
	}
	requested, err := h.requested(at.ref, at.asked)
	if err != nil {
		return ruling{}, err
	}
	r := ruling{policy: policy, rule: policy.ruleFor(requested), requested: requested, signed: at.asked.Signed()}
	if err := r.allows(ctx, nameOnly{requested}); !errors.Is(err, errNotRead) {
		return r, err
	}
	return r, nil
}

// accept checks an image against the rule, and records the rule in the image.
func (r ruling) accept(ctx context.Context, at endpoint, instance *image.UnparsedImage, o *Image) error {
	if r.absent {
		o.Notes = append(o.Notes, fmt.Sprintf("no signature policy (%s): images are accepted without a signature", r.origin))
	}
	if r.readsSignatures() {
		// Fetch the signatures here, so that a failure of the network is not mistaken for a
		// rejection below. The image caches them.
		if _, err := instance.Signatures(ctx); err != nil {
			return at.classifier.signatures(ctx, err)
		}
	}
	if err := r.allows(ctx, image.UnparsedInstanceWithReference(instance, r.requested)); err != nil {
		if err := r.allowsWith(ctx, at, instance, err); err != nil {
			return err
		}
	}
	o.Policy = r.rule.String()
	return nil
}

// allows returns a rejection if the policy does not accept an image.
func (r ruling) allows(ctx context.Context, image types.UnparsedImage) error {
	if err := allowed(ctx, r.Policy, r.signed, image); err != nil {
		return imagefault.Final(fault.New(fault.Refused, "the signature policy rejects it by %s: %w", r.rule, err).
			WithHint(r.advice(r.signed), r.origin))
	}
	return nil
}

// nameOnly is an image of which only the name is known. It is used to find out whether the
// policy rejects the image by its name, before the registry is contacted.
type nameOnly struct{ reference types.ImageReference }

// errNotRead means that the policy cannot decide by the name alone.
var errNotRead = errors.New("the image was not looked at yet")

// Reference implements types.UnparsedImage.
func (u nameOnly) Reference() types.ImageReference { return u.reference }

// Manifest implements types.UnparsedImage.
func (nameOnly) Manifest(context.Context) ([]byte, string, error) { return nil, "", errNotRead }

// Signatures implements types.UnparsedImage.
func (nameOnly) Signatures(context.Context) ([][]byte, error) { return nil, errNotRead }

func allowed(ctx context.Context, policy *signature.Policy, signed bool, image types.UnparsedImage) (err error) {
	check, err := signature.NewPolicyContext(policy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, check.Destroy()) }()
	check.RequireSignatureVerification(signed)
	_, err = check.IsRunningImageAllowed(ctx, image)
	return err
}

// signatures classifies a failure to fetch signatures, which may be on another server than
// the image.
func (c classifier) signatures(ctx context.Context, err error) error {
	kind := fault.KindOf(c.classify(ctx, err, fault.Refused))
	return fault.New(kind, "cannot fetch its signatures: %w", err).
		WithHint("does this machine reach the places that the files in %s name for %s?", c.shown("/etc/containers/registries.d"), c.ref.Host())
}

// policy is a signature policy and its origin.
type policy struct {
	*signature.Policy
	origin string // the file that it was read from
	absent bool   // there is no policy file; every image is accepted
}

// policy reads the first of the policies that exists: the system's, or else what the library would find, such
// as the image's in /usr/share. A file that is there and cannot be read is an error, also a link to nothing.
func (h *Host) policy() (found policy, err error) {
	found.origin = h.shown(policyPath)
	search := h.search("policy", "json")
	search.DoNotLoadDropInFiles, search.EnvironmentName = true, "CONTAINERS_POLICY_JSON"
	paths, err := configfile.GetSearchPaths(search)
	if err != nil {
		return found, err
	}
	named := os.Getenv(search.EnvironmentName)
	for _, name := range append([]string{found.origin}, paths.MainFiles...) {
		there, err := h.exists(name)
		if err != nil {
			return found, err
		}
		if there || name == named {
			found.origin = name
			found.Policy, err = h.readPolicy(name)
			return found, err
		}
	}
	found.absent = true
	found.Policy = &signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}}
	return found, nil
}

func (h *Host) readPolicy(name string) (*signature.Policy, error) {
	text, err := h.readFile(name)
	if err != nil {
		return nil, err
	}
	return h.parsePolicy(text)
}

// rule is the part of a policy that applies to an image.
type rule struct {
	scope        string // as in policy.json: transports.docker["quay.io"], or default
	requirements signature.PolicyRequirements
	types        []string // the types of the requirements, all of which must be met
}

// sigstoreSigned is the type of a requirement of Sigstore signatures.
const sigstoreSigned = "sigstoreSigned"

func (r rule) String() string { return r.scope + ": " + strings.Join(r.types, ", ") }

func (r rule) readsSignatures() bool {
	return slices.Contains(r.types, "signedBy") || slices.Contains(r.types, sigstoreSigned)
}

// advice returns the hint after a rejection, with %s for the policy's path.
func (r rule) advice(signed bool) string {
	switch {
	case r.readsSignatures():
		return "have the image signed as the rule wants it, or change the rule in %s"
	case signed:
		return "require a signature (signedBy, sigstoreSigned) of the image in %s, or do not ask for ostree-image-signed"
	}
	return "allow the image, its repository or its registry in %s"
}

// ruleFor returns the rule that the library applies: that of the transport's most specific
// scope that matches, then that of its empty scope, then the default.
func (p policy) ruleFor(ref types.ImageReference) rule {
	if p.absent {
		return rule{"no policy file", p.Default, typesOf(p.Default)}
	}
	transport := ref.Transport().Name()
	scopes := append([]string{ref.PolicyConfigurationIdentity()}, ref.PolicyConfigurationNamespaces()...)
	for _, scope := range append(scopes, "") {
		if requirements, ok := p.Transports[transport][scope]; ok {
			return rule{fmt.Sprintf("transports.%s[%q]", transport, scope), requirements, typesOf(requirements)}
		}
	}
	return rule{"default", p.Default, typesOf(p.Default)}
}

// typesOf returns the types of requirements, which the library exports only in JSON.
func typesOf(requirements signature.PolicyRequirements) []string {
	names := make([]string, len(requirements))
	for i, requirement := range requirements {
		var common struct{ Type string }
		text, err := json.Marshal(requirement)
		if err == nil {
			err = json.Unmarshal(text, &common)
		}
		if names[i] = common.Type; err != nil {
			names[i] = "unknown"
		}
	}
	return names
}
