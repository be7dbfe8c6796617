package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"machine-pivot/test/tools/figures"
)

// ratios are figures of pivot relative to others of the same run, by name, for which less is better.
// Wall times are not among them, and processor times are the least of all rounds: so they depend
// little on what else the machine does. So is peak memory, a fifth of which depends on when Go's collector runs.
type ratios map[string]float64

// tolerance is how much worse than recorded a ratio may be: two runs on a busy machine differ by a
// tenth.
const tolerance = 1.15

// ratios returns the ratios of a run.
func (r *report) ratios() ratios {
	all := ratios{}
	for _, i := range r.Images {
		s := r.find("pivot", i.Name)
		if s.Wall == 0 {
			continue
		}
		all["peak memory in MB, "+i.Name] = r.least("pivot", i.Name, func(s sample) float64 { return float64(s.Peak) / 1e6 })
		all["bytes handed to write(2), of the new objects', "+i.Name] = ratio(s.Handed, s.Objects.Bytes)
		cpu := func(s sample) float64 { return s.CPU }
		ours := r.least("pivot", i.Name, cpu)
		for other, named := range map[string]string{"floor": "the floor's", "podman": "podman's"} {
			if theirs := r.least(other, i.Name, cpu); theirs > 0 {
				all["CPU time, "+i.Name+", of "+named] = figures.Quotient(ours, theirs)
			}
		}
	}
	return all
}

// least returns the least value of a contender's samples with an image; 0 if it did not run.
func (r *report) least(contender, image string, value func(sample) float64) (least float64) {
	for _, one := range r.Results {
		if one.Contender != contender || one.Image != image {
			continue
		}
		for n, s := range one.Samples {
			if now := value(s); n == 0 || now < least {
				least = now
			}
		}
	}
	return least
}

// write writes the ratios to a file.
func (all ratios) write(path string) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// compare returns an error that lists each ratio that is worse than in a file, or missing. Ratios
// that the file does not have are not compared.
func (all ratios) compare(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var recorded ratios
	if err := json.Unmarshal(data, &recorded); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	var worse []error
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		switch now, known := all[name]; {
		case !known:
			worse = append(worse, fmt.Errorf("%s: not measured", name))
		case now > recorded[name]*tolerance:
			worse = append(worse, fmt.Errorf("%s: %.3f, recorded %.3f", name, now, recorded[name]))
		}
	}
	return errors.Join(worse...)
}
