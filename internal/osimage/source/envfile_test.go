package source

import (
	"maps"
	"testing"
)

func TestParseEnvironmentFile(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                               {},
		"A=1":                            {"A": "1"},
		"A=1\nB=2\r\nA=3\n":              {"A": "3", "B": "2"},
		"\n  A = b c \t\nB=\n":           {"A": "b c", "B": ""},
		"# A=1\n;B=2\nC=3 # no comment":  {"C": "3 # no comment"},
		"# not joined \\\nA=1\nB=2":      {"A": "1", "B": "2"},
		"no value\nA=1":                  {"A": "1"},
		"A=1\nno value":                  {"A": "1"},
		`A="a b" 'c\d'e`:                 {"A": `a bc\de`},
		`A=x"y"z`:                        {"A": `x"y"z`},
		`A="a\"b\$c\d"`:                  {"A": `a"b$c\d`},
		"A=\"a\nb\\\nc\"\nB=1":           {"A": "a\nbc", "B": "1"},
		"A=a\\\nb\\ \nB=1":               {"A": "ab ", "B": "1"},
		`A=http://u:p%40$x@h:1/?q=1`:     {"A": "http://u:p%40$x@h:1/?q=1"},
		`A='open`:                        {"A": "open"},
		`A=\`:                            {"A": ""},
		`A="open\`:                       {"A": "open"},
		"A=a \\\n\nB=b \\":               {"A": "a ", "B": "b "},
		"A=\"\"\nB=''":                   {"A": "", "B": ""},
		"NO_PROXY=.a,.b\nHTTP_PROXY=h:1": {"NO_PROXY": ".a,.b", "HTTP_PROXY": "h:1"},
	} {
		if got := parseEnvironmentFile(text); !maps.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
