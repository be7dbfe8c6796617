// Package quantity parses the amounts in Kubernetes objects, such as 400m of a CPU or 8Gi of
// memory. Kubernetes' own package defines what an amount means. This package refuses what that one
// accepts although no author means it: a text without digits, which it reads as 0; an amount beyond
// 64 bits, which it truncates; and an exponent so large that computing the power of ten takes
// hours. It does no I/O.
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

// maxText limits the length of an amount, in bytes.
const maxText = 64

// shape matches the text of an amount. Kubernetes reads a text without digits as 0, and computes
// any power of ten; so digits are required and exponents have at most three.
var shape = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([A-Za-z]*|[eE][+-]?[0-9]{1,3})$`)

// Read reads an amount, given as a number or as text. ok is false if the node is null, or if it is
// not an amount; the latter is reported.
func Read(n document.Node) (q resource.Quantity, ok bool) {
	text, isNumber := n.Number()
	if !isNumber && !n.IsText() {
		n.Text() // reports what it is instead
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

// Parse parses an amount: a decimal number with an SI suffix (n, u, m, k, M, G, T, P, E), a binary
// suffix (Ki … Ei), or an exponent (e3, E-3). Digits beyond 10^-9 are rounded up, away from zero.
// Amounts beyond 64 bits, which Kubernetes truncates, are refused. String returns the canonical
// form of the amount: no fraction, and the largest suffix of the kind in the input.
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
	// Kubernetes truncates an amount with a binary suffix to exactly MaxInt64. No valid amount with
	// such a suffix has this value, because it is odd.
	most := size.CmpInt64(math.MaxInt64)
	if most > 0 || most == 0 && q.Format == resource.BinarySI {
		return q, errors.New("it is beyond 64 bits")
	}
	q.Add(resource.Quantity{}) // drops the cached input text, which String would return
	return q, nil
}
