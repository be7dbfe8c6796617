package source

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.podman.io/image/v5/docker/reference"
)

// identity is a signedIdentity of a policy: which name a signature must give the image
// (containers-policy.json(5)). The library applies it only to signatures in its own formats.
type identity struct {
	Type             string `json:"type"`
	DockerReference  string `json:"dockerReference"`
	DockerRepository string `json:"dockerRepository"`
	Prefix           string `json:"prefix"`
	SignedPrefix     string `json:"signedPrefix"`
}

// accepts reports whether an image that was requested by a name may have a signature with another one.
func (i identity) accepts(requested reference.Named, signed string) (bool, error) {
	name, err := reference.ParseNormalizedNamed(signed)
	if err != nil {
		return false, fmt.Errorf("the signed name %q: %w", signed, err)
	}
	switch i.Type {
	case "matchExact":
		return sameReference(requested, name), nil
	case "matchRepoDigestOrExact":
		return sameUnlessDigest(requested, name), nil
	case "matchRepository":
		return requested.Name() == name.Name(), nil
	case "exactReference":
		wanted, err := reference.ParseNormalizedNamed(i.DockerReference)
		return err == nil && sameReference(wanted, name), err
	case "exactRepository":
		wanted, err := reference.ParseNormalizedNamed(i.DockerRepository)
		return err == nil && wanted.Name() == name.Name(), err
	case "remapIdentity":
		remapped, err := i.remapped(requested)
		return err == nil && sameUnlessDigest(remapped, name), err
	}
	return false, fmt.Errorf("the signedIdentity %q is not supported for Sigstore bundles", i.Type)
}

// sameReference reports whether two names, both with a tag or digest, are equal.
func sameReference(wanted, signed reference.Named) bool {
	return !reference.IsNameOnly(wanted) && !reference.IsNameOnly(signed) && wanted.String() == signed.String()
}

// sameUnlessDigest is sameReference, but if the image is requested by its digest alone, only the repositories must
// be equal: the digest is compared in any case.
func sameUnlessDigest(wanted, signed reference.Named) bool {
	if _, tagged := wanted.(reference.Tagged); tagged || reference.IsNameOnly(wanted) || reference.IsNameOnly(signed) {
		return sameReference(wanted, signed)
	}
	return wanted.Name() == signed.Name()
}

// remapped returns the name under which the requested image was signed.
func (i identity) remapped(requested reference.Named) (reference.Named, error) {
	rest, below := strings.CutPrefix(requested.Name(), i.Prefix)
	if !below || rest != "" && !strings.HasPrefix(rest, "/") {
		return requested, nil
	}
	return reference.ParseNamed(i.SignedPrefix + strings.TrimPrefix(requested.String(), i.Prefix))
}

// identityOf parses a signedIdentity; without one, it is the default.
func identityOf(text json.RawMessage) (identity, error) {
	i := identity{Type: "matchRepoDigestOrExact"}
	if len(text) == 0 {
		return i, nil
	}
	err := json.Unmarshal(text, &i)
	return i, err
}
