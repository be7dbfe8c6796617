package document

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"

	"machine-pivot/internal/problem"
)

// Quantity is an amount in a Kubernetes object, such as 400m of a CPU or 8Gi of memory: a multiple of 10^-9. The zero
// value is 0. Amounts mean what they mean in Kubernetes (k8s.io/apimachinery, pkg/api/resource), with which the tests
// compare them. The host's program has them, and so it does without that package, which it would hardly use.
//
// Refused is what Kubernetes accepts although no author means it: a text without digits, an amount beyond 64 bits,
// which that truncates, and an exponent that takes hours to compute.
type Quantity struct {
	nanos big.Int      // never changed
	form  quantityForm // in which it was written
}

// quantityForm is how an amount is written.
type quantityForm int

const (
	decimal  quantityForm = iota // n, u, m, k, M, G, T, P, E
	exponent                     // e3, E-3
	binary                       // Ki … Ei
)

// maxQuantity limits the length of an amount, in bytes.
const maxQuantity = 64

// quantityShape matches the text of an amount: sign, digits, and the suffix or exponent. Exponents have at most
// three digits.
var quantityShape = regexp.MustCompile(`^([+-]?)([0-9]*)\.?([0-9]*)(?:([A-Za-z]*)|[eE]([+-]?[0-9]{1,3}))$`)

// The suffixes. The first decimal one stands for 10^-9, each other for the thousandfold of the one before
// it; the first binary one stands for 1.
var (
	decimalSuffixes = []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"}
	binarySuffixes  = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)

// nano is the number of decimal places that an amount has.
const nano = 9

// Quantity reads an amount, given as a number or as text. ok is false if the node is null, or if it is
// not an amount; the latter is reported.
func (n Node) Quantity() (q Quantity, ok bool) {
	text, isNumber := n.Number()
	if !isNumber && !n.IsText() {
		n.Text() // reports what it is instead
		return q, false
	}
	if !isNumber {
		text = n.Text()
	}
	q, err := ParseQuantity(text)
	if err != nil {
		n.Fail("%v", err)
	}
	return q, err == nil
}

// ParseQuantity parses an amount: a decimal number with an SI suffix (n, u, m, k, M, G, T, P, E), a binary suffix (Ki … Ei), or
// an exponent (E-3). Digits beyond 10^-9 are rounded up, away from zero. Amounts beyond 64 bits, which Kubernetes
// truncates, are refused.
func ParseQuantity(text string) (Quantity, error) {
	q, err := parseQuantity(text)
	if err != nil {
		return Quantity{}, fmt.Errorf("cannot parse quantity %s: %w", problem.Quoted(text), err)
	}
	return q, nil
}

func parseQuantity(text string) (q Quantity, err error) {
	if len(text) > maxQuantity {
		return q, fmt.Errorf("it has more than %d bytes", maxQuantity)
	}
	m := quantityShape.FindStringSubmatch(text)
	if m == nil || m[2]+m[3] == "" {
		return q, errNoQuantity
	}
	sign, digits, suffix, power := m[1], m[2]+m[3], m[4], m[5]
	unit, of, ok := unitOf(suffix)
	if power != "" {
		n, _ := strconv.Atoi(power) // three digits
		unit, of, ok = powerOf(10, n), exponent, true
	}
	if !ok {
		return q, errNoQuantity
	}
	amount, _ := new(big.Int).SetString(digits, 10)
	number := new(big.Rat).SetFrac(amount, powerOf(10, len(m[3])).Num())
	number.Mul(number, unit).Mul(number, powerOf(10, nano))
	nanos := awayFromZero(number.Num(), number.Denom())
	if most := new(big.Int).Mul(big.NewInt(math.MaxInt64), powerOf(10, nano).Num()); nanos.Cmp(most) > 0 {
		return q, errors.New("it is beyond 64 bits")
	}
	if sign == "-" {
		nanos.Neg(nanos)
	}
	q.nanos, q.form = *nanos, of
	return q, nil
}

// errNoQuantity is the error for a text that is no amount.
var errNoQuantity = errors.New("it is not a number with a suffix, as 400m or 8Gi")

// unitOf returns what a suffix stands for.
func unitOf(suffix string) (unit *big.Rat, of quantityForm, ok bool) {
	for i, s := range decimalSuffixes {
		if s == suffix {
			return powerOf(10, 3*i-nano), decimal, true
		}
	}
	for i, s := range binarySuffixes {
		if s == suffix {
			return powerOf(1024, i), binary, true
		}
	}
	return nil, 0, false
}

// powerOf returns a power of a base.
func powerOf(base int64, n int) *big.Rat {
	power := new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(max(n, -n))), nil)
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), power)
	}
	return new(big.Rat).SetInt(power)
}

// awayFromZero returns a quotient, rounded away from zero. The divisor is positive.
func awayFromZero(dividend, divisor *big.Int) *big.Int {
	quotient, rest := new(big.Int).QuoRem(dividend, divisor, new(big.Int))
	return quotient.Add(quotient, big.NewInt(int64(rest.Sign())))
}

// Sign returns -1, 0 or 1.
func (q Quantity) Sign() int { return q.nanos.Sign() }

// Cmp returns -1 if q is less than other, 0 if they are equal, and 1 if it is more.
func (q Quantity) Cmp(other Quantity) int { return q.nanos.Cmp(&other.nanos) }

// Value returns the amount as a whole number, rounded away from zero.
func (q Quantity) Value() int64 { return q.inUnits(0) }

// MilliValue returns the amount in thousandths, rounded away from zero, and at most MaxInt64. Kubernetes
// returns arbitrary values for larger amounts.
func (q Quantity) MilliValue() int64 { return q.inUnits(-3) }

// inUnits returns the amount in units of a power of ten, rounded away from zero and bounded to 64 bits.
func (q Quantity) inUnits(power int) int64 {
	n := awayFromZero(&q.nanos, powerOf(10, nano+power).Num())
	if n.IsInt64() {
		return n.Int64()
	}
	if n.Sign() < 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}

// String returns the canonical form: no fraction, and the largest suffix of the kind in which the amount
// was written. A binary suffix that would lose digits, or is not needed, is replaced by a decimal one.
func (q Quantity) String() string {
	if q.Sign() == 0 {
		return "0"
	}
	if text, ok := q.binary(); ok {
		return text
	}
	n, power := new(big.Int).Set(&q.nanos), -nano
	for divideBy(n, 1000) {
		power += 3
	}
	switch {
	case q.form != exponent:
		return n.String() + decimalSuffixes[(power+nano)/3]
	case power == 0:
		return n.String()
	}
	return n.String() + "e" + strconv.Itoa(power)
}

// binary returns the canonical form with a binary suffix, if the amount has it.
func (q Quantity) binary() (text string, ok bool) {
	n := new(big.Int).Set(&q.nanos)
	if q.form != binary || !divideBy(n, 1_000_000_000) || n.CmpAbs(big.NewInt(1024)) < 0 {
		return "", false
	}
	power := 0
	for divideBy(n, 1024) {
		power++
	}
	return n.String() + binarySuffixes[power], true
}

// divideBy divides n, unless there is a rest.
func divideBy(n *big.Int, by int64) bool {
	quotient, rest := new(big.Int).QuoRem(n, big.NewInt(by), new(big.Int))
	if rest.Sign() != 0 || n.Sign() == 0 {
		return false
	}
	n.Set(quotient)
	return true
}
