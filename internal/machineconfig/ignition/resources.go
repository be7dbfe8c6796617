package ignition

import (
	"encoding/json"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// Resource is a source of bytes in a config: inline or remote.
type Resource = types.Resource

// Place is a resource with its path in a config.
type Place struct {
	Path     string // relative to the config, such as .storage.files[0].contents
	Resource *Resource
}

// Address returns a source in a form that is safe to show and store: its URL without the user
// and the query, which may contain secrets or signatures.
func Address(source string) string {
	if strings.HasPrefix(source, "data:") {
		return "a data URL"
	}
	if end := strings.IndexAny(source, "?#"); end >= 0 {
		source = source[:end]
	}
	scheme, rest, ok := strings.Cut(source, "://")
	if !ok {
		return source // such as arn:aws:s3:::bucket/key
	}
	path := strings.IndexByte(rest+"/", '/')
	user := strings.LastIndexByte(rest[:path], '@') + 1
	return scheme + "://" + rest[user:]
}

// Contents returns the resources of a config that provide the bytes of files, keys and
// certificates. The resources can be modified in place.
func Contents(config *Config) []Place {
	var places []Place
	add := func(r *Resource, steps ...any) { places = append(places, Place{document.PathOf(steps...), r}) }
	for i := range config.Ignition.Security.TLS.CertificateAuthorities {
		add(&config.Ignition.Security.TLS.CertificateAuthorities[i], "ignition", "security", "tls", "certificateAuthorities", i)
	}
	for i := range config.Storage.Files {
		f := &config.Storage.Files[i]
		add(&f.Contents, "storage", "files", i, "contents")
		for j := range f.Append {
			add(&f.Append[j], "storage", "files", i, "append", j)
		}
	}
	for i := range config.Storage.Luks {
		add(&config.Storage.Luks[i].KeyFile, "storage", "luks", i, "keyFile")
	}
	return places
}

// Configs returns the resources of a config that are other configs: the one that replaces it,
// or those that are merged.
func Configs(config *Config) []Place {
	from := &config.Ignition.Config
	if from.Replace.Source != nil {
		return []Place{{document.PathOf("ignition", "config", "replace"), &from.Replace}}
	}
	var places []Place
	for i := range from.Merge {
		places = append(places, Place{document.PathOf("ignition", "config", "merge", i), &from.Merge[i]})
	}
	return places
}

// Referred returns the configs that a config refers to, directly or through others. unseen are the resources of configs
// that must be fetched, or cannot be read.
func Referred(config Config, parse func(raw []byte) (Config, problem.Report)) (inline []Config, unseen []Resource) {
	const most = 1000
	room := NewRoom(MaxContent, MaxContents)
	for next := []Config{config}; len(next) > 0 && len(inline) < most; next = next[1:] {
		for _, p := range Configs(&next[0]) {
			content, err := Content(*p.Resource, room)
			child, report := parse(content)
			if err != nil || report.Failed() {
				unseen = append(unseen, *p.Resource)
				continue
			}
			inline, next = append(inline, child), append(next, child)
		}
	}
	return inline, unseen
}

// Remote returns the resources of a config that must be fetched.
func Remote(config *Config) []Place {
	var remote []Place
	for _, p := range append(Configs(config), Contents(config)...) {
		if IsRemote(*p.Resource) {
			remote = append(remote, p)
		}
	}
	return remote
}

// Clone returns a deep copy.
func Clone(config Config) Config {
	var c Config
	if err := json.Unmarshal(mustMarshal(config), &c); err != nil {
		panic(err) // it was just encoded
	}
	return c
}

// Aliases for further parts of a config.
type (
	File   = types.File
	Unit   = types.Unit
	DropIn = types.Dropin
	// Verification says how the content of a resource is verified.
	Verification = types.Verification
	// HTTPHeader is a header with which a resource is fetched.
	HTTPHeader = types.HTTPHeader
)

// Arguments returns the kernel arguments that a config adds to the command line.
func Arguments(config Config) (entries []string) {
	for _, entry := range config.KernelArguments.ShouldExist {
		entries = append(entries, string(entry))
	}
	return entries
}

// NewFile returns a file with the given content that overwrites an existing file.
func NewFile(path string, mode int, content []byte) File {
	f := File{Node: types.Node{Path: path, Overwrite: new(true)}}
	f.Mode = &mode
	f.Contents = Inline(content)
	return f
}
