package gvariant_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	"machine-pivot/ostree/gvariant"
)

// The byte strings are from GLib's own serialisation and from objects that libostree wrote.
func TestRoundTrip(t *testing.T) {
	type tuple = gvariant.Tuple
	for _, c := range []struct {
		typ, hex string
		value    any
	}{
		{"s", "666f6f00", "foo"},
		{"ay", "0102", []byte{1, 2}},
		{"as", "666f6f0062617200" + "0408", []any{"foo", "bar"}},
		{"as", "", []any{}},
		{"(su)", "61000000" + "05000000" + "02", tuple{"a", uint32(5)}},
		{"(us)", "05000000" + "6100", tuple{uint32(5), "a"}},
		{"v", "6100" + "00" + "73", gvariant.Variant{Type: "s", Value: "a"}},
		{"a{sv}", "6b00000000000000" + "01" + "00" + "62" + "02" + "0c", []any{tuple{"k", gvariant.Variant{Type: "b", Value: true}}}},
		{"(uuuusa(ayay))", "0000000000000000000081a4000000000011", tuple{uint32(0), uint32(0), uint32(0xa4810000), uint32(0), "", []any{}}},
		{"(tu)", "0100000000000000" + "0200000000000000", tuple{uint64(1), uint32(2)}},
	} {
		want, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		got, err := gvariant.Encode(c.typ, c.value)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("Encode(%s, %v) = %x, %v, want %x", c.typ, c.value, got, err, want)
		}
		value, err := gvariant.Decode(c.typ, want)
		if err != nil || !reflect.DeepEqual(value, c.value) {
			t.Errorf("Decode(%s, %x) = %#v, %v, want %#v", c.typ, want, value, err, c.value)
		}
	}
}

func TestNotNormal(t *testing.T) {
	for _, c := range []struct{ typ, hex string }{
		{"s", ""}, {"s", "61"}, {"s", "610062"}, {"s", "61006200"},
		{"b", "02"}, {"u", "000000"}, {"u", "0000000000"},
		{"v", ""}, {"v", "61"}, {"v", "610000"}, {"v", "6100" + "00" + "7a"},
		{"as", "6100" + "03"}, {"as", "6100" + "01"}, {"as", "00"}, {"as", "61006200" + "0402"},
		{"(su)", "61000001" + "05000000" + "02"}, {"(su)", "02"}, {"(ss)", ""}, {"(ss)", "610062" + "09"},
		{"a(yu)", "0000000000"},
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if value, err := gvariant.Decode(c.typ, data); err == nil {
			t.Errorf("Decode(%s, %s) = %#v, want an error", c.typ, c.hex, value)
		}
	}
	for _, typ := range []string{"", "z", "(", "(s", "a", "{sv", "ss"} {
		if _, err := gvariant.Decode(typ, nil); err == nil {
			t.Errorf("type %q: no error", typ)
		}
	}
}

// FuzzDecode: whatever decodes is in normal form, so it encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	types := []string{"a{sv}", "(a{sv}aya(say)sstayay)", "(a(say)a(sayay))", "(tuuuusa(ayay))", "v", "a(yu)", "(sbu)"}
	for i := range types {
		f.Add(uint8(i), []byte("\x00\x00"))
	}
	f.Add(uint8(0), []byte("k\x00\x00\x00\x00\x00\x00\x00\x01\x00b\x02\x0c"))
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		typ := types[int(which)%len(types)]
		value, err := gvariant.Decode(typ, data)
		if err != nil {
			return
		}
		again, err := gvariant.Encode(typ, value)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s: %x decodes to %#v, which encodes to %x (%v)", typ, data, value, again, err)
		}
	})
}
