package encapsulated

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"

	"machine-pivot/internal/problem"
)

// Salvage is ParseRecord for a MachineConfig that another program has applied, which may be
// damaged, or have what pivot cannot use. It leaves that out: the smallest element of a list, the
// Ignition config, a member of spec, or everything. The report names what was left out; its
// problems are warnings.
func Salvage(data []byte) (*Desired, problem.Report) {
	var out problem.Report
	for {
		desired, report := ParseRecord(data)
		if !report.Failed() {
			return desired, out
		}
		rest, removed := withoutErrors(data, report)
		for _, p := range report {
			if p.Severity == problem.Error {
				p.Severity = problem.Warning
				out.Add(p)
			}
		}
		if !removed {
			return &Desired{}, out
		}
		data = rest
	}
}

// withoutErrors returns a MachineConfig without the values in which a report has errors. removed
// is false if that is not possible, so that nothing of the MachineConfig can be used.
func withoutErrors(data []byte, report problem.Report) (rest []byte, removed bool) {
	var root map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&root) != nil {
		return nil, false
	}
	asked, _ := root["spec"].(map[string]any)
	for _, p := range report {
		if p.Severity == problem.Error && !cutOut(asked, p.Path) {
			return nil, false
		}
	}
	root["spec"] = compacted(asked)
	rest, err := json.Marshal(root)
	return rest, err == nil
}

// cut marks an element of a list that is left out, until its list is compacted: the paths of other
// problems have the elements' original places.
type cut struct{}

// steps are the members and elements of a path below $.spec: .NAME, ["NAME"] or [NUMBER].
var steps = regexp.MustCompile(`\.([A-Za-z0-9_-]+)|\[("(?:[^"\\]|\\.)*")\]|\[([0-9]+)\]`)

// cutOut leaves out the value at a path: the last element of a list on the way to it, or else the
// member of spec. It reports whether there is such a value.
func cutOut(asked map[string]any, path string) bool {
	var at any = map[string]any{"spec": asked}
	var member string
	remove := func() bool { _, there := asked[member]; delete(asked, member); return there }
	for depth, step := range steps.FindAllStringSubmatch(path, -1) {
		name := step[1]
		if step[2] != "" {
			if json.Unmarshal([]byte(step[2]), &name) != nil {
				break
			}
		}
		switch container := at.(type) {
		case map[string]any:
			if depth == 1 {
				member = name
			}
			at = container[name]
		case []any:
			i, err := strconv.Atoi(step[3])
			if err != nil || i >= len(container) {
				return remove()
			}
			remove = func() bool { container[i] = cut{}; return true }
			at = container[i]
		}
	}
	return remove()
}

// compacted returns a value without the elements of lists that were cut out.
func compacted(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			v[key] = compacted(member)
		}
	case []any:
		kept := []any{}
		for _, element := range v {
			if _, gone := element.(cut); !gone {
				kept = append(kept, compacted(element))
			}
		}
		return kept
	}
	return value
}
