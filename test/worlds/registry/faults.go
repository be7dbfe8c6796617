package registry

import (
	"net/http"
	"strings"
	"sync"
)

// Fault changes the response to a request.
type Fault func(next http.Handler) http.Handler

// Rule selects the requests to which a fault is applied. The first rule that matches a request
// and is not used up counts.
type Rule struct {
	On    string // part of the path: "/manifests/", "/blobs/", a digest, "/token"; "" is every request
	Range bool   // only requests for a part of a blob
	Skip  int    // number of requests to leave alone first
	Times int    // number of requests to spoil; 0 is all
	Fault Fault
}

func (r Rule) applies(req *http.Request) bool {
	return strings.Contains(req.URL.Path, r.On) && (!r.Range || req.Header.Get("Range") != "")
}

// Spoil applies faults to requests according to rules, which replace earlier rules. Faults apply
// after the credentials were checked.
func (r *Registry) Spoil(rules ...Rule) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.rules = append([]Rule(nil), rules...)
}

// FailNext responds to the next n requests with a status, such as 503.
func (r *Registry) FailNext(n, status int) { r.spoilNext(n, "", Status(status)) }

// CutBlobs breaks the connection of the next n blob downloads at an offset of the blob.
func (r *Registry) CutBlobs(n int, at int64) { r.spoilNext(n, "/blobs/", CutAt(at)) }

// StallBlobs makes the next n blob downloads send nothing until the client gives up.
func (r *Registry) StallBlobs(n int) { r.spoilNext(n, "/blobs/", StallAt(0)) }

func (r *Registry) spoilNext(n int, on string, fault Fault) {
	if n == 0 {
		r.Spoil()
		return
	}
	r.Spoil(Rule{On: on, Times: n, Fault: fault})
}

// faults has the present rules.
type faults struct {
	mu    sync.Mutex
	rules []Rule
}

// wrap returns a handler that applies the matching fault to next.
func (f *faults) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if fault := f.take(req); fault != nil {
			fault(next).ServeHTTP(w, req)
		} else {
			next.ServeHTTP(w, req)
		}
	})
}

// take returns the fault for a request, or nil, and counts the use of its rule.
func (f *faults) take(req *http.Request) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.rules {
		rule := &f.rules[i]
		switch {
		case !rule.applies(req), rule.Times < 0:
		case rule.Skip > 0:
			rule.Skip--
			return nil
		default:
			if rule.Times--; rule.Times == 0 {
				rule.Times = -1 // used up
			} else if rule.Times < 0 {
				rule.Times = 0 // never used up
			}
			return rule.Fault
		}
	}
	return nil
}

// Status responds with an error status. headers are alternating names and values.
func Status(status int, headers ...string) Fault {
	return answer(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		writeError(w, status, codeOf(status), "fault of the test registry")
	})
}

// codeOf returns the error code of the protocol for a status.
func codeOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHORIZED"
	case http.StatusForbidden:
		return "DENIED"
	case http.StatusNotFound:
		return "BLOB_UNKNOWN"
	case http.StatusTooManyRequests:
		return "TOOMANYREQUESTS"
	}
	return "UNKNOWN"
}

// WebPage responds with 200 and HTML, like login pages of networks.
func WebPage() Fault {
	return answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!DOCTYPE html>\n<html><body>Please log in.</body></html>\n"))
	})
}

// Redirect redirects the client to another URL; "" is the URL of the request.
func Redirect(to string) Fault {
	return answer(func(w http.ResponseWriter, req *http.Request) {
		target := to
		if target == "" {
			target = req.URL.Path
		}
		http.Redirect(w, req, target, http.StatusTemporaryRedirect)
	})
}

func answer(instead http.HandlerFunc) Fault {
	return func(http.Handler) http.Handler { return instead }
}

// NoRanges ignores the requested range and responds with the whole blob.
func NoRanges() Fault {
	return ask(func(header http.Header) { header.Del("Range") })
}

// OtherRange responds with another part of the blob than the requested one.
func OtherRange(asked string) Fault {
	return ask(func(header http.Header) { header.Set("Range", asked) })
}

func ask(change func(http.Header)) Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			req = req.Clone(req.Context())
			change(req.Header)
			next.ServeHTTP(w, req)
		})
	}
}

// wait blocks until the client or the registry closes the connection.
func wait(req *http.Request) { <-req.Context().Done() }
