package registry

import (
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// severalParts serves requests for several parts of a blob, like the Distribution registry; pkg/registry
// gives only the first one.
func severalParts(blobs blobDir, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !asksForSeveral(req) {
			next.ServeHTTP(w, req)
			return
		}
		h, err := v1.NewHash(path.Base(req.URL.Path))
		if err != nil {
			writeError(w, http.StatusNotFound, codeOf(http.StatusNotFound), err.Error())
			return
		}
		f, err := os.Open(blobs.path(h))
		if err != nil {
			writeError(w, http.StatusNotFound, codeOf(http.StatusNotFound), err.Error())
			return
		}
		defer f.Close()
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, req, "", time.Time{}, f)
	})
}

func asksForSeveral(req *http.Request) bool {
	return strings.Contains(req.URL.Path, "/blobs/") && strings.Contains(req.Header.Get("Range"), ",")
}

// OnePart makes requests for several parts of a blob fail in one of the ways of registries that
// give only one: with the whole blob (S3), or with a status.
func OnePart(status int) Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch {
			case !asksForSeveral(req):
				next.ServeHTTP(w, req)
			case status == http.StatusOK:
				NoRanges()(next).ServeHTTP(w, req)
			case status == http.StatusPartialContent:
				first, _, _ := strings.Cut(req.Header.Get("Range"), ",")
				OtherRange(first)(next).ServeHTTP(w, req)
			default:
				Status(status)(next).ServeHTTP(w, req)
			}
		})
	}
}

// Several answers a request for a part of a blob with a text of the type multipart/byteranges. Its boundary is "parts".
// If endless is set, the registry repeats the text until the client closes the connection.
func Several(text string, endless bool) Fault {
	return answer(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "multipart/byteranges; boundary=parts")
		w.WriteHeader(http.StatusPartialContent)
		_, err := w.Write([]byte(text))
		for endless && err == nil && req.Context().Err() == nil {
			_, err = w.Write([]byte(text))
		}
	})
}
