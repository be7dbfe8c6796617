package source

import "strings"

// parseEnvironmentFile parses variables as systemd does for EnvironmentFile= (systemd.exec(5)). Lines are NAME=VALUE,
// with values quoted in whole or in part; a backslash at the end joins lines. Comment lines start with # or ; (and
// cannot be continued, as since v254). Nothing is expanded: $ and % are ordinary characters. Other lines are ignored.
func parseEnvironmentFile(text string) map[string]string {
	variables := map[string]string{}
	rest := strings.ReplaceAll(text, "\r", "\n")
	for {
		rest = strings.TrimLeft(rest, " \t\n")
		if rest == "" {
			return variables
		}
		end := strings.IndexAny(rest, "=\n")
		switch {
		case strings.ContainsAny(rest[:1], "#;"):
			_, rest, _ = strings.Cut(rest, "\n")
		case end < 0:
			return variables
		case rest[end] == '\n':
			rest = rest[end:]
		default:
			name := strings.TrimRight(rest[:end], " \t")
			variables[name], rest = environmentValue(rest[end+1:])
		}
	}
}

// environmentValue parses a value up to the end of its line. A quote character opens a quoted
// part only at the start of the value or after another quoted part.
func environmentValue(s string) (value, rest string) {
	var out []byte
	kept := 0 // length of out without trailing white space
	begins := true
	for s != "" && s[0] != '\n' {
		c := s[0]
		switch blank := c == ' ' || c == '\t'; {
		case begins && (c == '"' || c == '\''):
			var part []byte
			part, s = quoted(s)
			out = append(out, part...)
			kept = len(out)
			continue
		case begins && blank:
		case c == '\\':
			begins = false
			if s = s[1:]; s == "" {
				return string(out), ""
			}
			if s[0] != '\n' {
				out = append(out, s[0])
			}
			kept = len(out)
		default:
			begins = false
			if out = append(out, c); !blank {
				kept = len(out)
			}
		}
		s = s[1:]
	}
	return string(out[:kept]), s
}

// quoted parses a quoted part, which may contain newlines. In double quotes a backslash
// escapes the characters that a shell would interpret.
func quoted(s string) (part []byte, rest string) {
	quote := s[0]
	for s = s[1:]; s != ""; s = s[1:] {
		switch {
		case s[0] == quote:
			return part, s[1:]
		case quote == '"' && s[0] == '\\':
			if s = s[1:]; s == "" {
				return part, ""
			}
			if !strings.ContainsAny(s[:1], "\"\\`$\n") {
				part = append(part, '\\')
			}
			if s[0] == '\n' {
				continue
			}
		}
		part = append(part, s[0])
	}
	return part, ""
}
