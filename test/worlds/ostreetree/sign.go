package ostreetree

import (
	"crypto/ed25519"
	"encoding/base64"
	"os"
	"path/filepath"

	"machine-pivot/internal/ostree/gvariant"
)

// Key returns a key to sign with, always the same for a seed, and the line with its public part as
// ostree-prepare-root reads it.
func Key(seed byte) (key ed25519.PrivateKey, public string) {
	key = ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed))
	return key, base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)) + "\n"
}

// Sign gives a commit in a repository signatures by keys, and no others, as "ostree sign" does.
func Sign(repo, commit string, keys ...ed25519.PrivateKey) error {
	object := filepath.Join(repo, "objects", commit[:2], commit[2:])
	data, err := os.ReadFile(object + ".commit")
	if err != nil {
		return err
	}
	signatures := []any{}
	for _, key := range keys {
		signatures = append(signatures, ed25519.Sign(key, data))
	}
	meta, err := gvariant.Encode("a{sv}", []any{gvariant.Tuple{"ostree.sign.ed25519", gvariant.Variant{Type: "aay", Value: signatures}}})
	if err != nil {
		return err
	}
	return os.WriteFile(object+".commitmeta", meta, 0o644)
}
