// Package debianpolicy has what Debian's SELinux policy says of files, for tests that
// want as many patterns as an OS has. test/tools/deps.sh unpacks Debian's package.
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

// Contexts are the file contexts of all of the policy's modules, in the form of
// file_contexts(5). An error means that the package is not there.
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

// Files are the policy as a system has it below /etc/selinux, switched on. Patterns are
// in an order like that of an installed policy, the special ones last.
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

// fixed is how many characters of a pattern stand for themselves, to its first other one.
func fixed(line string) int { return strings.IndexAny(line, ".^$?*+|[({\t ") }

// moduleContexts are the file contexts in a policy module package: a header of
// numbers, and sections that begin with one of their own.
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
	return "", nil // it has none
}
