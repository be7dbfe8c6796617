package sepolicy

import (
	"errors"
	"regexp/syntax"

	"machine-pivot/internal/guard"
)

// Limits of one policy. Those of distributions have 7,000 patterns and 30 substitutions, in files of
// less than 2 MiB.
const (
	maxBytes         = 8 << 20 // of all files
	maxTexts         = 4 << 20 // of patterns and labels
	maxPatterns      = 20_000
	maxSubstitutions = 1_000
	maxPattern       = 4096 // bytes of one pattern: paths are no longer
	// maxInstructions is the size of all regular expressions, in instructions of package regexp. Each
	// takes some 130 bytes. The regular expressions of Debian's policy have 124,000.
	maxInstructions = 250_000
	// maxSteps bounds the work of all lookups together: a step takes up to 1 ns. The 480,000 files of
	// a Debian system took 800 million.
	maxSteps = 4_000_000_000
)

// stepsOfPattern is the work of looking at a pattern that is not evaluated.
const stepsOfPattern = 8

// work returns the steps of evaluating a regular expression of a size, in instructions, for a path
// of a length. Package regexp visits each instruction for each byte at most, and is slower if
// these are too many for its memory of visits.
func work(size int64, length int) int64 {
	steps := size * int64(length+1)
	if size > 400 || steps > 200_000 {
		steps *= 8
	}
	return steps
}

// room is what a policy may still take of memory and time. Whoever wrote the policy decides how much
// it needs, so it is counted while it is read and used.
type room struct {
	bytes, texts, patterns, instructions, steps *guard.Budget
}

func newRoom() *room {
	return &room{
		bytes:        guard.NewBudget(maxBytes, "bytes of file contexts"),
		texts:        guard.NewBudget(maxTexts, "bytes of patterns and labels of file contexts"),
		patterns:     guard.NewBudget(maxPatterns, "patterns of file contexts"),
		instructions: guard.NewBudget(maxInstructions, "instructions in the regular expressions of its file contexts"),
		steps:        guard.NewBudget(maxSteps, "steps to look up labels in its file contexts"),
	}
}

// line takes the room for a line of a pattern file.
func (r *room) line(pattern, label int) error {
	if pattern > maxPattern {
		return errors.New("a pattern of more than 4096 bytes")
	}
	return errors.Join(r.patterns.Take(1), r.texts.Take(int64(pattern+label)))
}

// cost returns the number of instructions that a regular expression needs at most. Compiling it
// takes memory for all of them, and a repetition multiplies what it repeats.
func cost(re *syntax.Regexp) int64 {
	var below int64
	for _, sub := range re.Sub {
		below = min(below+cost(sub), maxInstructions+1)
	}
	switch re.Op {
	case syntax.OpRepeat:
		below = min(below*int64(max(re.Min, re.Max)+1), maxInstructions+1)
	case syntax.OpLiteral:
		below += int64(len(re.Rune))
	case syntax.OpCharClass:
		below += int64(len(re.Rune)) / 8
	}
	return below + 2
}
