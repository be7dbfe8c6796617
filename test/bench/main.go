// Command bench measures `pivot image import` against what it replaces, side by
// side: the same image from the same registry on the same machine. "make bench"
// runs it; docs/benchmark.md says what is measured and how.
//
// A run builds a tree from the machine's own files, commits it with the real
// ostree, makes OS images of it, serves them over TLS, and lets each contender
// bring them into an empty bare repository, in turns.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	mine, err := asChild(ctx, os.Args[1:])
	if !mine {
		err = command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

// diskDir is on a disk where /tmp may be memory.
const diskDir = "/var/tmp"

// settings are what a run can be told.
type settings struct {
	dir    string // its file system is what is measured
	pivot  string // the binary
	files  int
	bytes  int64
	rounds int
	seed   uint64
	only   string // the one part to run; "": all
	log    io.Writer
}

// say tells people what goes on.
func (s settings) say(format string, args ...any) { fmt.Fprintf(s.log, format+"\n", args...) }

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := settings{log: stderr, bytes: 2_500_000_000}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.dir, "dir", diskDir, "a directory on the file system to measure; some eight times -size are used in it")
	flags.StringVar(&s.pivot, "pivot", "bin/pivot", "the binary to measure")
	flags.IntVar(&s.files, "files", 50_000, "how many files the tree has")
	flags.Func("size", "how many bytes they have, such as 150MB (default 2.5GB)", func(text string) (err error) {
		s.bytes, err = parseSize(text)
		return err
	})
	flags.IntVar(&s.rounds, "rounds", 3, "how often each contender runs")
	flags.Uint64Var(&s.seed, "seed", 1, "which of the machine's files are taken")
	flags.StringVar(&s.only, "only", "", "the one part to run: "+basePart+" (legacy and updated images) or "+derivedPart+" (derived layers and plain images)")
	output := flags.String("o", "text", "text or json")
	images := flags.String("images", "", "measure nothing: leave the images in this directory, as oci: layouts, to profile with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || s.files < components || s.rounds < 1 || *output != "text" && *output != "json" || s.only != "" && s.only != basePart && s.only != derivedPart {
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
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		return out.Encode(r)
	}
	return r.print(stdout)
}

// parseSize reads a number of bytes with an optional kB, MB or GB after it.
func parseSize(text string) (int64, error) {
	factor := 1.0
	for unit, f := range map[string]float64{"kB": 1e3, "MB": 1e6, "GB": 1e9} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			text, factor = number, f
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && n*factor < 1e6 {
		err = errors.New("less than 1MB")
	}
	return int64(n * factor), err
}

// run is a whole benchmark in a directory of its own below s.dir.
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
	defer func() { err = errors.Join(err, w.registry.Close()) }()
	return w.measure(ctx)
}
