package osimage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/osimage/source"
)

// partReader reads layers of the format zstd:chunked by fetching only what the repository does not
// have. Whatever is in doubt, the layer is fetched whole instead.
type partReader struct {
	*layerReader
	local  *localContent
	tables *semaphore.Weighted // the memory of tables, in bytes

	off    atomic.Bool  // no further layer is tried
	doubts atomic.Int32 // layers that had to be fetched whole
	spent  atomic.Int64 // bytes of tables that were fetched
	saved  atomic.Int64 // bytes of layers that were not fetched
	once   sync.Once    // for the message about a registry without parts
}

// Limits of partReader.
const (
	maxDoubts = 3        // layers in doubt, after which none is tried any more
	minTried  = 64 << 10 // bytes of a layer, below which it is fetched whole
	maxTables = 32 << 20 // bytes of memory for the tables of layers that are read at once
	// giveUpAfter is how many bytes of tables may be fetched before they must have saved as much.
	giveUpAfter = 1 << 20

	// What a further span costs beside its bytes, in bytes: the headers of a part, or a whole request.
	costOfPart    = 256
	costOfRequest = 32 << 10
)

// newPartReader returns a partReader for an import, or nil if there is nothing that it could save.
func (i *importer) newPartReader(have present) *partReader {
	if !i.source.Remote() {
		return nil
	}
	for n, l := range i.source.Layers {
		if _, found, _ := layer.LocateChunked(l.Annotations, l.Size); found && !have.layers[n] {
			if local := newLocalContent(i.repo, i.target); local != nil {
				return &partReader{layerReader: &i.layerReader, local: local, tables: semaphore.NewWeighted(maxTables)}
			}
			return nil
		}
	}
	return nil
}

// read reads the nth layer if that is possible without fetching the whole layer. done is false if the layer must be
// fetched whole; err is then nil.
func (r *partReader) read(ctx context.Context, n int, content func() layer.Content, shared *layer.Shared) (done bool, err error) {
	if r == nil || r.off.Load() || r.source.Layers[n].Size < minTried {
		return false, nil
	}
	l := r.source.Layers[n]
	at, found, err := layer.LocateChunked(l.Annotations, l.Size)
	if !found {
		return false, nil
	}
	if n < r.baseLayers() {
		at = at.OfObjects() // each has its own checksum
	}
	memory := at.Memory()
	if err == nil && (memory > maxTables || r.tables.Acquire(ctx, memory) != nil) {
		return false, nil
	}
	count := &partMeter{meter: r.progress}
	if err == nil {
		defer r.tables.Release(memory)
		done, err = r.try(ctx, n, at, content, shared, count)
	}
	if done && err == nil || ctx.Err() != nil || err != nil && !isDoubt(err) {
		return true, err
	}
	count.whole()
	if err != nil {
		r.doubt(n, err)
	}
	return false, nil
}

// isDoubt reports whether the whole layer may be read after this error.
func isDoubt(err error) bool {
	if imagefault.IsFinal(err) {
		return false
	}
	switch fault.KindOf(err) {
	case fault.BadInput, fault.Unavailable, fault.Refused:
		return true
	}
	return false
}

// doubt logs why a layer is fetched whole.
func (r *partReader) doubt(n int, err error) {
	if source.NoParts(err) {
		r.off.Store(true)
		r.once.Do(func() { r.log("layers are fetched whole, also where the machine has parts of them: " + err.Error()) })
		return
	}
	r.log("layer " + r.source.Layers[n].Digest + " is fetched whole, although parts are on this machine: " + err.Error())
	if r.doubts.Add(1) >= maxDoubts {
		r.off.Store(true)
	}
}

// try reads the nth layer. done is false if fetching it whole is no worse.
func (r *partReader) try(ctx context.Context, n int, at layer.ChunkedLocation, content func() layer.Content, shared *layer.Shared, count *partMeter) (done bool, err error) {
	found := r.local.finder(ctx, n >= r.baseLayers())
	contents, err := r.contents(ctx, n, at, found, count)
	if err != nil {
		return false, err
	}
	cost := int64(costOfRequest)
	if r.source.SeveralParts() {
		cost = costOfPart
	}
	plan := contents.Plan(cost)
	size := r.source.Layers[n].Size
	if !r.worthIt(size, plan.Bytes+int64(len(plan.Spans))*cost) {
		return false, nil
	}
	count.plan(plan.Bytes - size)
	archive, err := plan.Archive(r.source.Layers[n].DiffID, r.source.ReadParts(ctx, n, count, spansOf(plan.Spans)), r.local.open)
	if err != nil {
		return false, err
	}
	to := content()
	if derived, is := to.(*layer.Derived); is {
		derived.Expected = found.expected
	}
	return true, writing(layer.Read(ctx, archive, "", to, shared))
}

// contents fetches the table of a layer, and looks for the local content.
func (r *partReader) contents(ctx context.Context, n int, at layer.ChunkedLocation, found *finder, count *partMeter) (*layer.Chunked, error) {
	spans := spansOf(at.Spans())
	for _, s := range spans {
		count.plan(s.To - s.From)
		r.spent.Add(s.To - s.From)
	}
	from := r.source.ReadParts(ctx, n, count, spans)
	contents, err := layer.ReadChunked(at, from, found.find)
	return contents, errors.Join(err, from.Close())
}

// worthIt reports whether to read a layer of size bytes by fetching parts at a cost in bytes. It also ends the attempts
// for an image with tables that cost more than they save.
func (r *partReader) worthIt(size, cost int64) bool {
	worth := cost <= size/4*3
	saved := r.saved.Load()
	if worth {
		saved = r.saved.Add(size - cost)
	}
	if spent := r.spent.Load(); spent > giveUpAfter && saved < spent {
		r.off.Store(true)
	}
	return worth
}

func spansOf(spans []layer.Span) []source.Span {
	converted := make([]source.Span, len(spans))
	for i, s := range spans {
		converted[i] = source.Span(s)
	}
	return converted
}

// partMeter counts the bytes of a layer that is read by parts, and corrects how many bytes are expected.
type partMeter struct {
	*meter
	mu       sync.Mutex
	expected int64 // how much the expectation was changed
	fetched  int64
}

// Fetched implements source.Meter.
func (m *partMeter) Fetched(n int) {
	m.mu.Lock()
	m.fetched += int64(n)
	m.mu.Unlock()
	m.meter.Fetched(n)
}

// plan changes how many bytes are expected.
func (m *partMeter) plan(by int64) {
	m.expected += by
	m.meter.expectMore(by)
}

// whole undoes the changes: the layer is fetched whole, in addition to the parts that were fetched.
func (m *partMeter) whole() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meter.expectMore(m.fetched - m.expected)
}
