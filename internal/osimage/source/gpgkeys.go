package source

import (
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"regexp"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Tags of OpenPGP packets (RFC 9580, 5.).
const (
	tagSignature = 2
	tagSecretKey = 5
	tagPublicKey = 6
	tagUserID    = 13
)

// asGPG replaces the key files of a requirement "signedBy" by one binary keyring with what gpg imports from them. Podman and
// skopeo ask gpg, and the requirement must accept the same signatures here. The rules of gpg are:
//   - Each armoured block of a file counts.
//   - A key that is there more than once has the signatures and the revocations of all copies.
//   - No subkey signs.
//   - A file with a part that gpg cannot read has no keys. A block without its checksum is such a part.
//
// The library's own reader takes the first block and the first copy, and subkeys. Unlike for gpg, a revocation counts
// for each key that was read before it, wherever it stands.
func asGPG(requirement map[string]any) {
	if requirement["type"] != "signedBy" || requirement["keyType"] != "GPGKeys" {
		return
	}
	texts, err := keyTexts(requirement)
	if err != nil {
		return // the library reports it, if it needs the file
	}
	var all keyring
	data := []byte{0} // what the library refuses
	for _, text := range texts {
		if !all.add(text) {
			all = nil
			break
		}
	}
	if len(all) > 0 {
		data = all.bytes()
	}
	delete(requirement, "keyPath")
	delete(requirement, "keyPaths")
	requirement["keyData"] = base64.StdEncoding.EncodeToString(data)
}

// keyTexts returns the contents of the key files of a requirement, in their order.
func keyTexts(requirement map[string]any) (texts [][]byte, err error) {
	if data, is := requirement["keyData"].(string); is {
		text, err := base64.StdEncoding.DecodeString(data)
		return [][]byte{text}, err
	}
	paths, _ := requirement["keyPaths"].([]any)
	for _, path := range append(paths, requirement["keyPath"]) {
		if path, is := path.(string); is {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// keyring is primary keys, each once.
type keyring []*primaryKey

// primaryKey is a primary key with what it says about itself.
type primaryKey struct {
	key        *packet.OpaquePacket
	signatures []*packet.OpaquePacket // of the key itself, such as its revocations
	users      []*userID
}

// userID is a user ID with its signatures.
type userID struct {
	id         *packet.OpaquePacket
	signatures []*packet.OpaquePacket
}

// keyBlock matches an armoured block with keys, between other lines.
var keyBlock = regexp.MustCompile(`(?ms)^-----BEGIN PGP (PUBLIC|PRIVATE) KEY BLOCK-----.*?(^-----END PGP (PUBLIC|PRIVATE) KEY BLOCK-----|\z)`)

// add adds the keys of a file, which is binary or has armoured blocks. It returns false if a part cannot be read.
func (k *keyring) add(text []byte) bool {
	if len(text) > 0 && text[0]&0x80 != 0 { // so gpg tells them apart
		return k.read(bytes.NewReader(text)) == nil
	}
	for _, block := range keyBlock.FindAll(text, -1) {
		data, ok := unarmoured(block)
		if !ok || k.read(bytes.NewReader(data)) != nil {
			return false
		}
	}
	return true
}

// unarmoured decodes an armoured block as gpg does: what is no character of base64 is skipped, the empty line behind the
// headers may be missing, and the checksum may not.
func unarmoured(block []byte) (data []byte, ok bool) {
	header := true
	var text []byte
	for _, line := range bytes.Split(block, []byte("\n"))[1:] {
		line = bytes.TrimSpace(line)
		switch {
		case header && len(line) > 0 && bytes.Contains(line, []byte(":")):
			continue
		case len(line) == 5 && line[0] == '=':
			sum, err := base64.StdEncoding.DecodeString(string(line[1:]))
			data, wrong := base64.RawStdEncoding.DecodeString(string(text))
			return data, err == nil && wrong == nil && bytes.Equal(sum, crc24(data))
		}
		header = false
		text = append(text, notBase64.ReplaceAll(line, nil)...)
	}
	return nil, false
}

var notBase64 = regexp.MustCompile(`[^A-Za-z0-9+/]`)

// crc24 returns the checksum of an armoured block (RFC 4880, 6.1).
func crc24(data []byte) []byte {
	crc := uint32(0xb704ce)
	for _, b := range data {
		crc ^= uint32(b) << 16
		for range 8 {
			if crc <<= 1; crc&0x1000000 != 0 {
				crc ^= 0x1864cfb
			}
		}
	}
	return []byte{byte(crc >> 16), byte(crc >> 8), byte(crc)}
}

// read adds the keys of a sequence of packets.
func (k *keyring) read(r io.Reader) error {
	var key *primaryKey
	var user *userID
	skip := false // what belongs to subkeys and other packets
	for packets := packet.NewOpaqueReader(r); ; {
		p, err := packets.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case p.Tag == tagPublicKey, p.Tag == tagSecretKey:
			key, user, skip = k.of(p), nil, false
		case p.Tag == tagSignature && isRevocation(p):
			k.revoke(key, p)
		case key == nil:
		case p.Tag == tagUserID:
			user, skip = key.user(p), false
		case p.Tag != tagSignature:
			skip = true
		case skip:
		case user != nil:
			user.signatures = append(user.signatures, p)
		default:
			key.signatures = append(key.signatures, p)
		}
	}
}

// of returns the key of a packet, which is in the keyring from then on.
func (k *keyring) of(p *packet.OpaquePacket) *primaryKey {
	for _, known := range *k {
		if known.key.Tag == p.Tag && bytes.Equal(known.key.Contents, p.Contents) {
			return known
		}
	}
	key := &primaryKey{key: p}
	*k = append(*k, key)
	return key
}

// user returns the user ID of a packet, which the key has from then on.
func (key *primaryKey) user(p *packet.OpaquePacket) *userID {
	for _, known := range key.users {
		if bytes.Equal(known.id.Contents, p.Contents) {
			return known
		}
	}
	user := &userID{id: p}
	key.users = append(key.users, user)
	return user
}

// isRevocation reports whether a signature revokes a primary key.
func isRevocation(p *packet.OpaquePacket) bool {
	parsed, err := p.Parse()
	s, is := parsed.(*packet.Signature)
	return err == nil && is && s.SigType == packet.SigTypeKeyRevocation
}

// revoke adds a revocation to the key that made it. One that none has made is that of a key which may revoke another: the
// library trusts no key with such a one.
func (k *keyring) revoke(key *primaryKey, p *packet.OpaquePacket) {
	parsed, _ := p.Parse()
	revocation, _ := parsed.(*packet.Signature)
	for _, known := range *k {
		if public := known.public(); public != nil && public.VerifyRevocationSignature(revocation) == nil {
			key = known
		}
	}
	if key != nil {
		key.signatures = append(key.signatures, p)
	}
}

// public returns the parsed key; nil if it is of a kind that the library does not know.
func (key *primaryKey) public() *packet.PublicKey {
	switch parsed, _ := key.key.Parse(); parsed := parsed.(type) {
	case *packet.PublicKey:
		return parsed
	case *packet.PrivateKey:
		return &parsed.PublicKey
	}
	return nil
}

// bytes returns the keyring as a file.
func (k keyring) bytes() []byte {
	var b bytes.Buffer
	put := func(packets ...*packet.OpaquePacket) {
		for _, p := range packets {
			_ = p.Serialize(&b) // a buffer takes all
		}
	}
	for _, key := range k {
		put(key.key)
		put(key.signatures...)
		for _, user := range key.users {
			put(user.id)
			put(user.signatures...)
		}
	}
	return b.Bytes()
}
