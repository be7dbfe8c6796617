package document

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/problem"
)

// Read reads all documents of a file, in JSON or YAML, and lets decode judge each.
// The report holds what is wrong with the text and what decode found, in the
// order of the lines.
func Read(file string, data []byte, decode func(root Node)) problem.Report {
	var report problem.Report
	for _, doc := range documents(file, data, &report) {
		var problems problem.Report
		decode(Node{Path: "$", Value: doc.value, Report: &problems})
		doc.place(problems)
		report.Add(problems...)
	}
	slices.SortStableFunc(report, func(a, b problem.Problem) int { return cmp.Compare(a.Line, b.Line) })
	return report.In(file)
}

// document is one of the documents in a file.
type document struct {
	value any // as in Node
	// lines fills in the lines of the file on which the paths end that are its keys.
	lines func(map[string]int)
}

// documents reads all documents of a file, in JSON or YAML. Empty ones are left out.
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
		// YAML can begin with a brace too.
		var others problem.Report
		if y := yamlDocuments(data, &others); !others.Failed() {
			*report = append(*report, others...)
			return y
		}
	}
	*report = append(*report, problems...)
	return docs
}

// isText checks what neither JSON nor YAML can hold.
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

// jsonDocuments reads JSON values, one after the other.
func jsonDocuments(data []byte, report *problem.Report) []document {
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
		first, _ := position(data, d.InputOffset()-int64(len(raw)))
		if jsonpath.Depth(raw) > maxDepth {
			report.Add(atLine(first, "it is nested too deeply"))
			continue
		}
		docs = append(docs, jsonDocument(raw, first, report))
	}
}

// jsonDocument reads one JSON value, which is known to be one.
func jsonDocument(raw []byte, first int, report *problem.Report) document {
	doc := document{lines: func(wanted map[string]int) {
		jsonpath.Lines(raw, wanted)
		for path, line := range wanted {
			if line > 0 {
				wanted[path] = line + first - 1
			}
		}
	}}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&doc.value); err != nil {
		report.Fail("$", "it is not JSON: %v", err)
	}
	var problems problem.Report
	for _, path := range jsonpath.Duplicates(raw) {
		problems.Fail(path, "it is there more than once")
	}
	doc.place(problems)
	*report = append(*report, problems...)
	return doc
}

// yamlError is how the YAML parser says where it stopped.
var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func notYAML(text string) problem.Problem {
	line := 0
	if match := yamlError.FindStringSubmatch(text); match != nil {
		text = strings.TrimPrefix(text, match[0])
		line, _ = strconv.Atoi(match[1])
	}
	return atLine(line, "it is not YAML: "+text)
}

// atLine is the problem of a text that is not a document yet.
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
		reader := yamlReader{report: report}
		value := reader.value(root)
		if value == nil || reader.stopped {
			continue // nothing, such as what follows a trailing "---", or not whole
		}
		docs = append(docs, document{value: value, lines: func(wanted map[string]int) { yamlLines(root, wanted) }})
	}
}

// place fills in the lines of problems. Where a path is not in the document, the
// line is that of the nearest object that is.
func (d document) place(problems problem.Report) {
	wanted := map[string]int{}
	for _, p := range problems {
		for path := p.Path; path != "" && p.Line == 0; path = jsonpath.Parent(path) {
			wanted[path] = 0
		}
	}
	if len(wanted) == 0 {
		return
	}
	d.lines(wanted)
	for i, p := range problems {
		for path := p.Path; path != "" && problems[i].Line == 0; path = jsonpath.Parent(path) {
			problems[i].Line = wanted[path]
		}
	}
}
