package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// decodeBundle decodes one JSON value. A key that occurs twice in an object, or in two spellings, is an error:
// programs differ in which one counts.
func decodeBundle(data []byte, into any) error {
	if err := checkKeys(json.NewDecoder(bytes.NewReader(data))); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// maxBundleDepth is the maximum depth of nested JSON values. Bundles have five.
const maxBundleDepth = 32

// checkKeys returns an error if the next value is not the only one, or an object in it has a key twice. Keys
// that differ only in letter case are the same to the decoder.
func checkKeys(d *json.Decoder) error {
	if err := checkValue(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

func checkValue(d *json.Decoder, depth int) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	open, is := token.(json.Delim)
	if !is {
		return nil
	}
	if depth++; depth > maxBundleDepth {
		return fmt.Errorf("its values are nested more than %d deep", maxBundleDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name := strings.Map(folded, fmt.Sprint(key))
			if seen[name] {
				return fmt.Errorf("the key %q occurs twice", key)
			}
			seen[name] = true
		}
		if err := checkValue(d, depth); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing one
	return err
}

// folded returns one rune for all that the decoder takes for the same in a key.
func folded(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r { // the first of the cycle
			return next
		}
		r = next
	}
}
