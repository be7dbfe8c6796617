package osimage_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// serializer is a key or a signature.
type serializer interface{ Serialize(io.Writer) error }

// exported returns a key file as gpg --export writes it.
func exported(t *testing.T, of serializer) string {
	t.Helper()
	var b bytes.Buffer
	if err := of.Serialize(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// armoured returns a key file as gpg --armor --export writes it.
func armoured(t *testing.T, of serializer) string {
	t.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err == nil {
		err = errors.Join(of.Serialize(w), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}

// again returns a copy of a key that can be changed.
func again(t *testing.T, key *openpgp.Entity) *openpgp.Entity {
	t.Helper()
	var b bytes.Buffer
	if err := key.SerializePrivateWithoutSigning(&b, nil); err != nil {
		t.Fatal(err)
	}
	read, err := openpgp.ReadKeyRing(&b)
	if err != nil {
		t.Fatal(err)
	}
	return read[0]
}

// withoutEnd returns a copy of a key that has no end by its newest signature of itself.
func withoutEnd(t *testing.T, key *openpgp.Entity) *openpgp.Entity {
	t.Helper()
	key = again(t, key)
	id := key.PrimaryIdentity()
	s := *id.SelfSignature
	s.CreationTime, s.KeyLifetimeSecs = time.Now(), nil
	if err := s.SignUserId(id.UserId.Id, key.PrimaryKey, key.PrivateKey, nil); err != nil {
		t.Fatal(err)
	}
	id.SelfSignature, id.Signatures = &s, append(slices.Clone(id.Signatures), &s)
	return key
}

// TestKeysAsGPG: a key file of the signature policy means what gpg, which podman and skopeo ask, reads from it. Each line was
// tried with skopeo and GnuPG, but for the revocations behind another key, which gpg does not apply.
func TestKeysAsGPG(t *testing.T) {
	h := newHost(t, registry.Options{})
	lookaside := t.TempDir()
	name := h.registry.Host() + "/test/os"
	h.lookFor(name, "file://"+lookaside)
	a, b := newGPGSigner(t, lookaside).(gpgSigner), newGPGSigner(t, lookaside).(gpgSigner)
	revoked, sub := gpgSigner{again(t, a.key), lookaside}, gpgSigner{again(t, a.key), lookaside}
	old, err := openpgp.NewEntity("old", "", "old@example.com", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: 3600, Time: func() time.Time { return time.Now().Add(-2 * time.Hour) },
	})
	if err := errors.Join(err, revoked.key.RevokeKey(packet.NoReason, "", nil), sub.key.AddSigningSubkey(nil)); err != nil {
		t.Fatal(err)
	}
	renewed := gpgSigner{withoutEnd(t, old), lookaside}
	revocation := revoked.key.Revocations[0]
	armA, armB, binA, binB := armoured(t, a.key), armoured(t, b.key), exported(t, a.key), exported(t, b.key)
	checksum := regexp.MustCompile(`\n=[^\n]{4}\n`)
	cut, none := armB[:len(armB)/2], "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
	for what, c := range map[string]struct {
		by    gpgSigner
		files []string
		trust bool
	}{
		"one block":                              {a, []string{armA}, true},
		"the first block":                        {a, []string{armA + armB}, true},
		"the second block":                       {a, []string{armB + armA}, true},
		"a block between other lines":            {a, []string{"The key of b:\n\n" + armB + "and that of a:\n" + armA + "end\n"}, true},
		"lines as in DOS":                        {a, []string{strings.ReplaceAll(armB+armA, "\n", "\r\n")}, true},
		"binary, the second":                     {a, []string{binB + binA}, true},
		"binary, behind a block":                 {a, []string{armB + binA}, false},
		"a block behind binary":                  {a, []string{binB + armA}, false},
		"two files":                              {a, []string{armB, binA}, true},
		"another key":                            {a, []string{armB}, false},
		"with a subkey, by the key":              {a, []string{armoured(t, sub.key)}, true},
		"by a subkey":                            {sub, []string{armoured(t, sub.key)}, false},
		"revoked":                                {a, []string{armoured(t, revoked.key)}, false},
		"revoked by a block of its own":          {a, []string{armA + armoured(t, revocation)}, false},
		"revoked by a file of its own":           {a, []string{armA, exported(t, revocation)}, false},
		"revoked in the second copy":             {a, []string{armA + armoured(t, revoked.key)}, false},
		"revoked in the second copy, binary":     {a, []string{binA + exported(t, revoked.key)}, false},
		"revoked in the second file":             {a, []string{armA, armoured(t, revoked.key)}, false},
		"revoked, in the first copy":             {a, []string{armoured(t, revoked.key) + armA}, false},
		"revoked behind another key":             {a, []string{binA + binB + exported(t, revocation)}, false},
		"another key with that revocation":       {b, []string{binA + binB + exported(t, revocation)}, true},
		"a revocation before its key":            {a, []string{armoured(t, revocation) + armA}, true},
		"ended, and renewed in the second copy":  {renewed, []string{armoured(t, old) + armoured(t, renewed.key)}, true},
		"ended, and renewed in the first copy":   {renewed, []string{armoured(t, renewed.key) + armoured(t, old)}, true},
		"ended":                                  {renewed, []string{armoured(t, old)}, false},
		"a block that is cut off behind it":      {a, []string{armA + cut}, false},
		"a block that is cut off before it":      {a, []string{cut + armA}, false},
		"a block without a key":                  {a, []string{armA + none}, false},
		"a file that is damaged, beside another": {a, []string{armA, none}, false},
		"no key at all":                          {a, []string{"nothing"}, false},
		"indented":                               {a, []string{strings.ReplaceAll(armA, "\n", "\n  ")}, true},
		"all lines indented":                     {a, []string{"  " + strings.ReplaceAll(armA, "\n", "\n  ")}, false},
		"binary behind an empty line":            {a, []string{"\n" + binA}, false},
		"no checksum":                            {a, []string{checksum.ReplaceAllString(armA, "\n")}, false},
		"another checksum":                       {a, []string{checksum.ReplaceAllString(armA, "\n=AAAA\n")}, false},
		"no empty line behind the headers":       {a, []string{strings.Replace(armA, "\n\n", "\n", 1)}, true},
		"other characters between":               {a, []string{strings.Replace(armA, "\n\n", "\nComment: a: b\n\n! ", 1)}, true},
	} {
		t.Run(what, func(t *testing.T) {
			tag := fmt.Sprintf("%x", what)
			ref, digest := h.push(tag[:min(len(tag), 100)], plain(t, oscontainer.WithLabel("signed", what)))
			signed := claim{identity: ref.String(), digest: digest}
			c.by.store(t, h.registry, digest, signed, c.by.sign(t, signed))
			var paths []string
			for n, text := range c.files {
				paths = append(paths, fmt.Sprintf("/etc/keys/%d", n))
				h.write(paths[n], text)
			}
			list, err := json.Marshal(paths)
			if err != nil {
				t.Fatal(err)
			}
			named := `"keyPaths":` + string(list)
			ways := map[string]string{"paths": named}
			if len(paths) == 1 {
				ways["path"] = fmt.Sprintf(`"keyPath":%q`, paths[0])
				ways["data"] = fmt.Sprintf(`"keyData":%q`, base64.StdEncoding.EncodeToString([]byte(c.files[0])))
			}
			for way, keys := range ways {
				h.policy(name, `{"type":"signedBy","keyType":"GPGKeys",`+keys+`}`)
				switch _, err := h.lookUp(t.Context(), ref); {
				case c.trust && err != nil:
					t.Errorf("by %s: %v", way, err)
				case !c.trust:
					refused(t, err, fault.Refused, "the signature policy rejects it by ", "signed as the rule wants")
				}
			}
		})
	}
}
