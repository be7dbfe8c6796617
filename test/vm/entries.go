package vm

import (
	"context"
	"fmt"
	"strings"
)

// EntriesIn are what is below a directory of a powered-off machine's disk, by their paths from
// there: kind, mode and owner, and a file's SHA-256 or a link's target.
func (m *Machine) EntriesIn(ctx context.Context, dir string) (map[string]string, error) {
	const script = `cd "$1$2"
find . -mindepth 1 -printf '%P\t%y %m %U:%G %l\n'
find . -type f -exec sha256sum {} + | sed 's,^\([0-9a-f]*\)  \./\(.*\),\2\t\1,'
cd /`
	c, err := m.contents(ctx)
	if err != nil {
		return nil, err
	}
	out, err := c.root.mounted(ctx, "ro", script, dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", dir, err)
	}
	entries := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		entries[path] += text
	}
	return entries, nil
}
