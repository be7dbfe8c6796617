// Package debianpolicy reads the file contexts of Debian's SELinux policy, for tests that need as
// many patterns as a real OS has. test/tools/deps.sh unpacks the Debian package.
package debianpolicy

import (
	"cmp"
	"compress/bzip2"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Contexts returns the file contexts of all policy modules, in the format of file_contexts(5). It
// fails if the package is not unpacked.
func Contexts() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	modules, err := filepath.Glob(filepath.Join(cache, "machine-pivot/selinux-policy-default/usr/share/selinux/default/*.pp.bz2"))
	if err != nil || len(modules) == 0 {
		return "", fmt.Errorf("needs Debian's SELinux policy: no modules below %s, %v", cache, err)
	}
	var all strings.Builder
	for _, module := range modules {
		contexts, err := moduleContexts(module)
		if err != nil {
			return "", fmt.Errorf("cannot read %s: %w", module, err)
		}
		for line := range strings.Lines(contexts) {
			if strings.HasPrefix(line, "/") { // others are templates for home directories
				all.WriteString(line)
			}
		}
	}
	return all.String(), nil
}

// Files returns the enabled policy as files below /etc/selinux. Like in an installed policy, more
// specific patterns come last.
func Files() (map[string]string, error) {
	contexts, err := Contexts()
	if err != nil {
		return nil, err
	}
	lines := slices.Collect(strings.Lines(contexts))
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(fixed(a), fixed(b)) })
	return map[string]string{
		"config":                                        "SELINUX=enforcing\nSELINUXTYPE=debian\n",
		"debian/policy/policy.33":                       "binary",
		"debian/contexts/files/file_contexts":           strings.Join(lines, ""),
		"debian/contexts/files/file_contexts.subs_dist": "/usr/etc /etc\n",
	}, nil
}

// fixed returns the length of a pattern's literal prefix.
func fixed(line string) int { return strings.IndexAny(line, ".^$?*+|[({\t ") }

// moduleContexts returns the file contexts in a policy module package: a header of numbers, then
// sections that each begin with a magic number.
func moduleContexts(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(bzip2.NewReader(f))
	if err != nil {
		return "", err
	}
	const contextsMagic = 0xf97cff90
	sections := binary.LittleEndian.Uint32(data[8:])
	offsets := make([]uint32, sections, sections+1)
	for i := range offsets {
		offsets[i] = binary.LittleEndian.Uint32(data[12+4*i:])
	}
	offsets = append(offsets, uint32(len(data)))
	for i := range sections {
		section := data[offsets[i]:offsets[i+1]]
		if binary.LittleEndian.Uint32(section) == contextsMagic {
			return string(section[4:]), nil
		}
	}
	return "", nil // the module has none
}
