package main

import "machine-pivot/internal/verdict"

// acceptFlag is a flag that names verdicts, once or several times.
type acceptFlag struct{ accepted *[]verdict.Name }

// String implements pflag.Value.
func (acceptFlag) String() string { return "" }

// Type implements pflag.Value.
func (acceptFlag) Type() string { return "NAME" }

// Set implements pflag.Value.
func (f acceptFlag) Set(list string) error {
	names, err := verdict.Parse(list)
	*f.accepted = append(*f.accepted, names...)
	return err
}

// names returns the values that a shell suggests.
func (acceptFlag) names() (texts []string) {
	for _, name := range verdict.Names() {
		texts = append(texts, string(name))
	}
	return texts
}
