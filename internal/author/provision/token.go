package provision

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"machine-pivot/internal/fault"
)

// TokenSecretType is the type of the Secrets of tokens.
const TokenSecretType = "machine-pivot.io/ignition-token"

// The keys of a token's Secret. keyUses and keyGrace are optional.
const (
	keyPool    = "pool"    // the pool of the config that it is for
	keySHA256  = "sha256"  // hexadecimal digest of the token
	keyUntil   = "expires" // in RFC 3339
	keyUses    = "uses"    // how many machines may use it: 1 to MaxUses, or Unlimited. Without it: 1
	keyGrace   = "grace"   // how long the machine that has used it may use it again, as 15m. Without it: DefaultGrace
	TokenState = "state"   // Ledger in JSON; the server writes it
)

// Unlimited is the number of uses of a token that is not counted.
const Unlimited = "unlimited"

// MaxUses is the largest number of counted uses. So many uses within a grace time still fit into a Secret.
const MaxUses = 10_000

// A machine's retries are within DefaultGrace of its first request: Ignition retries all the time, and the
// firmware of a server may take minutes.
const (
	DefaultGrace = 15 * time.Minute
	maxGrace     = 24 * time.Hour
)

// Token is what a cluster stores of a token with which new machines get their Ignition configs. It has the SHA-256 digest,
// in a Secret, and not the token. So whoever reads the Secrets of the server's namespace, or a backup of them, gets no
// config.
type Token struct {
	Pool    string
	Digest  [sha256.Size]byte
	Expires time.Time
	Uses    int // 0: not counted
	Grace   time.Duration
	Ledger  Ledger
}

// TokenDigest returns the digest of a token.
func TokenDigest(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// NewToken returns a new token: 256 random bits as text of 43 letters, digits, - and _.
func NewToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// FindToken returns the index of the token of some that a request has, for a pool; -1 if there is none. It takes
// the same time for each request.
func FindToken(all []Token, secret, pool string) int {
	digest, found := TokenDigest(secret), -1
	for i := range all {
		if subtle.ConstantTimeCompare(all[i].Digest[:], digest[:])&subtle.ConstantTimeCompare([]byte(all[i].Pool), []byte(pool)) == 1 {
			found = i
		}
	}
	return found
}

// Expired reports whether a token is of no use any more.
func (t Token) Expired(now time.Time) bool { return !now.Before(t.Expires) }

// ParseToken reads the data of a Secret. The error has all problems; it quotes no digest.
func ParseToken(data map[string][]byte) (Token, error) {
	t := Token{Pool: string(data[keyPool]), Uses: 1, Grace: DefaultGrace}
	var problems []error
	wrong := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if t.Pool == "" {
		wrong(keyPool, "it is missing")
	}
	if n, err := hex.Decode(t.Digest[:], limited(data[keySHA256])); err != nil || n != sha256.Size {
		wrong(keySHA256, "it is not the SHA-256 digest of a token, 64 hexadecimal digits")
	}
	var err error
	if t.Expires, err = time.Parse(time.RFC3339, string(data[keyUntil])); err != nil {
		wrong(keyUntil, "%.40q is no time as 2006-01-02T15:04:05Z", data[keyUntil])
	}
	if text, ok := data[keyUses]; ok {
		if t.Uses, err = parseUses(string(text)); err != nil {
			wrong(keyUses, "%v", err)
		}
	}
	if text, ok := data[keyGrace]; ok {
		if t.Grace, err = time.ParseDuration(string(text)); err != nil || t.Grace < 0 || t.Grace > maxGrace {
			wrong(keyGrace, "%.40q is no time from 0s to %v", text, maxGrace)
		}
	}
	if t.Ledger, err = parseLedger(data[TokenState]); err != nil {
		wrong(TokenState, "%v", err)
	}
	if len(problems) > 0 {
		return Token{}, fault.New(fault.BadInput, "cannot use the token: %w", joined(problems)).
			WithHint("the keys of a token's Secret are in docs/cluster-ignition.md")
	}
	return t, nil
}

// limited returns a digest in hexadecimal digits; of a longer text, none.
func limited(text []byte) []byte {
	if len(text) != hex.EncodedLen(sha256.Size) {
		return nil
	}
	return text
}

func parseUses(text string) (int, error) {
	if text == Unlimited {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxUses {
		return 0, fmt.Errorf("%.40q is neither a number from 1 to %d nor %s", text, MaxUses, Unlimited)
	}
	return n, nil
}

// TokenData returns the data of the Secret of a new token. uses is a number, or Unlimited; ParseToken says what is wrong.
func TokenData(secret, pool string, expires time.Time, uses string) map[string]string {
	digest := TokenDigest(secret)
	return map[string]string{
		keyPool:   pool,
		keySHA256: hex.EncodeToString(digest[:]),
		keyUntil:  expires.UTC().Format(time.RFC3339),
		keyUses:   uses,
	}
}
