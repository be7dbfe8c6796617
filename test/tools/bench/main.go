// Command bench compares `pivot image import` with what it replaces: the same image from the same
// registry on the same machine. "make bench" runs it; docs/dev/benchmark.md describes what is measured
// and how.
//
// A run builds a tree from the machine's own files, commits it with the real ostree, builds OS images from it, and
// serves them over TLS. The contenders import them in turn, each into an empty bare repository.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"machine-pivot/test/tools/figures"
	"machine-pivot/test/tools/tool"
)

func main() { os.Exit(tool.Run("bench", either)) }

// either is command, or what a run of it has started this program for.
func either(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if mine, err := asChild(ctx, args); mine {
		return err
	}
	return command(ctx, args, stdout, stderr)
}

// diskDir is a directory on disk, even where /tmp is in memory.
const diskDir = "/var/tmp"

// settings are the settings of a run.
type settings struct {
	dir    string   // on the file system to measure
	pivot  string   // the binary to measure
	from   []string // directories with the contents of the images as files
	files  int
	bytes  int64
	rounds int
	seed   uint64
	only   string // the only part to run; "": all
	rivals bool   // run podman and skopeo too
	// referenceProgram is the program of the reference implementation; "": it does not run.
	referenceProgram string

	verity bool // pivot runs with fs-verity, too
	cuts   int  // how many power cuts of each contender's import are tried
	cpus   int  // number of processors of each contender; 0: all
	link   *link
	log    io.Writer
}

// say logs the progress.
func (s settings) say(format string, args ...any) { fmt.Fprintf(s.log, format+"\n", args...) }

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := settings{log: stderr, from: []string{"/usr", "/opt"}, bytes: 2_500_000_000, link: &link{}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.dir, "dir", diskDir, "a directory on the file system to measure; some eight times -size are used in it")
	flags.StringVar(&s.pivot, "pivot", "bin/pivot", "the binary to measure")
	flags.IntVar(&s.files, "files", 50_000, "how many files the tree has")
	flags.Func("size", "how many bytes they have, such as 150MB (default 2.5GB)", func(text string) (err error) {
		s.bytes, err = figures.ParseSize(text)
		return err
	})
	flags.IntVar(&s.rounds, "rounds", 3, "how often each contender runs")
	flags.Uint64Var(&s.seed, "seed", 1, "which of the machine's files are taken")
	flags.StringVar(&s.only, "only", "", "the one part to run: "+basePart+" (legacy and updated images) or "+derivedPart+" (derived layers and plain images), "+partsPart+" (layers of which parts are fetched), "+rehearsalPart+" (an image is judged before its commit)")
	flags.BoolVar(&s.rivals, "rivals", true, "whether podman and skopeo run too")
	flags.StringVar(&s.referenceProgram, "reference", "", "the program of the reference implementation, ostree-ext, which runs too (test/worlds/oscontainer/reference)")
	flags.IntVar(&s.cuts, "cuts", 0, "how many power cuts at random moments of an import by each contender are tried after the measurements")
	flags.BoolVar(&s.verity, "verity", false, "whether pivot also runs with fs-verity, which the file system of -dir must support")
	flags.IntVar(&s.cpus, "cpus", 0, "the number of processors of each contender; the registry has all (default all)")
	flags.Func("link", "the link to the registry, such as 100Mb/s,20ms: its rate, and the time of a round trip (default none)", func(text string) (err error) {
		s.link.linkFacts, err = parseLink(text)
		return err
	})
	check := flags.String("check", "", "fail if a ratio is worse than recorded in this file")
	record := flags.String("record", "", "record the ratios in this file")
	output := flags.String("o", "text", "text or json")
	images := flags.String("images", "", "measure nothing: leave the images in this directory, as oci: layouts, to profile with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || s.files < components || s.rounds < 1 || s.cuts < 0 || s.cpus < 0 || *output != "text" && *output != "json" || !slices.Contains([]string{"", basePart, derivedPart, partsPart, rehearsalPart}, s.only) {
		return errors.New("wrong arguments; -help lists them")
	}
	if os.Getuid() != 0 {
		return errors.New("this needs root: files get owners, and the page cache is emptied")
	}
	if *images != "" {
		return s.keepImages(ctx, *images)
	}
	r, err := run(ctx, s)
	if err != nil {
		return err
	}
	if *output == "json" {
		err = writeJSON(stdout, r)
	} else {
		err = r.print(stdout)
	}
	if err == nil && *record != "" {
		err = r.ratios().write(*record)
	}
	if err == nil && *check != "" {
		err = r.ratios().compare(*check)
	}
	return err
}

func writeJSON(to io.Writer, value any) error {
	out := json.NewEncoder(to)
	out.SetIndent("", "  ")
	return out.Encode(value)
}

// run runs a benchmark in a temporary directory below s.dir.
func run(ctx context.Context, s settings) (_ *report, err error) {
	if s.pivot, err = filepath.Abs(s.pivot); err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.pivot); err != nil {
		return nil, fmt.Errorf("%w (make build makes it)", err)
	}
	if s.dir, err = os.MkdirTemp(s.dir, "pivot-bench-*"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	w, err := newWorld(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.link.close(), w.registry.Close()) }()
	return w.measure(ctx)
}
