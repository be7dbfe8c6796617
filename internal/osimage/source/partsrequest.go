package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"go.podman.io/image/v5/types"
)

// maxSpans is the number of spans in one request. With more, the header could be longer than what
// common servers accept, which is 8 KiB.
const maxSpans = 128

// response is a response with one or several parts of a blob (RFC 9110, 14).
type response struct {
	body  io.ReadCloser
	parts *multipart.Reader // nil if there is only one
	part  io.Reader         // the current one
	spans int               // number of parts, including the current one, that have not been read to their ends
}

// Read reads from the current part.
func (r *response) Read(p []byte) (int, error) { return r.part.Read(p) }

// next continues to the next part, which must have the given span.
func (r *response) next(want Span) error {
	r.spans--
	part, err := r.parts.NextRawPart()
	if err != nil && (errors.Is(err, io.EOF) || !isNetwork(err)) { // the body has ended, or is none of several parts
		return wrongAnswer("the registry sent no several parts, although it says so: %w", err)
	}
	if err != nil {
		return err
	}
	if !isSpan(part.Header.Get("Content-Range"), want) {
		return otherPart()
	}
	r.part = part
	return nil
}

// close closes the body. If little of it is left, it is read first, so that the connection can be
// used again.
func (r *response) close() {
	const little = 4 << 10
	if r.spans <= 1 {
		_, _ = io.CopyN(io.Discard, r.body, little) // an error only costs the connection
	}
	_ = r.body.Close() // everything was read, or an error is returned already
}

// isSpan reports whether a Content-Range is that of a span.
func isSpan(contentRange string, want Span) bool {
	return strings.HasPrefix(contentRange, fmt.Sprintf("bytes %d-%d/", want.From, want.To-1))
}

// openParts requests spans of a blob and returns a response with the first ones of them: with
// several, if the registry supports it. spans is not empty.
func (r *registry) openParts(ctx context.Context, blob types.BlobInfo, spans []Span, support *partSupport) (*response, error) {
	if r == nil {
		return nil, errNoRanges
	}
	request := func(blob types.BlobInfo, spans []Span) (*response, error) { return r.requestParts(ctx, blob, spans) }
	several, err := support.ask(request)
	if err != nil {
		return nil, err
	}
	most := 1
	if several {
		most = maxSpans
	}
	return request(blob, spans[:min(len(spans), most)])
}

func (r *registry) requestParts(ctx context.Context, blob types.BlobInfo, spans []Span) (*response, error) {
	answered, err := r.get(ctx, blob, rangeOf(spans), bytesOf(spans))
	if err != nil {
		return nil, err
	}
	found, err := parseParts(answered, spans)
	if err != nil {
		_ = answered.Body.Close()
	}
	return found, err
}

// bytesOf returns how many bytes spans have.
func bytesOf(spans []Span) (n int64) {
	for _, s := range spans {
		n += s.To - s.From
	}
	return n
}

// rangeOf returns the value of the header Range for spans.
func rangeOf(spans []Span) string {
	b := []byte("bytes=")
	for n, s := range spans {
		if n > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, s.From, 10)
		b = append(b, '-')
		b = strconv.AppendInt(b, s.To-1, 10)
	}
	return string(b)
}

// parseParts parses the answer to a request for spans.
func parseParts(answered *http.Response, spans []Span) (*response, error) {
	if answered.StatusCode != http.StatusPartialContent {
		return nil, errNoRanges
	}
	r := &response{body: answered.Body, part: answered.Body, spans: 1} // of several requested spans, the first is better than none
	kind, params, err := mime.ParseMediaType(answered.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/byteranges" {
		if !isSpan(answered.Header.Get("Content-Range"), spans[0]) {
			return nil, otherPart()
		}
		return r, nil
	}
	r.parts, r.spans = multipart.NewReader(answered.Body, params["boundary"]), len(spans)+1 // next counts the first one
	return r, r.next(spans[0])
}
