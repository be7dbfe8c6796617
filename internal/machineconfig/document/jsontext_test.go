package document

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzJSONTree: the tree of a valid text has the values that encoding/json reads, and is written as the same.
func FuzzJSONTree(f *testing.F) {
	for _, text := range []string{
		`null`, ` true `, "-1.5e+3", `"a\"\\ \u00e9\ud83d\ude00\ud800é"`, "{\"a\" :\n[1 , {}\t,[] ,\"\"],\r\n\"b\":false,\"\\u0062\":0}", `[[["x"]]]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		root, err := jsonTree(text, 1)
		if err != nil {
			t.Skip(err)
		}
		got, want := decoded(t, appendJSON(nil, root)), decoded(t, text)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n%v\nwant\n%v", text, got, want)
		}
	})
}

func decoded(t *testing.T, text []byte) (value any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}
