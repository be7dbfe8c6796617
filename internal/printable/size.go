package printable

import (
	"slices"
	"strconv"
)

// Size returns a number of bytes as people read it, in decimal units and with three digits: "512 B",
// "6.8 kB", "340 MB", "1.2 GB". It has more digits if that is needed to tell it from other sizes, with
// which the reader compares it.
func Size(bytes int64, others ...int64) string {
	const most = 9 // digits behind the point
	for digits := range most {
		text := sized(bytes, digits)
		if !slices.ContainsFunc(others, func(other int64) bool { return other != bytes && sized(other, digits) == text }) {
			return text
		}
	}
	return strconv.FormatInt(bytes, 10) + " B"
}

// sized is Size with more digits.
func sized(bytes int64, more int) string {
	sign, value := "", float64(bytes)
	if value < 0 {
		sign, value = "-", -value
	}
	if value < 1000 {
		return sign + strconv.FormatFloat(value, 'f', 0, 64) + " B"
	}
	for _, unit := range []string{"kB", "MB", "GB", "TB", "PB"} {
		value /= 1000
		digits := more
		if value < 99.95 {
			digits++
		}
		if text := strconv.FormatFloat(value, 'f', digits, 64); value < 1000 && text[:min(4, len(text))] != "1000" {
			return sign + text + " " + unit
		}
	}
	return sign + strconv.FormatFloat(value/1000, 'f', more+1, 64) + " EB"
}
