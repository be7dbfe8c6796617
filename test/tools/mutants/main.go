// Command mutants makes small changes in the code of packages, one at a time, and prints those that no test notices.
// Each change is judged by the short tests of its package, and if these pass, by the short tests of the suites that
// use the package. The tree is not changed. The tests run in the surroundings of this program: see test/tools/neutral.sh.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	number := flag.Int("n", 10, "how many changes are tried in each package")
	seed := flag.Uint64("seed", 1, "selects the changes")
	at := flag.String("at", "", "tries all changes of these lines, as FILE:LINE,FILE:LINE, instead")
	suites := flag.String("suites", "", "packages with tests of other packages, separated by spaces")
	flag.Parse()
	if err := run(os.Stdout, *number, *seed, strings.FieldsFunc(*at, func(r rune) bool { return r == ',' }), strings.Fields(*suites), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, number int, seed uint64, at, suites, packages []string) error {
	dir, err := os.MkdirTemp("", "mutants-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, place := range at {
		packages = append(packages, "./"+filepath.Dir(place))
	}
	chosen, err := list(packages...)
	if err != nil {
		return fmt.Errorf("cannot list the packages: %w", err)
	}
	fmt.Fprintf(out, "seed %d\n", seed)
	var tests []listed
	if len(suites) > 0 {
		if tests, err = list(append([]string{"-test"}, suites...)...); err != nil {
			return fmt.Errorf("cannot list the suites: %w", err)
		}
	}
	r := runner{out, dir, map[string]time.Duration{}}
	for _, p := range chosen {
		all, err := sample(p, seed)
		if err != nil {
			return err
		}
		if len(at) > 0 {
			all = slices.DeleteFunc(all, func(m mutant) bool { return !slices.Contains(at, fmt.Sprintf("%s:%d", m.file, m.line)) })
			number = len(all)
		}
		if err := r.try(p.ImportPath, judges(p.ImportPath, tests), all, number); err != nil {
			return err
		}
	}
	return nil
}

// judges returns the packages with tests that run the code of a package, itself first.
func judges(pkg string, tests []listed) []string {
	all := []string{pkg}
	for _, t := range tests {
		if name, test := strings.CutSuffix(t.ImportPath, ".test"); test && name != pkg && slices.ContainsFunc(t.Deps, func(d string) bool {
			return d == pkg || strings.HasPrefix(d, pkg+" [")
		}) {
			all = append(all, name)
		}
	}
	return all
}

// sample returns the mutants of a package in the order in which they are tried.
func sample(p listed, seed uint64) (all []mutant, err error) {
	here, err := os.Getwd()
	for _, name := range p.GoFiles {
		file, errRel := filepath.Rel(here, filepath.Join(p.Dir, name))
		text, errRead := os.ReadFile(file)
		found, errParse := mutants(file, string(text))
		if err := cmp.Or(err, errRel, errRead, errParse); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		all = append(all, found...)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}
