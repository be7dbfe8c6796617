package efi

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"slices"
	"time"
)

// Key is a key with its certificate.
type Key struct {
	Cert *x509.Certificate
	key  *rsa.PrivateKey
}

// NewKey makes a key with a certificate that an issuer signs; nil: itself. The certificate has expired, which no firmware and no
// shim minds. change, if not nil, changes the certificate.
func NewKey(name string, issuer *Key, change func(*x509.Certificate)) (*Key, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(1e9, 0), NotAfter: time.Unix(1.1e9, 0),
		BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	k := &Key{key: key}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.Cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err == nil {
		k.Cert, err = x509.ParseCertificate(der)
	}
	return k, err
}

type algorithm struct {
	ID   asn1.ObjectIdentifier
	Null asn1.RawValue
}

type signerInfo struct {
	Version int
	ID      struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	Digest     algorithm
	Attributes []attribute `asn1:"set,tag:0"`
	Encryption algorithm
	Signature  []byte
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values []any `asn1:"set"`
}

type contentInfo struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// Sign adds a signature to a program, with the certificates of issuers. The program must be as Hash wants it.
func (k *Key) Sign(program []byte, issuers ...*Key) ([]byte, error) {
	signature, err := k.signature(Hash(program), issuers)
	if err != nil {
		return nil, err
	}
	return attach(program, signature), nil
}

// signature returns Authenticode's signature of a hash, as the 2008 specification has it.
func (k *Key) signature(hash []byte, issuers []*Key) ([]byte, error) {
	sha, encryption := algorithm{asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, asn1.NullRawValue}, algorithm{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, asn1.NullRawValue}
	indirect := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 4}
	type image struct{ Flags asn1.BitString }
	type data struct {
		Type  asn1.ObjectIdentifier
		Value image
	}
	type digest struct {
		Algorithm algorithm
		Digest    []byte
	}
	content, err := asn1.Marshal(struct {
		Data   data
		Digest digest
	}{data{asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 15}, image{}}, digest{sha, hash}})
	if err != nil {
		return nil, err
	}
	var inner asn1.RawValue
	if _, err := asn1.Unmarshal(content, &inner); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(inner.Bytes)
	info := signerInfo{Version: 1, Digest: sha, Encryption: encryption, Attributes: []attribute{
		{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}, []any{indirect}},
		{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}, []any{sum[:]}},
	}}
	info.ID.Issuer, info.ID.Serial = asn1.RawValue{FullBytes: k.Cert.RawIssuer}, k.Cert.SerialNumber
	attributes, err := asn1.MarshalWithParams(info.Attributes, "set")
	if err != nil {
		return nil, err
	}
	signed := sha256.Sum256(attributes)
	if info.Signature, err = rsa.SignPKCS1v15(rand.Reader, k.key, crypto.SHA256, signed[:]); err != nil {
		return nil, err
	}
	certs := slices.Clone(k.Cert.Raw)
	for _, issuer := range issuers {
		certs = append(certs, issuer.Cert.Raw...)
	}
	whole, err := asn1.Marshal(struct {
		Version int
		Digests []algorithm `asn1:"set"`
		Content contentInfo
		Certs   asn1.RawValue
		Signers []signerInfo `asn1:"set"`
	}{1, []algorithm{sha}, contentInfo{indirect, tagged(content)}, tagged(certs), []signerInfo{info}})
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(contentInfo{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, tagged(whole)})
}

func tagged(content []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: content}
}
