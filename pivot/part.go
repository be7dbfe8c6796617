package pivot

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// Part is the part of the journal that a Feature has. The core keeps it, also if it does not know the feature.
type Part struct {
	Data json.RawMessage `json:"data"`
	// Stamp says that there is a file with the feature's name beside the journal as long as it has this part. Units of any
	// deployment use it as a start condition.
	Stamp bool `json:"stamp,omitempty"`
	// Keeps are the digests of the contents that are kept for the feature: see Journal.Store.
	Keeps []hostfiles.Digest `json:"keeps,omitempty"`
	// Holds says that the transaction is not over as long as the journal has this part. The next one begins without it.
	Holds bool `json:"holds,omitempty"`
	// Avoids are the IDs of deployments that no rollback leads to.
	Avoids []string `json:"avoids,omitempty"`
	// Images are images that the feature has pulled, and removes by itself.
	Images []Image `json:"images,omitempty"`
}

// PartOf decodes the part with a name; nil if there is none.
func PartOf[T any](r JournalContent, name string) (*T, error) {
	part, has := r.Features[name]
	if !has {
		return nil, nil
	}
	value := new(T)
	if err := json.Unmarshal(part.Data, value); err != nil {
		return nil, fault.New(fault.Refused, "cannot use the journal's part %s: %w", name, err).WithHint(journalRemedy)
	}
	return value, nil
}

// SetPart sets the part with a name to a value and to what else part has.
func (r *JournalContent) SetPart(name string, value any, part Part) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot write the journal's part %s: %w", name, err)
	}
	part.Data = data
	r.Features = maps.Clone(r.Features) // events share it
	if r.Features == nil {
		r.Features = map[string]Part{}
	}
	r.Features[name] = part
	return nil
}

// DropPart removes the part with a name.
func (r *JournalContent) DropPart(name string) {
	r.Features = maps.Clone(r.Features)
	delete(r.Features, name)
}

// stamps returns the names of the stamps that the content requires.
func (r JournalContent) stamps() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Features)) {
		if r.Features[name].Stamp {
			names = append(names, name)
		}
	}
	return names
}

// Held reports whether a feature holds the transaction.
func (r JournalContent) Held() bool {
	for _, part := range r.Features {
		if part.Holds {
			return true
		}
	}
	return false
}

// Avoids reports whether no rollback leads to the deployment with an ID.
func (r JournalContent) Avoids(deployment string) bool {
	for _, part := range r.Features {
		if slices.Contains(part.Avoids, deployment) {
			return true
		}
	}
	return false
}

// WithoutHolds returns the parts that do not hold the transaction.
func (r JournalContent) WithoutHolds() map[string]Part {
	parts := maps.Clone(r.Features)
	maps.DeleteFunc(parts, func(_ string, part Part) bool { return part.Holds })
	return parts
}

// needs reports whether a feature has pulled an image.
func (r JournalContent) needs(image Image) bool {
	for _, part := range r.Features {
		if slices.ContainsFunc(part.Images, image.Same) {
			return true
		}
	}
	return false
}

// kept returns the digests of all contents that the journal names.
func (r JournalContent) kept() []hostfiles.Digest {
	all := slices.Clone(r.Contents)
	for _, part := range r.Features {
		all = append(all, part.Keeps...)
	}
	return all
}
