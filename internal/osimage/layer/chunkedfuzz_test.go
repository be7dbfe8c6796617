package layer_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// FuzzTable: any table of contents, with any skeleton, gives an archive of the announced sizes or
// an error. What is fetched is within the blob, and local content is read at most as often as the
// table has files.
func FuzzTable(f *testing.F) {
	l := newBlobLayer(f, 8, 1, 511, 513)
	at, _, err := layer.LocateChunked(l.annotations, int64(len(l.blob)))
	if err != nil {
		f.Fatal(err)
	}
	var parts [][]byte
	for _, s := range at.Spans() {
		text, err := unpacked(l.blob[s.From:s.To])
		if err != nil {
			f.Fatal(err)
		}
		parts = append(parts, text)
	}
	var n int
	fmt.Sscanf(l.annotations["io.github.containers.zstd-chunked.manifest-position"], "%d", &n)
	frames := l.blob[:n-8]
	f.Add(parts[0], parts[1], frames, int64(300), uint8(2))
	f.Add(parts[0], []byte(nil), frames, int64(300), uint8(3))
	f.Add([]byte(`{"version":1,"entries":[{"type":"reg","size":1,"offset":1,"endOffset":2}]}`), []byte(`{"type":2,"payload":"AAAA"}{"type":1,"size":1}`), frames, int64(0), uint8(1))
	f.Add([]byte(`{"entries":[{"type":"reg","size":-1,"offset":9,"endOffset":2}],"entries":[]}`), []byte(`{"type":7}`), []byte("x"), int64(0), uint8(1))
	f.Fuzz(func(t *testing.T, table, skeleton, frames []byte, cost int64, every uint8) {
		blob, annotations := assemble(frames, table, skeleton)
		at, found, err := layer.LocateChunked(annotations, int64(len(blob)))
		if err != nil || !found {
			return
		}
		l, files, opened := blobLayer{blob: blob}, 0, 0
		var fetched int64
		contents, err := layer.ReadChunked(at, l.fetch(at.Spans(), &fetched), func(file layer.ChunkedFile) (ostree.ObjectName, bool) {
			if file.Size <= 0 {
				t.Errorf("a file of %d bytes", file.Size)
			}
			files++
			return ostree.ObjectName{Type: ostree.File}, every > 0 && files%int(every) == 0
		})
		if err != nil {
			return
		}
		plan := contents.Plan(cost)
		for _, s := range plan.Spans {
			if s.From < 0 || s.From >= s.To || s.To > int64(len(frames)) {
				t.Fatalf("span %v of %d bytes", s, len(frames))
			}
		}
		stream, err := plan.Archive(l.diffID(), l.fetch(plan.Spans, &fetched), func(ostree.ObjectName) (io.ReadCloser, error) {
			opened++
			return io.NopCloser(bytes.NewReader(make([]byte, 100))), nil
		})
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(stream, 4<<20))
		if opened > files {
			t.Errorf("%d objects opened for %d files", opened, files)
		}
		_ = stream.Close()
	})
}

func unpacked(data []byte) ([]byte, error) {
	z, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(data, nil)
}

// stored returns a zstd frame that has data as it is (RFC 8878, 3.1.1), which is made faster than a
// compressed one.
func stored(data []byte) []byte {
	const magic, single, block = 0xFD2FB528, 0xE0, 128 << 10 // a single segment with a size of 8 bytes
	frame := binary.LittleEndian.AppendUint32(nil, magic)
	frame = binary.LittleEndian.AppendUint64(append(frame, single), uint64(len(data)))
	for {
		n := min(len(data), block)
		head := uint32(n) << 3
		if n == len(data) {
			head |= 1 // the last block
		}
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16))
		frame = append(frame, data[:n]...)
		if data = data[n:]; len(data) == 0 {
			return frame
		}
	}
}

// assemble returns a blob with the given frames, table and skeleton, and its annotations.
func assemble(frames, table, skeleton []byte) (blob []byte, annotations map[string]string) {
	const prefix = "io.github.containers.zstd-chunked."
	packed := stored(table)
	blob = append(bytes.Clone(frames), make([]byte, 8)...)
	annotations = map[string]string{
		prefix + "manifest-checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(packed)),
		prefix + "manifest-position": fmt.Sprintf("%d:%d:%d:1", len(blob), len(packed), len(table)),
	}
	blob = append(blob, packed...)
	if skeleton != nil {
		packed := stored(skeleton)
		annotations[prefix+"tarsplit-position"] = fmt.Sprintf("%d:%d:%d", len(blob), len(packed), len(skeleton))
		blob = append(blob, packed...)
	}
	return blob, annotations
}
