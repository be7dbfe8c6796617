package hostimages

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"

	"machine-pivot/internal/guard"
)

// Limits of a package list, whatever its size. The decoder holds one token and all open elements in
// memory.
const (
	maxListToken = 1 << 20 // bytes of a tag or a text, such as a change log's entry
	maxListDepth = 16      // of elements; createrepo_c writes 5
)

// packageNames returns the names of the packages in a list: the text of each element "name" in an
// element "package". It holds nothing else in memory, because a list may be large.
func packageNames(list io.Reader) (names []string, err error) {
	from := &tokenReader{in: bufio.NewReader(list)}
	in := xml.NewDecoder(from)
	room := guard.NewBudget(maxRepositoryEntries, "packages")
	var open []string // the names of the open elements
	for {
		from.left = maxListToken
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		depth := len(open)
		switch token := token.(type) {
		case xml.StartElement:
			if open = append(open, token.Name.Local); len(open) > maxListDepth {
				return nil, fmt.Errorf("elements in more than %d others", maxListDepth)
			}
			if isPackageName(open) {
				if err := room.Take(1); err != nil {
					return nil, err
				}
				names = append(names, "")
			}
		case xml.CharData:
			if isPackageName(open) {
				names[len(names)-1] += string(token)
			}
		case xml.EndElement:
			open = open[:depth-1]
		}
	}
}

// isPackageName reports whether the innermost of the open elements has the name of a package.
func isPackageName(open []string) bool {
	n := len(open)
	return n > 1 && open[n-1] == "name" && open[n-2] == "package"
}

// tokenReader is a reader for a decoder that reads byte by byte, and so not beyond a token.
type tokenReader struct {
	in   *bufio.Reader
	left int // bytes that the token may still have
}

// ReadByte implements io.ByteReader.
func (r *tokenReader) ReadByte() (byte, error) {
	if r.left--; r.left < 0 {
		return 0, fmt.Errorf("a tag or a text has more than %d bytes", maxListToken)
	}
	return r.in.ReadByte()
}

// Read implements io.Reader. A decoder that reads bytes does not call it.
func (r *tokenReader) Read(p []byte) (int, error) { return r.in.Read(p[:min(len(p), max(r.left, 0))]) }
