// Package quantity reads the amounts of Kubernetes objects, such as 400m of a CPU
// or 8Gi of memory, exactly. It does no I/O.
//
// Source: k8s.io/apimachinery/pkg/api/resource, which tests hold it against. That
// package itself would bring a CBOR codec into the binary. Other than there, an
// amount that does not fit 64 bits is refused, not cut down in silence.
package quantity

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Quantity is an amount, exact to a billionth. It does not change; the zero value is 0.
type Quantity struct {
	nano   *big.Int // billionths; nil is 0
	format format
}

// format is how an amount was written.
type format int

const (
	decimal  format = iota // 8G
	binary                 // 8Gi
	exponent               // 8e9
)

// The suffixes, each 1000 or 1024 times the one before it.
const (
	decimalSuffixes = "n u m  k M G T P E" // the empty one is in the middle
	binarySuffixes  = " Ki Mi Gi Ti Pi Ei"
	unit            = 3 // index of the empty decimal suffix
)

// maxText bounds the text of an amount, in bytes.
const maxText = 64

// Parse reads an amount: a decimal number with a suffix of the SI (n, u, m, k, M,
// G, T, P, E), a binary one (Ki … Ei), or an exponent (e3, E-3). Digits beyond a
// billionth are rounded up, away from zero.
func Parse(s string) (Quantity, error) {
	wrong := func(why string) (Quantity, error) {
		return Quantity{}, fmt.Errorf("cannot parse quantity %s: %s", strconv.Quote(s[:min(len(s), maxText)]), why)
	}
	if len(s) > maxText {
		return wrong("it is too long")
	}
	number := s[:len(s)-len(strings.TrimLeft(s, "+-.0123456789"))]
	suffix := s[len(number):]
	mantissa, fraction, ok := parseNumber(number)
	if !ok {
		return wrong("it is not a number with a suffix, as 400m or 8Gi")
	}
	factor, f, ok := parseSuffix(suffix)
	if !ok {
		return wrong("its suffix is none of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent")
	}
	nano := new(big.Rat).SetInt(mantissa)
	nano.Mul(nano, factor).Mul(nano, power(10, 9-fraction))
	q := Quantity{nano: roundUp(nano.Num(), nano.Denom()), format: f}
	if q.scaled(9).CmpAbs(big.NewInt(math.MaxInt64)) > 0 {
		return wrong("it is beyond 64 bits")
	}
	return q, nil
}

// parseNumber takes a number apart: 1.25 is 125 with a fraction of 2 digits.
func parseNumber(s string) (mantissa *big.Int, fraction int, ok bool) {
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return nil, 0, false
	}
	whole, rest, _ := strings.Cut(digits, ".")
	if whole+rest == "" || strings.ContainsAny(rest, "+-.") || strings.ContainsAny(whole, "+-") {
		return nil, 0, false
	}
	mantissa, ok = new(big.Int).SetString(whole+rest, 10)
	if ok && s[0] == '-' {
		mantissa.Neg(mantissa)
	}
	return mantissa, len(rest), ok
}

func parseSuffix(s string) (factor *big.Rat, f format, ok bool) {
	for i, suffix := range strings.Split(decimalSuffixes, " ") {
		if s == suffix {
			return power(10, 3*(i-unit)), decimal, true
		}
	}
	for i, suffix := range strings.Split(binarySuffixes, " ") {
		if s == suffix {
			return power(1024, i), binary, true
		}
	}
	if len(s) > 1 && (s[0] == 'e' || s[0] == 'E') {
		n, err := strconv.ParseInt(s[1:], 10, 8)
		return power(10, int(n)), exponent, err == nil
	}
	return nil, 0, false
}

// power is base to the n, which may be negative.
func power(base int64, n int) *big.Rat {
	p := new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(max(n, -n))), nil)
	r := new(big.Rat).SetInt(p)
	if n < 0 {
		r.Inv(r)
	}
	return r
}

// roundUp is a/b, away from zero.
func roundUp(a, b *big.Int) *big.Int {
	quotient, rest := new(big.Int).QuoRem(a, b, new(big.Int))
	if rest.Sign() != 0 {
		quotient.Add(quotient, big.NewInt(int64(a.Sign())))
	}
	return quotient
}

// scaled is the amount in units of 10 to the n billionths, rounded up.
func (q Quantity) scaled(n int) *big.Int {
	if q.nano == nil {
		return new(big.Int)
	}
	return roundUp(q.nano, power(10, n).Num())
}

// Value is the amount as a whole number, rounded up.
func (q Quantity) Value() int64 { return q.scaled(9).Int64() }

// Milli is the amount in thousandths, rounded up; at most what 64 bits hold.
func (q Quantity) Milli() int64 {
	milli := q.scaled(6)
	if !milli.IsInt64() {
		return int64(milli.Sign()) * (1<<63 - 1)
	}
	return milli.Int64()
}

// Sign is -1, 0 or 1.
func (q Quantity) Sign() int { return q.scaled(0).Sign() }

// Cmp compares amounts: -1, 0 or 1 if q is less than, the same as, or more than other.
func (q Quantity) Cmp(other Quantity) int { return q.scaled(0).Cmp(other.scaled(0)) }

// String is the canonical form: no fraction, and the largest suffix that allows
// that, of the kind that the amount was written with.
func (q Quantity) String() string {
	n := q.scaled(0)
	if n.Sign() == 0 {
		return "0"
	}
	whole, rest := new(big.Int).QuoRem(n, big.NewInt(1e9), new(big.Int))
	if q.format == binary && rest.Sign() == 0 && whole.CmpAbs(big.NewInt(1024)) >= 0 {
		i, n := reduce(whole, big.NewInt(1024), 6)
		return n.String() + strings.Split(binarySuffixes, " ")[i]
	}
	i, n := reduce(n, big.NewInt(1000), 9)
	switch {
	case q.format != exponent:
		return n.String() + strings.Split(decimalSuffixes, " ")[i]
	case i == unit:
		return n.String()
	}
	return n.String() + "e" + strconv.Itoa(3*(i-unit))
}

// reduce divides n by base as often as that leaves no rest, limit times at most.
func reduce(n, base *big.Int, limit int) (times int, reduced *big.Int) {
	for times < limit {
		quotient, rest := new(big.Int).QuoRem(n, base, new(big.Int))
		if rest.Sign() != 0 {
			break
		}
		n, times = quotient, times+1
	}
	return times, n
}
