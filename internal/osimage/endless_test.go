package osimage_test

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/registry"
)

// TestEndlessAnswers: whatever the library reads of an answer, and however it is encoded, it reads not much more than was
// asked for. The bodies of refusals are the worst, because the library keeps them in memory.
func TestEndlessAnswers(t *testing.T) {
	const most = 64 << 20 // with what the sockets hold
	var sent atomic.Int64
	endless := func(status int, head, encoding string) registry.Fault {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				unit := []byte(head + strings.Repeat(" ", 64<<10))
				if encoding == "gzip" {
					w.Header().Set("Content-Encoding", encoding)
					z := gzip.NewWriter(w)
					_ = z.Flush()
					unit = []byte(strings.Repeat("\x00\x00\x00\xff\xff", 13000)) // blocks of nothing
				}
				w.WriteHeader(status)
				for sent.Load() < 8*most && r.Context().Err() == nil {
					n, err := w.Write(unit)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
			})
		}
	}
	for name, c := range map[string]struct {
		on    string
		fault registry.Fault
	}{
		"a refusal of the manifest": {"/manifests/", endless(http.StatusNotFound, "", "")},
		"an empty manifest":         {"/manifests/", endless(http.StatusOK, "", "gzip")},
		"a refusal of the config":   {"/blobs/", endless(http.StatusForbidden, "", "")},
		"an empty config":           {"/blobs/", endless(http.StatusOK, "", "gzip")},
		"a refusal of a token":      {"/token", endless(http.StatusForbidden, "{", "")},
	} {
		t.Run(name, func(t *testing.T) {
			sent.Store(0)
			h := newHost(t, registry.Options{Bearer: true})
			ref, _ := h.push("x", plain(t))
			h.registry.Spoil(registry.Rule{On: c.on, Fault: c.fault})
			_, err := h.lookUp(t.Context(), ref)
			if err == nil || c.on != "/token" && (fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "more than was asked for")) {
				t.Errorf("error %v", err)
			}
			if sent.Load() > most {
				t.Errorf("%d bytes are read", sent.Load())
			}
		})
	}
}

// TestAnswersOfAnotherKind: an answer that no network makes is not asked for again and again.
func TestAnswersOfAnotherKind(t *testing.T) {
	hijacked := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, out, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := out.WriteString(text); err == nil {
				_ = out.Flush() // the client has gone
			}
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"redirects in a circle": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "redirects its clients"},
		"an endless header":     {hijacked("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 3000)), "no HTTP"},
		"early hints":           {hijacked(strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("y", 1000)+"\r\n\r\n", 3000)), "no HTTP"},
		"a chunk's extension":   {hijacked("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("y", 10000)), "no HTTP"},
		"encoded by a proxy": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = gzip.NewWriter(w).Write(make([]byte, 10000))
		}, "encoded as"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, registry.Options{})
			ref, _ := h.push("x", plain(t))
			var asked atomic.Int64
			h.registry.Spoil(registry.Rule{On: "/blobs/", Skip: 1, Fault: func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1); c.answer(w, r) })
			}})
			_, err := h.importRef(ref, bare(t))
			if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), c.want) || asked.Load() > 60 {
				t.Errorf("%d requests, %v", asked.Load(), err)
			}
		})
	}
}
