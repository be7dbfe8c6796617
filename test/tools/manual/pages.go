package manual

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Pages returns the pages of a program's single commands by file name, such as pivot-status.8, made from the program's
// own page. Each has the command's part of that page, and what holds for all commands. So a reader finds a command by
// its name, as with git or systemd.
func Pages(page string) (map[string]string, error) {
	p, err := parse(page)
	if err != nil {
		return nil, err
	}
	pages := map[string]string{}
	for _, c := range p.commands {
		pages[c.page+"."+p.section] = p.of(c)
	}
	return pages, nil
}

// program is the page of a program.
type program struct {
	name, section string // such as pivot, 8
	date          string // the line .Dd
	commands      []command
	exit          string   // the section EXIT STATUS
	see           []string // as in .Xr: "pivotctl 1"
}

// command is the part of a page that describes a command.
type command struct {
	page     string // such as pivotctl-config-validate
	words    string // such as config validate
	synopsis string // what follows them
	text     string
	options  string // a list, or ""
	examples string
}

func parse(page string) (program, error) {
	var p program
	head := regexp.MustCompile(`^(\.Dd .*)\n\.Dt ([A-Z-]+) ([1-8])\n`).FindStringSubmatch(page)
	_, rest, begins := strings.Cut(page, begin)
	commands, after, ends := strings.Cut(rest, end)
	_, exit, exits := strings.Cut(after, ".Sh EXIT STATUS\n")
	exit, see, sees := strings.Cut(exit, ".Sh SEE ALSO\n")
	if head == nil || !begins || !ends || !exits || !sees {
		return p, fmt.Errorf("the page lacks its head, its commands, EXIT STATUS or SEE ALSO")
	}
	p.date, p.name, p.section, p.exit = head[1], strings.ToLower(head[2]), head[3], exit
	for _, m := range regexp.MustCompile(`(?m)^\.Xr (\S+ \d)`).FindAllStringSubmatch(see, -1) {
		p.see = append(p.see, m[1])
	}
	for _, part := range strings.Split("\n"+commands, "\n.Ss ")[1:] {
		c, err := parseCommand(p.name, part)
		if err != nil {
			return p, err
		}
		p.commands = append(p.commands, c)
	}
	return p, nil
}

// parseCommand parses what describe has written.
func parseCommand(program, part string) (command, error) {
	title, text, _ := strings.Cut(part, "\n")
	text, examples, ok := strings.Cut(text, ".Pp\nFor example:\n")
	if !ok {
		return command{}, fmt.Errorf("the command %q has no example", title)
	}
	c := command{examples: strings.TrimSuffix(examples, "\n") + "\n"}
	var options bool
	c.text, c.options, options = strings.Cut(text, ".Bl -tag")
	if options {
		c.options = ".Bl -tag" + c.options
	}
	words := strings.Fields(strings.TrimSuffix(title, `\&`))
	n := 0
	for n < len(words) && regexp.MustCompile(`^[a-z]([a-z-]|\\-)*$`).MatchString(words[n]) {
		n++
	}
	c.words, c.synopsis = strings.Join(words[:n], " "), strings.Join(words[n:], " ")
	c.page = strings.ReplaceAll(program+"-"+strings.Join(words[:n], "-"), `\-`, "-")
	return c, nil
}

// brief returns the first sentence of a description, or its first part, without what makes it a
// sentence.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	for _, stop := range []string{". ", ": ", "; "} {
		text, _, _ = strings.Cut(text, stop)
	}
	first := []rune(strings.TrimSuffix(text, "."))
	if len(first) > 1 && !unicode.IsUpper(first[1]) {
		first[0] = unicode.ToLower(first[0])
	}
	return string(first)
}

// of returns the page of a command.
func (p program) of(c command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made of %s.%s by test/tools/manpages.\n", p.name, p.section)
	fmt.Fprintf(&b, "%s\n.Dt %s %s\n.Os\n", p.date, strings.ToUpper(c.page), p.section)
	fmt.Fprintf(&b, ".Sh NAME\n.Nm %s\n.Nd %s\n", c.page, brief(c.text))
	fmt.Fprintf(&b, ".Sh SYNOPSIS\n.Nm %s Cm %s\n", p.name, c.words)
	if c.options != "" {
		b.WriteString(".Op Ar flags\n")
	}
	if c.synopsis != "" {
		fmt.Fprintf(&b, ".No %s\n", c.synopsis)
	}
	b.WriteString(".Sh DESCRIPTION\n" + c.text)
	if c.options != "" {
		b.WriteString(".Sh OPTIONS\n" + c.options)
	}
	b.WriteString(".Sh EXIT STATUS\n" + p.exit)
	b.WriteString(".Sh EXAMPLES\n" + c.examples)
	b.WriteString(".Sh SEE ALSO\n" + seeAlso(append(p.see, p.name+" "+p.section)))
	return b.String()
}

// seeAlso returns references sorted by section and name, as mdoc(7) wants them.
func seeAlso(pages []string) string {
	pages = slices.Clone(pages)
	slices.SortFunc(pages, func(a, b string) int {
		section := func(s string) string { return s[len(s)-1:] }
		return cmp.Or(cmp.Compare(section(a), section(b)), cmp.Compare(a, b))
	})
	return ".Xr " + strings.Join(pages, " ,\n.Xr ") + "\n"
}
