// Package api defines the documents between programs: the envelope of those that pivot writes, and the node agent's file
// for pivot. The envelope is a JSON object with apiVersion and kind. docs/schema has a JSON Schema for each kind.
//
// Within a version, keys may be added, but no key is removed, renamed or given another meaning.
// Readers must ignore keys that they do not know.
package api

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// APIVersion is the API version of all documents.
const APIVersion = "pivot/v1"

// Kind is the kind of a document. Its schema is docs/schema/KIND.json.
type Kind string

// The kinds of documents.
const (
	Check      Kind = "Check"      // pivotctl config validate, kargs check: whether the input is valid
	CPUSet     Kind = "CPUSet"     // pivotctl pinning cpuset
	Facts      Kind = "Facts"      // pivot facts
	Fleet      Kind = "Fleet"      // pivotctl cluster status
	FleetPlan  Kind = "FleetPlan"  // pivotctl cluster plan
	Image      Kind = "Image"      // pivot image inspect
	ImageCheck Kind = "ImageCheck" // pivot image check
	Import     Kind = "Import"     // pivot image import
	KargsDiff  Kind = "KargsDiff"  // pivotctl kargs diff
	Mutation   Kind = "Mutation"   // pivotctl pinning mutate
	Partition  Kind = "Partition"  // pivotctl pinning check
	Plan       Kind = "Plan"       // pivot plan, pivot apply --dry-run
	Progress   Kind = "Progress"   // each line of --progress-fd
	Result     Kind = "Result"     // pivot apply, rebase, firstboot, rollback
	Update     Kind = "Update"     // pivotctl config diff
	Status     Kind = "Status"     // pivot status, and /run/pivot/status.json
	Verify     Kind = "Verify"     // pivot verify
	Version    Kind = "Version"    // pivot version, pivotctl version
)

// Marshal returns value as a document on one line. The value must marshal to a JSON object.
func Marshal(kind Kind, value any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("cannot write document %s: %w", kind, err)
	}
	members, isObject := bytes.CutPrefix(body.Bytes(), []byte("{"))
	if !isObject {
		return nil, fmt.Errorf("cannot write document %s: %T is no JSON object", kind, value)
	}
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, APIVersion, kind)
	if !bytes.HasPrefix(members, []byte("}")) {
		head += ","
	}
	return append([]byte(head), members...), nil
}

// MarshalIndent is like Marshal, but indented, with each member on a line.
func MarshalIndent(kind Kind, value any) ([]byte, error) {
	compact, err := Marshal(kind, value)
	if err != nil {
		return nil, err
	}
	var document bytes.Buffer
	err = json.Indent(&document, compact, "", "  ")
	return document.Bytes(), err
}
