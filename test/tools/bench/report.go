package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"machine-pivot/test/tools/figures"
)

// report is the result of a run.
type report struct {
	Machine machine   `json:"machine"`
	Tree    treeFacts `json:"tree"`
	Images  []image   `json:"images"` // in the order of the results
	Rounds  int       `json:"rounds"`
	Cold    bool      `json:"cold_cache"`
	CPUs    int       `json:"contender_cpus,omitempty"`
	Link    linkFacts `json:"link,omitzero"`
	Results []result  `json:"results"`
	Targets []target  `json:"targets"`

	Cuts []cutResult `json:"power_cuts,omitempty"`
}

// result is the result of one contender with one image.
type result struct {
	Contender   string   `json:"contender"`
	Image       string   `json:"image"` // "contents" for the floor of the contents alone
	Tools       string   `json:"tools,omitempty"`
	Unavailable string   `json:"unavailable,omitempty"`
	Samples     []sample `json:"samples,omitempty"`
	Median      sample   `json:"median,omitzero"` // median of each figure, independently
}

// target is a target for a figure.
type target struct {
	What  string  `json:"what"`
	Bound float64 `json:"bound"` // maximum
	Value float64 `json:"value"` // 0: not measured
	Met   bool    `json:"met"`

	// CPU is the same ratio for CPU time if Value is one of wall times. It is more reliable on a
	// busy machine.
	CPU float64 `json:"cpu,omitempty"`
}

func (w *world) report(contenders []*contender) *report {
	r := &report{Machine: w.machine(), Tree: w.tree, Rounds: w.rounds, Cold: w.coldCache, CPUs: w.cpus, Link: w.link.linkFacts}
	for _, name := range []string{legacyImage, chunkedImage, updatedImage, derivedImage, plainImage, formerImage, spreadImage, spreadPlainImage, rehearsedZstd, rehearsedGzip} {
		if i, ok := w.images[name]; ok {
			r.Images = append(r.Images, i)
		}
	}
	for _, c := range contenders {
		if c.unavailable != "" {
			r.Results = append(r.Results, result{Contender: c.name, Image: c.steps[0].image.Name, Tools: c.tools, Unavailable: c.unavailable})
			continue
		}
		for _, s := range c.steps {
			r.Results = append(r.Results, result{Contender: c.name, Image: s.image.Name, Tools: c.tools,
				Samples: s.samples, Median: medians(s.samples)})
		}
	}
	r.Targets = r.targets()
	return r
}

// find returns the median of a contender with an image; zero if it did not run.
func (r *report) find(contender, image string) sample {
	for _, one := range r.Results {
		if one.Contender == contender && one.Image == image {
			return one.Median
		}
	}
	return sample{}
}

// image returns the image with that name.
func (r *report) image(name string) image {
	return r.Images[slices.IndexFunc(r.Images, func(i image) bool { return i.Name == name })]
}

func (r *report) targets() []target {
	updated, podman := r.find("pivot", updatedImage), r.podman()
	var peak, handed, written float64
	for _, i := range r.Images {
		s := r.find("pivot", i.Name)
		peak = max(peak, float64(s.Peak))
		handed = max(handed, ratio(s.Handed, s.Objects.Bytes))
		if i.Name != updatedImage && i.Name != spreadImage { // an update mostly writes file system metadata
			written = max(written, ratio(s.Written, s.Objects.Disk))
		}
	}
	legacy, chunked := r.find("pivot", legacyImage), r.find("pivot", chunkedImage)
	derived, plain := r.find("pivot", derivedImage), r.find("pivot", plainImage)
	floor := func(image string) sample { return r.find("floor", image) }
	files := func(image string) sample { return r.find(filesFloor, image) }
	var ofChanged float64
	if updated.Wall > 0 {
		ofChanged = ratio(updated.Fetched, r.image(updatedImage).New)
	}
	targets := []target{
		compared("legacy image, of podman's", 0.25, legacy, podman[legacyImage]),
		compared("derived layers, of podman's", 0.25, derived, podman[derivedImage]),
		compared("legacy image, of the floor", 1.3, legacy, floor(legacyImage)),
		compared("chunked image, of the floor", 1.3, chunked, floor(chunkedImage)),
		compared("derived layers, of the floor", 1.3, derived, floor(derivedImage)),
		compared("legacy image, of the floor with files", 1.3, legacy, files(legacyImage)),
		compared("chunked image, of the floor with files", 1.3, chunked, files(chunkedImage)),
		compared("derived layers, of the floor with files", 1.3, derived, files(derivedImage)),
		compared("derived layers, of the same tree undivided", 1.3, derived, chunked),
		compared(fmt.Sprintf("plain image of %d layers, of the same in %d chunks", plainLayers, components), 1.2, plain, chunked),
		{What: "peak memory in MB, legacy image", Bound: 64, Value: float64(legacy.Peak) / 1e6},
		{What: "peak memory in MB, any image", Bound: 96, Value: peak / 1e6},
		{What: "bytes handed to write(2), of the new objects'", Bound: 1.05, Value: handed},
		{What: "bytes written, not updating, of the objects' blocks", Bound: 1.02, Value: written},
		{What: "bytes fetched for the update, of the layers' that changed", Bound: 1.02, Value: ofChanged},
	}
	if i := r.find("pivot", chunkedImage); r.Link.Rate > 0 {
		targets = append(targets, target{What: "wall time, chunked image, of the link's transfer", Bound: 1.05, Value: figures.Quotient(i.Wall, r.Link.transfer(i.Fetched))})
	}
	targets = slices.Concat(targets, r.partTargets(), r.rehearsalTargets())
	for n, t := range targets {
		targets[n].Met = t.Value > 0 && t.Value <= t.Bound
	}
	return targets
}

// compared returns a target for the ratio of the wall times of a and b.
func compared(what string, bound float64, a, b sample) target {
	t := target{What: "wall time, " + what, Bound: bound}
	if a.Wall > 0 {
		t.Value, t.CPU = figures.Quotient(a.Wall, b.Wall), figures.Quotient(a.CPU, b.CPU)
	}
	return t
}

// podman returns the medians of podman by image.
func (r *report) podman() map[string]sample {
	return map[string]sample{legacyImage: r.find("podman", legacyImage), derivedImage: r.find("podman", derivedImage)}
}

func (r *report) print(out io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, %d CPUs, %s of memory, Linux %s, %s\n", m.Processor, m.CPUs, megabytes(m.Memory), m.Kernel, m.FileSystem)
	fmt.Fprintf(&b, "tree: %d files, %s; derived layers have %s; the update changes %s (%.1f %%), the spread one %s\n", r.Tree.Files, megabytes(r.Tree.Bytes),
		megabytes(r.Tree.Derived), megabytes(r.Tree.Changed), 100*ratio(r.Tree.Changed, r.Tree.Bytes), megabytes(r.Tree.Spread))
	for _, i := range r.Images {
		fmt.Fprintf(&b, "%s image: %d layers, %s compressed\n", i.Name, len(i.Layers), megabytes(i.Bytes))
	}
	if r.CPUs > 0 {
		fmt.Fprintf(&b, "each contender has %d of the CPUs\n", r.CPUs)
	}
	if r.Link != (linkFacts{}) {
		fmt.Fprintf(&b, "the link to the registry: %s\n", r.Link)
	}
	cache := "cold"
	if !r.Cold {
		cache = "WARM (the kernel does not let it be emptied)"
	}
	fmt.Fprintf(&b, "%d rounds in turns, page cache %s; medians, wall time with least and most\n\n", r.Rounds, cache)
	r.table(&b)
	r.details(&b)
	for _, c := range r.Cuts {
		fmt.Fprintf(&b, "%s, %s image: of %d power cuts, %d during the import, %d left a damaged repository, %d a partial commit, %d the whole image; %d file systems cannot be mounted\n",
			c.Contender, c.Image, c.Tried, c.During, c.Broken, c.Partial, c.Complete, c.Unreadable)
		if c.First != "" {
			fmt.Fprintf(&b, "  the first: %s\n", c.First)
		}
	}
	b.WriteString("\ntargets\n")
	for _, t := range r.Targets {
		verdict := "MISSED"
		switch {
		case t.Met:
			verdict = "met"
		case t.Value == 0:
			verdict = "not measured"
		}
		fmt.Fprintf(&b, "  %-74s at most %-5v %8.3f  %s", t.What, t.Bound, t.Value, verdict)
		if t.CPU > 0 {
			fmt.Fprintf(&b, "; of CPU time %.3f", t.CPU)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// comparable returns the image with which podman is compared for the given image. Podman only runs
// with two of them.
func comparable(image string) string {
	switch image {
	case derivedImage, plainImage:
		return derivedImage
	}
	return legacyImage
}

func (r *report) table(out io.Writer) {
	columns := []string{"image", "contender", "wall s", "CPU s", "peak MB", "written MB", "disk MB", "fetched MB", "objects MB",
		"wall/podman", "wall/skopeo", "wall/floor", "CPU/floor", "wall/contents", "wall/chunked", "CPU/chunked", "wall/ostree-ext", "CPU/ostree-ext", "written/objects", "fetched/image", "wall/transfer"}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	skopeo, contents, chunked := r.find("skopeo", legacyImage), r.find("floor", contentsImage), r.find("pivot", chunkedImage)
	for _, one := range r.Results {
		m := one.Median
		podman, floor := r.podman()[comparable(one.Image)], r.find("floor", one.Image)
		reference := r.find(ostreeExt, one.Image)
		cells := []string{one.Image, one.Contender, "cannot run"}
		if one.Unavailable == "" {
			whole := int64(0)
			if one.Image != contentsImage {
				whole = r.image(one.Image).Bytes
			}
			cells = append(cells[:2], spread(one.Samples), fmt.Sprintf("%.2f", m.CPU), mb(m.Peak), mb(m.Written), mb(m.Device),
				mb(m.Fetched), mb(m.Objects.Disk), shown(figures.Quotient(m.Wall, podman.Wall)), shown(figures.Quotient(m.Wall, skopeo.Wall)),
				shown(figures.Quotient(m.Wall, floor.Wall)), shown(figures.Quotient(m.CPU, floor.CPU)), shown(figures.Quotient(m.Wall, contents.Wall)), shown(figures.Quotient(m.Wall, chunked.Wall)), shown(figures.Quotient(m.CPU, chunked.CPU)), shown(figures.Quotient(m.Wall, reference.Wall)), shown(figures.Quotient(m.CPU, reference.CPU)), shown(ratio(m.Written, m.Objects.Disk)),
				shown(ratio(m.Fetched, whole)), shown(figures.Quotient(m.Wall, r.Link.transfer(m.Fetched))))
		}
		for len(cells) < len(columns) {
			cells = append(cells, "-")
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // out is memory
}

// details prints the tools of the other contenders and the time of each phase, or why they did not
// run.
func (r *report) details(out io.Writer) {
	fmt.Fprintln(out)
	for _, one := range r.Results {
		if one.Unavailable != "" {
			fmt.Fprintf(out, "%s cannot run: %s\n", one.Contender, one.Unavailable)
		}
		if len(one.Median.Phases) < 2 {
			continue
		}
		var parts []string
		for _, p := range one.Median.Phases {
			parts = append(parts, fmt.Sprintf("%s %.2f s (CPU %.2f s, %s MB)", p.Phase, p.Wall, p.CPU, mb(p.Peak)))
		}
		fmt.Fprintf(out, "%s (%s): %s\n", one.Contender, one.Tools, strings.Join(parts, ", "))
	}
}
