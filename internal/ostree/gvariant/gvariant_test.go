package gvariant_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"machine-pivot/internal/ostree/gvariant"
)

// The byte strings come from GLib's serializer and from objects written by libostree.
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

// TestNested: members are aligned in containers that do not begin at offset 0, and a parsed
// type can be used several times.
func TestNested(t *testing.T) {
	type tuple = gvariant.Tuple
	for typ, value := range map[string]any{
		"(sa{sv})":   tuple{"abc", []any{tuple{"k", gvariant.Variant{Type: "(ytay)", Value: tuple{byte(1), uint64(2), []byte{3}}}}}},
		"(ysa(ut)y)": tuple{byte(1), "a", []any{tuple{uint32(2), uint64(3)}, tuple{uint32(4), uint64(5)}}, byte(6)},
		"a(sv)": []any{tuple{"a", gvariant.Variant{Type: "as", Value: []any{"b", strings.Repeat("c", 300)}}},
			tuple{"d", gvariant.Variant{Type: "u", Value: uint32(7)}}},
		"(ssssssssss)": tuple{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"},
	} {
		parsed := gvariant.MustType(typ)
		for range 2 {
			data, err := parsed.Encode(value)
			if err != nil {
				t.Fatal(err)
			}
			back, err := gvariant.Decode(typ, data)
			if err != nil || !reflect.DeepEqual(back, value) {
				t.Errorf("%s: %x is read as %#v, %v", typ, data, back, err)
			}
			again, err := parsed.Open(data)
			if err != nil {
				t.Fatal(err)
			}
			if copied, err := gvariant.Encode("("+typ+"y)", tuple{again, byte(9)}); err != nil || !bytes.HasPrefix(copied, data) {
				t.Errorf("%s: its copy is %x, %v", typ, copied, err)
			}
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
		{"s", "ff00"}, {"s", "c08000"}, {"s", "eda08000"}, {"as", "ff00" + "02"}, // not UTF-8
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if value, err := gvariant.Decode(c.typ, data); err == nil {
			t.Errorf("Decode(%s, %s) = %#v, want an error", c.typ, c.hex, value)
		}
	}
	for _, typ := range []string{"", "z", "(", "(s", "a", "{sv", "ss", "{vs}", "{s}", "{sss}", "m",
		strings.Repeat("a", 40) + "y", "(" + strings.Repeat("y", 1023) + ")"} {
		if _, err := gvariant.Decode(typ, nil); err == nil {
			t.Errorf("type %q: no error", typ)
		}
	}
}

// TestOpen: Open validates values of all types, including those that Decode does not support.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		typ, hex string
		normal   bool
	}{
		{"n", "0100", true}, {"q", "01", false}, {"i", "01000000", true}, {"h", "010000", false},
		{"x", "0100000000000000", true}, {"d", "000000000000f03f", true}, {"ad", "000000000000f03f00", false},
		{"o", hex.EncodeToString([]byte("/org/x_1\x00")), true}, {"o", "2f00", true}, {"o", "00", false},
		{"o", "2f2f00", false}, {"o", "2f612f00", false}, {"o", "6100", false}, {"o", "2f2d00", false},
		{"g", "00", true}, {"g", hex.EncodeToString([]byte("a{sv}s\x00")), true}, {"g", "6100", false}, {"g", "6d7300", false},
		{"ms", "", true}, {"ms", "610000", true}, {"ms", "6100", false}, {"ms", "61", false},
		{"mu", "", true}, {"mu", "01000000", true}, {"mu", "0100000000", false}, {"mmy", "0100", true},
		{"()", "00", true}, {"()", "01", false}, {"()", "", false}, {"a()", "0000", true},
		{"(yy)", "0102", true}, {"a(yy)", "010203", false}, {"(uy)", "0100000002000000", true}, {"(uy)", "0100000002000001", false},
		{"(say)", "6100" + "0102" + "02", true}, {"(say)", "6100" + "0102" + "05", false}, {"(sss)", "610062006300" + "0402", true},
		{"(sss)", "610062006300" + "0204", false}, {"ab", "000102", false},
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gvariant.Open(c.typ, data); (err == nil) != c.normal {
			t.Errorf("Open(%s, %s): %v, but normal is %v", c.typ, c.hex, err, c.normal)
		}
	}
}

// TestOpenTakesNoMemory opens large values with many small members.
func TestOpenTakesNoMemory(t *testing.T) {
	const size = 1 << 20
	variants := bytes.Repeat([]byte("\x00\x00y\x00\x00\x00\x00\x00"), size/8)
	for name, c := range map[string]struct {
		typ   string
		data  []byte
		bound uint64 // maximum number of allocated bytes
	}{
		"bytes":    {"ay", make([]byte, size), 1 << 12},
		"booleans": {"ab", make([]byte, size), 1 << 12},
		"pairs":    {"a(yy)", make([]byte, size), 1 << 12},
		"units":    {"a()", make([]byte, size), 1 << 12},
		"arrays":   {"aay", make([]byte, size), 1 << 12}, // each of them empty
		"variants": {"av", framed(variants, 8, 3), size * 40},
	} {
		// The minimum of several runs, because the runtime sometimes allocates, too.
		least := uint64(math.MaxUint64)
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := gvariant.Open(c.typ, c.data)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if least > c.bound {
			t.Errorf("%s: %d bytes were allocated, want at most %d", name, least, c.bound)
		}
		if value, err := gvariant.Decode(c.typ, c.data); err == nil && c.typ != "ay" {
			t.Errorf("%s: decoded to %T", name, value)
		}
	}
}

// framed returns an array of members that begin every each bytes and are length bytes long.
func framed(members []byte, each, length int) []byte {
	data := members[:len(members)-each+length]
	for body, end := len(data), length; end <= body; end += each {
		data = binary.LittleEndian.AppendUint32(data, uint32(end))
	}
	return data
}

// FuzzDecode: data that can be decoded is in normal form, so it encodes to the same bytes.
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
