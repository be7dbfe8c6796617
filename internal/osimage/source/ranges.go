package source

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"

	"go.podman.io/image/v5/types"
)

// errNoRanges means that the source does not support reading a part of a blob.
var errNoRanges = errors.New("the source gives no parts of a blob")

// openRange opens the part of a blob from the offset first to its end, with the connection,
// mirror, proxy and credentials that the library uses for the source. The library does not
// check the offset of the part that it gets; the caller must. cancel must cancel ctx; it ends
// a response that is not the wanted part.
//
// The library's method GetBlobAt has a parameter whose type is in an internal package, so no
// interface can be declared for it. It is called by reflection, and a source whose method
// has another signature counts as one without ranges. TestRanges fails if a release of the
// library changes the method of the source for registries, or its results.
func openRange(ctx context.Context, cancel context.CancelCauseFunc, source types.ImageSource, blob types.BlobInfo, first int64) (io.ReadCloser, error) {
	method := reflect.ValueOf(source).MethodByName("GetBlobAt")
	parts, ok := chunksOf(method, chunk{uint64(first), uint64(blob.Size - first)})
	if !ok {
		return nil, errNoRanges
	}
	results := method.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(blob), parts})
	if err, failed := results[2].Interface().(error); failed {
		return nil, err
	}
	streams, errs := results[0].Interface().(chan io.ReadCloser), results[1].Interface().(chan error)
	select { // one of them is sent, at the latest when the context ends
	case stream := <-streams:
		if isResponse(stream) {
			return stream, nil
		}
		cancel(errNoRanges)
		discard(stream)
		return nil, errNoRanges
	case err := <-errs:
		cancel(err)
		for range errs { // drain the channel, so that the library's goroutine ends
		}
		return nil, err
	}
}

// chunk is the library's type for a part of a blob.
type chunk struct{ Offset, Length uint64 }

// chunksOf returns the argument for GetBlobAt that requests one part. ok is false if the
// method does not have the expected signature.
func chunksOf(method reflect.Value, wanted chunk) (parts reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 3 || method.Type().In(2).Kind() != reflect.Slice {
		return parts, false
	}
	slice := method.Type().In(2)
	in := []reflect.Type{reflect.TypeFor[context.Context](), reflect.TypeFor[types.BlobInfo](), slice}
	out := []reflect.Type{reflect.TypeFor[chan io.ReadCloser](), reflect.TypeFor[chan error](), reflect.TypeFor[error]()}
	if method.Type() != reflect.FuncOf(in, out, false) || !reflect.TypeFor[chunk]().ConvertibleTo(slice.Elem()) {
		return parts, false
	}
	return reflect.Append(reflect.Zero(slice), reflect.ValueOf(wanted).Convert(slice.Elem())), true
}

// isResponse reports whether a stream of the library is the body of the HTTP response
// itself, as after "206 Partial Content". After "200 OK", with the whole blob, the library
// discards everything before the part and returns a wrapper. Reading the blob from its start is
// better in this case, because the progress then shows it.
func isResponse(stream io.ReadCloser) bool {
	t := reflect.TypeOf(stream)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasPrefix(t.PkgPath(), "net/http") // or a subpackage, for HTTP/2
}

// discard closes a wrapper whose context is cancelled, which ends the library's goroutine.
// It does not close the wrapper of a multipart response, because the library would panic on
// the error. No server sends a multipart response to a request for one part.
func discard(stream io.ReadCloser) {
	if whole := reflect.ValueOf(stream).FieldByName("consumeStream"); whole.IsValid() && whole.Bool() {
		_ = stream.Close() // fails: the context is cancelled
	}
}
