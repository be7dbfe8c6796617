package source

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha256" // crypto.SHA256
	_ "crypto/sha512" // crypto.SHA384, crypto.SHA512
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// minRSA is the minimum size of an RSA key, in bits.
const minRSA = 2048

// parseKey parses a public key in PEM format, as cosign.pub.
func parseKey(text []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("it is no public key in PEM format")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	return key, checkKey(key)
}

// checkKey returns an error for a key with which verifyBundle cannot verify.
func checkKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if hashFor(key) == 0 {
			return fmt.Errorf("its curve %s is not supported", key.Params().Name)
		}
		return nil
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSA {
			return fmt.Errorf("it is an RSA key of %d bits, want %d or more", key.N.BitLen(), minRSA)
		}
		return nil
	}
	return fmt.Errorf("a key of the type %T is not supported", key)
}

// hashFor returns the hash that sigstore signs with by a key on a curve (protobuf-specs, PublicKeyDetails); 0
// for another curve.
func hashFor(key *ecdsa.PublicKey) crypto.Hash {
	switch key.Curve {
	case elliptic.P256():
		return crypto.SHA256
	case elliptic.P384():
		return crypto.SHA384
	case elliptic.P521():
		return crypto.SHA512
	}
	return 0
}

// verified returns an error unless one of the keys has signed the message.
func verified(message, sig []byte, keys []crypto.PublicKey) error {
	for _, key := range keys {
		if signedBy(key, message, sig) {
			return nil
		}
	}
	return errors.New("it is signed by none of the keys")
}

func signedBy(key crypto.PublicKey, message, sig []byte) bool {
	sum := func(h crypto.Hash) []byte {
		hash := h.New()
		hash.Write(message)
		return hash.Sum(nil)
	}
	if checkKey(key) != nil {
		return false
	}
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum(hashFor(key)), sig)
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, sig)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum(crypto.SHA256), sig) == nil
	}
	return false
}
