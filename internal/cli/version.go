package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
)

// Build is the information that the linker sets.
type Build struct {
	Version string
	Commit  string // commit of the source; "" if unknown
}

// built describes a program's build.
type built struct {
	Version   string    `json:"version"`
	Commit    string    `json:"commit"`
	Go        string    `json:"go"`
	Platform  string    `json:"platform"`
	Libraries []library `json:"libraries"`
}

// library is a module that is linked into the program.
type library struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func versionCommand(program string, build Build) *cobra.Command {
	var out Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show version, commit, Go release and linked libraries",
		Example: "  " + program + " version\n  " + program + " version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := describe(build)
			return out.Write(cmd.OutOrStdout(), b, func(w io.Writer) { b.print(w) })
		},
	}
	out.Add(cmd, api.Version)
	return cmd
}

func describe(build Build) built {
	b := built{
		Version: build.Version, Commit: build.Commit,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Libraries: []library{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, module := range info.Deps {
		if module.Replace != nil && module.Replace.Version != "" {
			module = module.Replace
		}
		b.Libraries = append(b.Libraries, library{module.Path, module.Version})
	}
	return b
}

func (b built) print(w io.Writer) {
	line := func(name, value string) { fmt.Fprintf(w, "%-9s%s\n", name, value) }
	line("version", b.Version)
	if b.Commit != "" {
		line("commit", b.Commit)
	}
	line("go", b.Go+" "+b.Platform)
	for _, l := range b.Libraries {
		line("library", l.Name+" "+l.Version)
	}
}
