// Package quantity reads the amounts of Kubernetes objects, such as 400m of a CPU or
// 8Gi of memory. Kubernetes' own package decides what an amount means. This one refuses
// what that package accepts and no author means: a text without digits, which is 0 there;
// an amount beyond 64 bits, which is cut down; and an exponent so large that computing
// its power of ten takes hours. It does no I/O.
package quantity

import (
	"errors"
	"fmt"
	"math"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// maxText bounds the text of an amount, in bytes.
const maxText = 64

// shape is what the text of an amount looks like. Kubernetes takes one without digits
// for 0, and works out the powers of ten of an exponent with as many digits.
var shape = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([A-Za-z]*|[eE][+-]?[0-9]{1,3})$`)

// Read reads an amount, which may be a number or text. ok is false if the node is null, or
// if it holds no amount; then its report says why.
func Read(n document.Node) (q resource.Quantity, ok bool) {
	text, isNumber := n.Number()
	if !isNumber && !n.IsText() {
		n.Text() // says what it is instead
		return q, false
	}
	if !isNumber {
		text = n.Text()
	}
	q, err := Parse(text)
	if err != nil {
		n.Fail("%v", err)
	}
	return q, err == nil
}

// Parse reads an amount: a decimal number with a suffix of the SI (n, u, m, k, M,
// G, T, P, E), a binary one (Ki … Ei), or an exponent (e3, E-3). Digits beyond a
// billionth are rounded up, away from zero. Amounts that 64 bits do not hold, which
// Kubernetes cuts down, are refused. The amount's String is its canonical form: no
// fraction, and the largest suffix of the kind that it was written with.
func Parse(text string) (resource.Quantity, error) {
	q, err := parseBounded(text)
	if err != nil {
		return q, fmt.Errorf("cannot parse quantity %s: %w", problem.Quoted(text), err)
	}
	return q, nil
}

func parseBounded(text string) (resource.Quantity, error) {
	if len(text) > maxText {
		return resource.Quantity{}, fmt.Errorf("it has more than %d bytes", maxText)
	}
	if !shape.MatchString(text) {
		return resource.Quantity{}, errors.New("it is not a number with a suffix, as 400m or 8Gi")
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, err
	}
	size := q.DeepCopy()
	if size.Sign() < 0 {
		size.Neg()
	}
	// An amount with a binary suffix that was cut down is exactly this number; no amount
	// with such a suffix is, as it is odd.
	most := size.CmpInt64(math.MaxInt64)
	if most > 0 || most == 0 && q.Format == resource.BinarySI {
		return q, errors.New("it is beyond 64 bits")
	}
	q.Add(resource.Quantity{}) // drops the cached text, which String would return as it is
	return q, nil
}
