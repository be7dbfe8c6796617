package secureboot

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // SHA-384, too
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// Object identifiers of PKCS #7 and Authenticode.
const (
	oidSignedData    = "1.2.840.113549.1.7.2"
	oidIndirectData  = "1.3.6.1.4.1.311.2.1.4"
	oidMessageDigest = "1.2.840.113549.1.9.4"
	oidSHA256        = "2.16.840.1.101.3.4.2.1"
	oidSHA384        = "2.16.840.1.101.3.4.2.2"
	oidSHA512        = "2.16.840.1.101.3.4.2.3"
)

// maxCerts is the most certificates of a signature. Real ones have up to four.
const maxCerts = 20

type content struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue `asn1:"explicit,optional,tag:0"`
}

type signedData struct {
	Version int
	Digests asn1.RawValue
	Content content
	Certs   asn1.RawValue `asn1:"optional,tag:0"`
	CRLs    asn1.RawValue `asn1:"optional,tag:1"`
	Signers []signer      `asn1:"set"`
}

type signer struct {
	Version int
	ID      struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	Digest     pkix.AlgorithmIdentifier
	Signed     asn1.RawValue `asn1:"optional,tag:0"`
	Encryption pkix.AlgorithmIdentifier
	Signature  []byte
	Unsigned   asn1.RawValue `asn1:"optional,tag:1"`
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values asn1.RawValue
}

// errAltered is the error of a signature that was made for another content.
var errAltered = errors.New("its signature was made for another content")

// chain returns the certificates of a signature from which it follows that it is good: the signer's, and those of its
// issuers that it has. errAltered: it is not good. Other errors: shim, which has another library, may see more in it.
func chain(der, hash []byte) (certs []*x509.Certificate, err error) {
	var outer content
	var data signedData
	if _, err = asn1.Unmarshal(der, &outer); err == nil && outer.Type.String() == oidSignedData {
		_, err = asn1.Unmarshal(outer.Value.Bytes, &data)
	}
	if err != nil {
		return nil, fmt.Errorf("its signature cannot be read: %w", err)
	}
	var signed asn1.RawValue
	if _, err := asn1.Unmarshal(data.Content.Value.Bytes, &signed); err != nil || data.Content.Type.String() != oidIndirectData || !bytes.HasSuffix(signed.Bytes, hash) {
		return nil, errAltered
	}
	all, err := x509.ParseCertificates(data.Certs.Bytes)
	if err == nil && len(all) > maxCerts {
		err = errors.New("too many")
	}
	if err == nil && len(data.Signers) != 1 {
		err = fmt.Errorf("%d signers", len(data.Signers))
	}
	if err != nil {
		return nil, fmt.Errorf("the certificates of its signature cannot be read: %w", err)
	}
	s := data.Signers[0]
	i := slices.IndexFunc(all, func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawIssuer, s.ID.Issuer.FullBytes) && c.SerialNumber.Cmp(s.ID.Serial) == 0
	})
	if i < 0 {
		return nil, errors.New("its signature has no certificate of the signer")
	}
	if err := s.verify(all[i], signed.Bytes); err != nil {
		return nil, err
	}
	return withIssuers(all[i], all), nil
}

// verify returns nil if a certificate's key has made the signature of the content.
func (s signer) verify(cert *x509.Certificate, content []byte) error {
	kind, known := map[string]crypto.Hash{oidSHA256: crypto.SHA256, oidSHA384: crypto.SHA384, oidSHA512: crypto.SHA512}[s.Digest.Algorithm.String()]
	key, isRSA := cert.PublicKey.(*rsa.PublicKey)
	if !known || !isRSA {
		return fmt.Errorf("its signature is of a kind that is not known here (%s, %s)", s.Digest.Algorithm, cert.PublicKeyAlgorithm)
	}
	hash := func(text []byte) []byte {
		h := kind.New()
		h.Write(text)
		return h.Sum(nil)
	}
	if attributes := s.Signed.FullBytes; len(attributes) > 0 {
		if !bytes.Equal(s.messageDigest(), hash(content)) {
			return errAltered
		}
		content = slices.Concat([]byte{0x31}, attributes[1:]) // they are signed as the set that they are
	}
	if rsa.VerifyPKCS1v15(key, kind, hash(content), s.Signature) != nil {
		return errAltered
	}
	return nil
}

// messageDigest returns the signed hash of the content.
func (s signer) messageDigest() (hash []byte) {
	for rest := s.Signed.Bytes; len(rest) > 0; {
		var a attribute
		var err error
		if rest, err = asn1.Unmarshal(rest, &a); err != nil {
			return nil
		}
		if a.Type.String() == oidMessageDigest {
			if _, err := asn1.Unmarshal(a.Values.Bytes, &hash); err != nil {
				return nil
			}
		}
	}
	return hash
}

// withIssuers returns a certificate with those of its issuers, and their issuers, that are among others. Times of validity
// do not count.
func withIssuers(cert *x509.Certificate, among []*x509.Certificate) []*x509.Certificate {
	found := []*x509.Certificate{cert}
	for i := 0; i < len(found); i++ {
		for _, c := range among {
			if !slices.Contains(found, c) && issued(c, found[i]) {
				found = append(found, c)
			}
		}
	}
	return found
}

// issued reports whether the key of one certificate has signed another.
func issued(issuer, cert *x509.Certificate) bool {
	if !bytes.Equal(issuer.RawSubject, cert.RawIssuer) || issuer.BasicConstraintsValid && !issuer.IsCA ||
		issuer.KeyUsage != 0 && issuer.KeyUsage&x509.KeyUsageCertSign == 0 {
		return false
	}
	return issuer.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil
}

// signers reports whether a database has one of the certificates of a chain, or an issuer of one.
func (d database) signers(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
		hash := sha256.Sum256(c.RawTBSCertificate)
		return slices.ContainsFunc(d.revoked, func(r []byte) bool { return bytes.HasPrefix(r, hash[:]) }) ||
			slices.ContainsFunc(d.certs, func(known *x509.Certificate) bool { return known.Equal(c) || issued(known, c) })
	})
}
