package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// bearer is the prefix of the tokens that the registry issues for the password; a number follows.
// Tests check that it does not appear in logs.
const bearer = "token-of-the-test-registry-"

// tokenPath is the path at which tokens are issued.
const tokenPath = "/token"

// authorized reports whether a request is authorized. If not, it sends the response.
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

// serveToken responds like the token server of the Docker Registry HTTP API.
func (r *Registry) serveToken(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": r.token(), "expires_in": 300})
}

// token returns the token that is valid now.
func (r *Registry) token() string { return bearer + strconv.FormatInt(r.tokens.Load(), 10) }

// ExpireTokens makes the registry refuse all tokens that it has issued so far, long before their
// stated lifetime ends.
func (r *Registry) ExpireTokens() { r.tokens.Add(1) }

// ExpiringTokens returns a fault that expires all tokens on a request. The request itself is still
// authorized.
func (r *Registry) ExpiringTokens() Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.ExpireTokens()
			next.ServeHTTP(w, req)
		})
	}
}
