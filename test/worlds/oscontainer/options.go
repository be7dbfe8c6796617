package oscontainer

import "os"

// Option is an option for building an image.
type Option func(*options)

type options struct {
	workDir string
	prefix  string
	labels  map[string]string

	// For Legacy.
	layers int
	noRepo bool

	// For Encapsulated.
	chunks      int
	chunkOf     func(checksum string, names []string) int
	former      bool
	compression Compression
	derived     [][]Entry
	edit        func(layer int, e Entry) []Entry
}

func newOptions(opts []Option) (options, error) {
	o := options{layers: 2, labels: map[string]string{}, chunkOf: byDirectory(0)}
	for _, opt := range opts {
		opt(&o)
	}
	if o.workDir != "" {
		return o, nil
	}
	var err error
	o.workDir, err = os.MkdirTemp("", "oscontainer-*")
	return o, err
}

// WithWorkDir sets the directory for the files of the layers. Each image needs its own directory,
// and the files must exist as long as the image is used. Default: a new temporary directory,
// which is not removed.
func WithWorkDir(dir string) Option { return func(o *options) { o.workDir = dir } }

// WithPathPrefix sets a prefix for each path in the layers, such as "./" or "/".
func WithPathPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithLabel sets a label, or removes it if the value is empty.
func WithLabel(name, value string) Option { return func(o *options) { o.labels[name] = value } }

// WithLayers sets the number of layers over which a legacy image's objects are distributed.
// Default: 2.
func WithLayers(n int) Option { return func(o *options) { o.layers = max(n, 1) } }

// WithoutRepo omits a legacy image's /srv/repo.
func WithoutRepo() Option { return func(o *options) { o.noRepo = true } }

// WithChunks sets the number of chunk layers of an encapsulated image. Default: none, the commit
// layer has everything. Objects are distributed by the first three levels of their directory, so
// that a change in one place changes one layer. Some objects remain in the commit layer.
func WithChunks(n int) Option { return WithChunking(n, byDirectory(n)) }

// WithChunking is WithChunks with a custom rule. layerOf gets a content object's checksum and its
// paths in the tree, and returns its chunk, 1 to n, or 0 for the commit layer.
func WithChunking(n int, layerOf func(checksum string, names []string) int) Option {
	return func(o *options) { o.chunks, o.chunkOf = n, layerOf }
}

// WithFormerExport writes an encapsulated image as exporters before bootc 1.8 did (ostree-ext up to 0.15): one object
// for each set of extended attributes, with hard links, and no PAX records.
func WithFormerExport() Option { return func(o *options) { o.former = true } }

// WithCompression sets the compression of an encapsulated image's layers. Default: Gzip.
func WithCompression(c Compression) Option { return func(o *options) { o.compression = c } }

// WithDerived adds a layer on top of an encapsulated image, as a container build does.
func WithDerived(entries ...Entry) Option {
	return func(o *options) { o.derived = append(o.derived, entries) }
}

// WithEdit changes an encapsulated image, for example to damage it. edit gets each entry of the layers that make up the
// commit, in order, and returns the entries to write instead. Layer 0 is the commit layer.
func WithEdit(edit func(layer int, e Entry) []Entry) Option {
	return func(o *options) { o.edit = edit }
}
