package ignition

import (
	"encoding/json"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/machineconfig/jsonpath"
)

// Resource is where a config takes bytes from: inline, or from elsewhere.
type Resource = types.Resource

// Place is a resource and where in a config it stands.
type Place struct {
	Path     string // below the config, as .storage.files[0].contents
	Resource *Resource
}

// Address is where a source is, to be shown and kept: its URL without all that may
// be secret in it, the user and the query, by which URLs are signed.
func Address(source string) string {
	if strings.HasPrefix(source, "data:") {
		return "a data URL"
	}
	if end := strings.IndexAny(source, "?#"); end >= 0 {
		source = source[:end]
	}
	scheme, rest, ok := strings.Cut(source, "://")
	if !ok {
		return source // as arn:aws:s3:::bucket/key
	}
	path := strings.IndexByte(rest+"/", '/')
	user := strings.LastIndexByte(rest[:path], '@') + 1
	return scheme + "://" + rest[user:]
}

// Contents are the resources of a config whose bytes go into files, keys and
// certificates. They can be changed in place.
func Contents(config *Config) []Place {
	var places []Place
	add := func(r *Resource, steps ...any) { places = append(places, Place{jsonpath.Of(steps...), r}) }
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

// Configs are the resources of a config that are other configs: the one that
// replaces it, or those that it is merged over.
func Configs(config *Config) []Place {
	from := &config.Ignition.Config
	if from.Replace.Source != nil {
		return []Place{{jsonpath.Of("ignition", "config", "replace"), &from.Replace}}
	}
	var places []Place
	for i := range from.Merge {
		places = append(places, Place{jsonpath.Of("ignition", "config", "merge", i), &from.Merge[i]})
	}
	return places
}

// Remote are the resources of a config that must be fetched from elsewhere.
func Remote(config *Config) []Place {
	var remote []Place
	for _, p := range append(Configs(config), Contents(config)...) {
		if IsRemote(*p.Resource) {
			remote = append(remote, p)
		}
	}
	return remote
}

// Clone is a config that shares nothing with the given one.
func Clone(config Config) Config {
	var c Config
	if err := json.Unmarshal(mustMarshal(config), &c); err != nil {
		panic(err) // it was written the line before
	}
	return c
}

// More of what a config is made of.
type (
	File   = types.File
	Unit   = types.Unit
	DropIn = types.Dropin
)

// NewFile is a file that holds the content and replaces what is there.
func NewFile(path string, mode int, content []byte) File {
	overwrite := true
	f := File{Node: types.Node{Path: path, Overwrite: &overwrite}}
	f.Mode = &mode
	f.Contents = Inline(content)
	return f
}
