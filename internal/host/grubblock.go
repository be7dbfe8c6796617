package host

import (
	"bytes"
	"fmt"
	"strings"
)

// GRUB's environment block is a file of fixed size with lines NAME=VALUE, filled up with "#" (GRUB's lib/envblk.c).
// GRUB can only rewrite the blocks of the disk that such a file has. So it must never be shorter than what is to be
// written, and is itself only changed in place.
const (
	systemBlock = "grubenv"   // the environment block of the configuration itself
	ownBlock    = "pivot.env" // that of the hook

	blockHeader = "# GRUB Environment Block\n"
	blockSize   = 1024 // of those that GRUB's tools make
	blockFiller = '#'
)

// Variables: the entry to start once, "" for none.
const (
	systemVariable = "next_entry"
	ownVariable    = "pivot_once"
)

// emptyBlock returns an environment block without a variable.
func emptyBlock() []byte {
	return append([]byte(blockHeader), bytes.Repeat([]byte{blockFiller}, blockSize-len(blockHeader))...)
}

// blockWithVariable returns an environment block of the same size in which a variable has a value; ""
// removes it. A value must not need quoting.
func blockWithVariable(block []byte, name, value string) ([]byte, error) {
	if !bytes.HasPrefix(block, []byte(blockHeader)) {
		return nil, fmt.Errorf("it does not begin with %q", strings.TrimSpace(blockHeader))
	}
	kept := []byte(blockHeader)
	for line := range bytes.Lines(block[len(blockHeader):]) {
		switch {
		case !bytes.HasSuffix(line, []byte("\n")): // what is left to the end is filler
		case bytes.HasPrefix(line, []byte(name+"=")):
		default:
			kept = append(kept, line...)
		}
	}
	if value != "" {
		kept = append(kept, name+"="+value+"\n"...)
	}
	if len(kept) > len(block) {
		return nil, fmt.Errorf("it has no room for %s", name)
	}
	return append(kept, bytes.Repeat([]byte{blockFiller}, len(block)-len(kept))...), nil
}

// blockVariable returns a variable's value in an environment block; "" if it has none.
func blockVariable(block []byte, name string) string {
	for line := range bytes.Lines(block) {
		if value, found := bytes.CutPrefix(line, []byte(name+"=")); found {
			return string(bytes.TrimSuffix(value, []byte("\n")))
		}
	}
	return ""
}
