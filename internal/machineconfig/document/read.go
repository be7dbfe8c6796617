// Package document reads JSON and YAML in the same way, as nodes that know their position. Its
// report lists every problem with file, line and JSON path. It is meant for configuration that
// people write: it accepts only what both formats can express and all readers understand alike,
// and it limits sizes. A document can also be edited; whatever is not modified keeps its form.
package document

import (
	"bytes"
	"encoding/json"
	"io"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/problem"
)

// MaxSize limits a text, in bytes. The API server of a cluster accepts objects of up to 1.5
// MiB.
const MaxSize = 8 << 20

// Read reads all documents of a file, in JSON or YAML, and calls decode for each. It returns
// the problems of the text and those that decode reported, sorted by line.
func Read(file string, data []byte, decode func(root Node)) problem.Report {
	var report problem.Report
	for _, doc := range documents(file, data, &report) {
		report.Add(doc.decode(decode)...)
	}
	return ordered(file, report)
}

// ordered returns the report for a file, sorted by line.
func ordered(file string, report problem.Report) problem.Report {
	sort.SliceStable(report, func(i, j int) bool { return report[i].Line < report[j].Line })
	return report.In(file)
}

// ParseJSON reads one JSON value. If it fails, the report has the reason. The problems have no
// lines, because the input is usually written by programs on one line.
func ParseJSON(data []byte, report *problem.Report) (Node, bool) {
	root := Node{Path: "$", Report: report}
	if len(data) > MaxSize {
		report.Fail("$", "it has %d bytes, more than %d", len(data), MaxSize)
		return root, false
	}
	if !utf8.Valid(data) {
		report.Fail("$", "it is not JSON: it holds bytes that are not UTF-8")
		return root, false
	}
	var problems problem.Report
	docs := jsonDocuments(data, &problems)
	for _, p := range problems {
		if p.Column == 0 {
			p.Line = 0
		}
		report.Add(p)
	}
	switch {
	case len(docs) == 1:
		root.tree = docs[0].root
	case len(docs) > 1:
		report.Fail("$", "it is not JSON: something follows the JSON value")
	case len(problems) == 0:
		report.Fail("$", "it is not JSON: it is empty")
	}
	return root, root.tree != nil
}

// document is one document of a file.
type document struct {
	root   *yaml.Node
	isJSON bool
}

// decode returns the problems that a function reports for the document, with lines.
func (d document) decode(by func(root Node)) problem.Report {
	var problems problem.Report
	by(Node{Path: "$", Report: &problems, tree: d.root})
	d.place(problems)
	return problems
}

// documents reads all documents of a file, in JSON or YAML. Empty documents are skipped.
func documents(file string, data []byte, report *problem.Report) []document {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !isText(data, report) {
		return nil
	}
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 || start[0] != '{' && start[0] != '[' {
		return yamlDocuments(data, report)
	}
	var problems problem.Report
	docs := jsonDocuments(data, &problems)
	if problems.Failed() && path.Ext(file) != ".json" {
		// A YAML document can start with a brace, too.
		var others problem.Report
		if y := yamlDocuments(data, &others); !others.Failed() {
			*report = append(*report, others...)
			return y
		}
	}
	*report = append(*report, problems...)
	return docs
}

// isText checks the size and the encoding, which both formats require.
func isText(data []byte, report *problem.Report) bool {
	if len(data) > MaxSize {
		report.Fail("$", "it has more than %d bytes", MaxSize)
		return false
	}
	if !utf8.Valid(data) {
		report.Fail("$", "it holds bytes that are not UTF-8")
		return false
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		line, _ := position(data, int64(i))
		report.Add(atLine(line, "it holds a NUL byte"))
		return false
	}
	return true
}

// jsonDocuments reads a sequence of JSON values.
func jsonDocuments(data []byte, report *problem.Report) []document {
	if json.Valid(data) { // a single value, as usual
		return appendDocument(nil, data, 0, len(data), report)
	}
	var docs []document
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if err == io.EOF {
			return docs
		}
		if err != nil {
			report.Add(notJSON(data, d, err))
			return docs
		}
		end := int(d.InputOffset())
		docs = appendDocument(docs, data, end-len(raw), end, report)
	}
}

// appendDocument appends the document of a valid JSON value, that between two offsets.
func appendDocument(docs []document, data []byte, from, to int, report *problem.Report) []document {
	raw := bytes.TrimLeft(data[from:to], " \t\r\n")
	first, _ := position(data, int64(to-len(raw)))
	root, err := jsonTree(raw, first)
	if err != nil {
		report.Add(atLine(first, err.Error()))
		return docs
	}
	if doc := (document{root, true}); doc.isWhole(report) {
		docs = append(docs, doc)
	}
	return docs
}

// isWhole reports whether the document was read completely. Problems are added to the report.
func (d document) isWhole(report *problem.Report) bool {
	c := checker{report: report}
	c.value(d.root)
	return !c.stopped
}

// notJSON returns the problem for a text that is not valid JSON.
func notJSON(data []byte, d *json.Decoder, err error) problem.Problem {
	p := problem.Errorf("$", "it is not JSON: %v", err)
	p.Line, p.Column = position(data, syntaxOffset(data, d, err))
	return p
}

// position converts an offset to a line and a column, both starting at 1.
func position(data []byte, offset int64) (line, column int) {
	before := data[:max(0, min(int(offset), len(data)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// yamlError matches the prefix of the YAML parser's errors, with the line.
var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func notYAML(text string) problem.Problem {
	line := 0
	if match := yamlError.FindStringSubmatch(text); match != nil {
		text = strings.TrimPrefix(text, match[0])
		line, _ = strconv.Atoi(match[1])
	}
	return atLine(line, "it is not YAML: "+text)
}

// atLine returns a problem of a text that could not be parsed as a document.
func atLine(line int, message string) problem.Problem {
	p := problem.Errorf("$", "%s", message)
	p.Line = line
	return p
}

// yamlDocuments reads the documents of a YAML stream.
func yamlDocuments(data []byte, report *problem.Report) []document {
	var docs []document
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		root := &yaml.Node{}
		err := d.Decode(root)
		if err == io.EOF {
			return docs
		}
		if err != nil {
			report.Add(notYAML(err.Error()))
			return docs
		}
		doc := document{root: root}
		if whole := doc.isWhole(report); whole && kindOf(root) != kindNull { // a trailing "---" yields a null document
			docs = append(docs, doc)
		}
	}
}

// place sets the lines of problems. If a path does not exist in the document, it uses the line
// of the nearest parent that does.
func (d document) place(problems problem.Report) {
	wanted := map[string]int{}
	for _, p := range problems {
		for path := p.Path; path != "" && p.Line == 0; path = parentOf(path) {
			wanted[path] = 0
		}
	}
	if len(wanted) == 0 {
		return
	}
	lines(d.root, wanted)
	for i, p := range problems {
		for path := p.Path; path != "" && problems[i].Line == 0; path = parentOf(path) {
			problems[i].Line = wanted[path]
		}
	}
}
