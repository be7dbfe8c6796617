package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// bearer is the token that the registry gives for the password, with a number
// behind it. It must not turn up anywhere.
const bearer = "token-of-the-test-registry-"

// tokenPath is where tokens are given.
const tokenPath = "/token"

// authorized checks a request and answers it if it is refused.
func (r *Registry) authorized(w http.ResponseWriter, req *http.Request) bool {
	user, password, _ := req.BasicAuth()
	ok := r.opts.Anonymous || user == r.opts.Username && password == r.opts.Password
	challenge := `Basic realm="registry"`
	if r.opts.Bearer && req.URL.Path != tokenPath {
		ok = req.Header.Get("Authorization") == "Bearer "+r.token()
		challenge = fmt.Sprintf(`Bearer realm="https://%s%s",service="registry"`, req.Host, tokenPath)
	}
	if !ok {
		w.Header().Set("Www-Authenticate", challenge)
		writeError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	}
	return ok
}

// serveToken answers as the token server of the Docker Registry HTTP API does.
func (r *Registry) serveToken(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": r.token(), "expires_in": 300})
}

// token is the one that is taken now.
func (r *Registry) token() string { return bearer + strconv.FormatInt(r.tokens.Load(), 10) }

// ExpireTokens makes the registry refuse the tokens that it gave so far, long
// before the time that it said.
func (r *Registry) ExpireTokens() { r.tokens.Add(1) }

// ExpiringTokens expires all tokens when a request comes; the request itself
// was let through before that.
func (r *Registry) ExpiringTokens() Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.ExpireTokens()
			next.ServeHTTP(w, req)
		})
	}
}
