package sepolicy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/test/tools/script"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"measure": script.Measure, "labels": labels})
}

// labels is a program that reads the policy in a directory and looks up the labels of 100,000 files.
func labels() {
	c, err := sepolicy.In(os.Args[1]).Contexts(".")
	for n := 0; n < 100_000 && err == nil; n++ {
		_, _, err = c.Label(fmt.Sprintf("/usr/lib/%0200d", n), 0)
	}
	fmt.Println(err)
	switch {
	case errors.Is(err, guard.ErrTooMuch):
		os.Exit(65)
	case err != nil:
		os.Exit(1)
	}
}

// TestLargePolicies: a policy decides how much memory and time its patterns take, so both are
// counted while they are used, and bounded.
func TestLargePolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of MiB of patterns")
	}
	const MiB = 1 << 20
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := 0; i < n && b.Len() < 15*MiB; i++ {
			fmt.Fprintf(&b, format+"\n", i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		file, text string
		exit       int
		want       string
	}{
		"literals":             {"file_contexts", lines(20*MiB, "/%x a"), 65, "more than 8388608 bytes of file contexts"},
		"fewer literals":       {"file_contexts", lines(500_000, "/%x a"), 65, "more than 20000 patterns"},
		"patterns":             {"file_contexts", lines(500_000, "/%x(/.*)? a"), 65, "more than 20000 patterns"},
		"directories":          {"file_contexts", lines(20_000, "/%x/%[1]x/%[1]x/.* a"), 0, "nil"},
		"long patterns":        {"file_contexts", lines(1500, "/%x"+strings.Repeat("x", 4000)+" a"), 65, "more than 4194304 bytes of patterns"},
		"a longer pattern":     {"file_contexts", "/" + strings.Repeat("x", 5000) + " a\n", 1, "a pattern of more than 4096 bytes"},
		"a line of fields":     {"file_contexts", strings.Repeat("a ", 3*MiB) + "\n", 1, "line 1: it is too long"},
		"labels":               {"file_contexts", lines(1500, "/%x a"+strings.Repeat("x", 4000)+"%[1]x"), 65, "more than 4194304 bytes of patterns"},
		"repetitions":          {"file_contexts", lines(1000, "/usr/lib/.*(x{1000}){1}%d a"), 65, "more than 250000 instructions"},
		"classes":              {"file_contexts", lines(1000, "/usr/lib/.*"+strings.Repeat(`\pL`, 1000)+"%d a"), 65, "more than 250000 instructions"},
		"many candidates":      {"file_contexts", lines(20_000, "/usr/lib/.?%x a"), 65, "more than"},
		"other kinds":          {"file_contexts", lines(20_000, "/usr/lib/%x.* -d a"), 65, "more than 4000000000 steps"},
		"patterns that fail":   {"file_contexts", lines(100, "/usr/lib/(.?){150}[xy]{1,2%d} a"), 65, "more than 4000000000 steps"},
		"larger ones":          {"file_contexts", lines(20, "/usr/lib/(.?.?){900}[xy]{1,2%d} a"), 65, "more than 4000000000 steps"},
		"patterns that spread": {"file_contexts", lines(100, "/usr/lib/(0|00|000)*[xy]{1,2%d} a"), 65, "more than 4000000000 steps"},
		"substitutions":        {"file_contexts.subs", lines(5*MiB, "/%x a"), 65, "more than 8388608 bytes of file contexts"},
		"fewer substitutions":  {"file_contexts.subs", lines(500_000, "/%x a"), 65, "more than 1000 substitutions"},
		"at the limit":         {"file_contexts.subs", lines(1000, "/usr/lib/%x a"), 0, "nil"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "contexts/files"), 0o755); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{"file_contexts": "/a a\n", c.file: c.text}
			for name, text := range files {
				write(t, filepath.Join(dir, "contexts/files"), name, text)
			}
			script.Bounded(t, c.exit, c.want, "labels", dir)
		})
	}
}
