package oscontainer

import "os"

// Option changes what is built.
type Option func(*options)

type options struct {
	workDir string
	prefix  string
	labels  map[string]string

	// Legacy.
	layers int
	noRepo bool

	// Encapsulated.
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

// WithWorkDir says where the layers are written, one image a directory. They must
// stay as long as the image is used. Default: a new temporary directory, which is
// left behind.
func WithWorkDir(dir string) Option { return func(o *options) { o.workDir = dir } }

// WithPathPrefix is put before each path in the layers, such as "./" or "/".
func WithPathPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithLabel sets a label, or removes it if the value is empty.
func WithLabel(name, value string) Option { return func(o *options) { o.labels[name] = value } }

// WithLayers says over how many layers a legacy image's objects are spread.
// Default: 2.
func WithLayers(n int) Option { return func(o *options) { o.layers = max(n, 1) } }

// WithoutRepo leaves a legacy image's /srv/repo out.
func WithoutRepo() Option { return func(o *options) { o.noRepo = true } }

// WithChunks says how many chunk layers an encapsulated image has. Default: none,
// the commit layer has everything. Objects go by the directory they are in, up to
// three levels deep: a change in one place changes one layer. Some stay in the
// commit layer.
func WithChunks(n int) Option { return WithChunking(n, byDirectory(n)) }

// WithChunking is WithChunks with a rule of its own. layerOf gets a content
// object's checksum and its paths in the tree and says which chunk it belongs to,
// 1 to n, or 0 for the commit layer.
func WithChunking(n int, layerOf func(checksum string, names []string) int) Option {
	return func(o *options) { o.chunks, o.chunkOf = n, layerOf }
}

// WithFormerExport writes an encapsulated image as the exporters before bootc 1.8
// did (ostree-ext up to 0.15): one object for each distinct set of extended
// attributes, hard links to it, and none of them in tar's own form.
func WithFormerExport() Option { return func(o *options) { o.former = true } }

// WithCompression says how an encapsulated image's layers are compressed.
// Default: Gzip.
func WithCompression(c Compression) Option { return func(o *options) { o.compression = c } }

// WithDerived puts one more layer on top of an encapsulated image, as a container
// build does.
func WithDerived(entries ...Entry) Option {
	return func(o *options) { o.derived = append(o.derived, entries) }
}

// WithEdit damages an encapsulated image: edit gets each entry of the layers that
// make up the commit, in order, and returns what is written in its place. Layer 0
// is the commit layer.
func WithEdit(edit func(layer int, e Entry) []Entry) Option {
	return func(o *options) { o.edit = edit }
}
