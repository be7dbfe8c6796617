package source

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"

	"go.podman.io/image/v5/types"
)

// errNoRanges means that a blob can be read from its start only.
var errNoRanges = errors.New("the source gives no parts of a blob")

// openRange opens the part of a blob from first on to its last byte, with the
// connection, mirror, proxy and credentials that the library uses for the source.
// The library does not check where the part that it gets begins. cancel is that
// of the context, to end what is no part.
//
// Its method GetBlobAt takes a type of an internal package, which no interface of ours
// can name. So it is called by reflection, and a source whose method is not as expected
// counts as one without ranges. TestRanges fails if a release of the library changes the
// method of the source for registries, or what it returns.
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
	select { // one of both comes, at the latest when the context ends
	case stream := <-streams:
		if isResponse(stream) {
			return stream, nil
		}
		cancel(errNoRanges)
		discard(stream)
		return nil, errNoRanges
	case err := <-errs:
		cancel(err)
		for range errs { // the library's goroutine must get rid of them
		}
		return nil, err
	}
}

// chunk is the library's type for a part of a blob.
type chunk struct{ Offset, Length uint64 }

// chunksOf makes the parameter of GetBlobAt that asks for one part.
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
// itself, as it is after "206 Partial Content". After "200 OK", with the whole blob, the
// library first discards everything before the part, and returns a wrapper: reading the
// blob from its start is better then, since that can be seen in the progress.
func isResponse(stream io.ReadCloser) bool {
	t := reflect.TypeOf(stream)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasPrefix(t.PkgPath(), "net/http") // or a package below, for HTTP/2
}

// discard closes a wrapper whose context is cancelled, which ends the library's
// goroutine. The wrapper of a response in several parts must not be closed: the library
// would panic on the error. No server answers a request for one part with several.
func discard(stream io.ReadCloser) {
	if whole := reflect.ValueOf(stream).FieldByName("consumeStream"); whole.IsValid() && whole.Bool() {
		_ = stream.Close() // fails: the context is cancelled
	}
}
