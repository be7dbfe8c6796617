package admission

import (
	"crypto/sha256"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig/ignition"
)

// argumentDirs returns the directories, and argumentFiles the files, from which kernel arguments come: pivot's own, those of
// boot loaders and of the tools that write their entries, and bootc's kargs.d.
func argumentDirs() []string {
	return []string{"/boot", "/efi", "/sysroot", "/ostree", "/etc/kernel", "/usr/lib/kernel", "/etc/grub.d", "/etc/default/grub.d", "/usr/lib/bootc/kargs.d"}
}

func argumentFiles() []string {
	return []string{"/etc/pivot/kernel-args", "/etc/default/grub", "/etc/zipl.conf"}
}

// bringsArguments reports whether a file is one from which kernel arguments come.
func bringsArguments(name string) bool {
	name = path.Clean(name)
	return slices.ContainsFunc(argumentDirs(), func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) || slices.Contains(argumentFiles(), name)
}

// leadsToArguments reports whether a path is that of a directory that has such files, so that a link there brings others.
func leadsToArguments(name string) bool {
	name = path.Clean(name)
	return slices.ContainsFunc(slices.Concat(argumentDirs(), argumentFiles()), func(p string) bool { return p == name || strings.HasPrefix(p, name+"/") })
}

// argumentsIn returns the words of a file that may be kernel arguments, in any format of these files: quotes end a
// word, or are left out. It returns false if the contents are not in the config, cannot be read, or have what a shell,
// GRUB or TOML makes another text of: variables, commands and escapes.
func argumentsIn(f ignition.File) (words []string, ok bool) {
	room := authored.NewRoom()
	ok = true
	for _, r := range append([]ignition.Resource{f.Contents}, f.Append...) {
		if ignition.IsRemote(r) {
			return nil, false
		}
		content, err := ignition.Content(r, room)
		if err != nil {
			return nil, false
		}
		for line := range strings.Lines(string(content)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				unquoted := strings.NewReplacer(`"`, "", "'", "").Replace(line)
				_, value, _ := strings.Cut(unquoted, "=") // of a variable
				for _, text := range []string{line, unquoted, value} {
					words = append(words, strings.FieldsFunc(text, isBetweenArguments)...)
				}
				ok = ok && !strings.ContainsAny(line, "$`\\")
			}
		}
	}
	return words, ok
}

// isBetweenArguments reports whether a character separates arguments in a shell variable, a list of TOML or a
// boot entry.
func isBetweenArguments(r rune) bool { return r <= ' ' || strings.ContainsRune("\"'[]{}();", r) }

// hashOf tells contents that cannot be judged from others.
func hashOf(contents ...any) []byte {
	text, err := json.Marshal(contents)
	if err != nil {
		panic(err) // it was read from JSON
	}
	sum := sha256.Sum256(text)
	return sum[:4]
}
