package osimage

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// KargsDir is the directory of the TOML files with kernel arguments in an image (bootc's manual, "Kernel arguments").
const KargsDir = "usr/lib/bootc/kargs.d"

// Limits of the input. The kernel takes 2 KiB of arguments.
const (
	MaxKargsFiles = 256
	MaxKargsSize  = 64 << 10
)

// kargsSuffix is the suffix of the names of files that are read.
const kargsSuffix = ".toml"

// Arguments are the kernel arguments that an image brings for one architecture.
type Arguments struct {
	Line     kargs.Line // in the order of the files' names
	Warnings []string   // for people: unusual content

	problems []error // invalid files and arguments
}

// Err returns an error if a file is invalid. The arguments may then be incomplete, or not
// meant for this machine, and must not be used.
func (a Arguments) Err() error {
	if len(a.problems) == 0 {
		return nil
	}
	return fault.New(fault.BadInput, "cannot use the kernel arguments that the image brings in /%s: %w", KargsDir, errors.Join(a.problems...)).
		WithHint("have the image corrected, or leave its kernel arguments out: --image-kargs=print")
}

// ReadKargs reads the kernel arguments of a commit in a repository, for the architecture with the given GOARCH name. The
// caller decides whether to apply them. Like bootc, it rejects files with unknown keys: such a key may restrict the
// arguments to certain machines. It returns only errors of the repository; see Arguments.Err for errors in files.
func ReadKargs(repo *ostree.Repo, commit ostree.Checksum, goarch string) (Arguments, error) {
	var a Arguments
	dir, exists, err := repo.ResolveDir(commit, KargsDir)
	if _, unresolved := errors.AsType[*ostree.UnresolvedError](err); unresolved {
		a.problems = []error{err}
		return a, nil
	}
	var names []string
	if err == nil && exists {
		names, err = repo.FileNames(commit, dir)
	}
	if err != nil {
		return Arguments{}, fmt.Errorf("cannot read /%s of commit %s: %w", KargsDir, commit, err)
	}
	files := 0
	for _, name := range names {
		if !strings.HasSuffix(name, kargsSuffix) {
			a.warn(name, "is not read: its name does not end with %s", kargsSuffix)
			continue
		}
		if files++; files > MaxKargsFiles {
			a.problem(name, errors.New("one file too many"))
			break
		}
		text, err := repo.ReadFileUpTo(commit, path.Join(dir, name), MaxKargsSize)
		if err != nil {
			a.problem(name, err)
			continue
		}
		a.Add(name, string(text), goarch)
	}
	return a, nil
}

// kargsFile is the content of a file.
type kargsFile struct {
	Arguments     []string `toml:"kargs"`
	Architectures []string `toml:"match-architectures"`
}

// Add adds the arguments of a file with the given content. Files must be added in the order
// of their names.
func (a *Arguments) Add(name, text, goarch string) {
	var f kargsFile
	meta, err := toml.Decode(text, &f)
	if err == nil {
		err = checkKargsKeys(meta)
	}
	if err != nil {
		a.problem(name, err)
		return
	}
	for _, other := range f.Architectures {
		if !slices.Contains(rustNames, other) {
			a.warn(name, "names the architecture %q, which is none by the names of Rust, as %s", other, rustName(goarch))
		}
	}
	if meta.IsDefined("match-architectures") && !slices.Contains(f.Architectures, rustName(goarch)) {
		return
	}
	for _, entry := range f.Arguments {
		for _, p := range (kargs.Policy{}).Check(entry) { // errors under any policy
			a.problem(name, fmt.Errorf("%q %s", p.Path, p.Message))
		}
		a.Line = append(a.Line, kargs.Split(entry)...)
	}
}

// checkKargsKeys rejects unknown keys, and known keys in another letter case, which the decoder
// would accept.
func checkKargsKeys(meta toml.MetaData) error {
	for _, key := range meta.Keys() {
		if name := key.String(); name != "kargs" && name != "match-architectures" {
			return fmt.Errorf("there is no key %s; there are kargs and match-architectures", name)
		}
	}
	if !meta.IsDefined("kargs") {
		return errors.New("it has no key kargs")
	}
	return nil
}

func (a *Arguments) problem(name string, err error) {
	a.problems = append(a.problems, fmt.Errorf("%s: %w", name, err))
}

func (a *Arguments) warn(name, format string, args ...any) {
	a.Warnings = append(a.Warnings, fmt.Sprintf("/%s/%s ", KargsDir, name)+fmt.Sprintf(format, args...))
}

// rustNames are Rust's names of the architectures of hosts (std::env::consts::ARCH). Rust has
// one name for both byte orders.
var rustNames = []string{"x86", "x86_64", "arm", "aarch64", "loongarch64", "powerpc", "powerpc64", "riscv64", "s390x"}

// rustName returns Rust's name of an architecture.
func rustName(goarch string) string {
	switch goarch {
	case "amd64":
		return "x86_64"
	case "386":
		return "x86"
	case "arm64":
		return "aarch64"
	case "loong64":
		return "loongarch64"
	case "ppc64", "ppc64le":
		return "powerpc64"
	}
	return goarch
}
