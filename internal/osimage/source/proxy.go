package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.podman.io/image/v5/types"
	"golang.org/x/net/http/httpproxy"

	"machine-pivot/internal/fault"
)

// proxyFiles have the proxy settings of a machine, and those of an OpenShift host. They are EnvironmentFile= of the units that
// need the network, pivot's among them. They are read here too, so that pivot uses the same proxies when it is started by hand.
func proxyFiles() []string {
	return []string{"/etc/pivot/proxy.env", "/etc/mco/proxy.env"}
}

// proxies returns a function that returns the proxy for a request, according to HTTP_PROXY,
// HTTPS_PROXY and NO_PROXY. Variables with lower-case names take precedence. Each variable is
// taken from the process environment or, if it is not set there at all, from the first of the host's
// files that sets it. Errors never show a value, because it may contain a password.
func (h *Host) proxies() (func(*url.URL) (*url.URL, error), error) {
	var settings proxySettings
	for _, name := range proxyFiles() {
		path, err := h.path(name)
		var text []byte
		if err == nil {
			text, err = os.ReadFile(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, unreadable("the proxy settings", err, h.shown(name))
		}
		settings.files = append(settings.files, parseEnvironmentFile(string(text)))
		settings.paths = append(settings.paths, path)
	}
	config := httpproxy.Config{NoProxy: settings.value("no_proxy")}
	var err error
	config.HTTPProxy, err = settings.proxy("http_proxy")
	if err == nil {
		config.HTTPSProxy, err = settings.proxy("https_proxy")
	}
	if err != nil {
		return nil, err
	}
	return config.ProxyFunc(), nil
}

// Proxies returns a function that returns the proxy for a request, according to the settings of
// the host with the given root directory.
func Proxies(root string) (func(*url.URL) (*url.URL, error), error) {
	return (&Host{Root: root}).proxies()
}

// proxySettings are the variables that name proxies, from the environment and from files.
type proxySettings struct {
	files []map[string]string // the first wins
	paths []string            // of the files
}

// value returns the value of a variable, given its name in lower case.
func (s proxySettings) value(name string) string {
	names := []string{name, strings.ToUpper(name)}
	set := false
	for _, name := range names {
		value, ok := os.LookupEnv(name)
		if value != "" {
			return value
		}
		set = set || ok
	}
	if set {
		return ""
	}
	for _, file := range s.files {
		if value := cmp.Or(file[names[0]], file[names[1]]); value != "" {
			return value
		}
	}
	return ""
}

// proxy returns the value of a variable that names a proxy, or "" if it is not set.
func (s proxySettings) proxy(name string) (string, error) {
	value := s.value(name)
	if value == "" {
		return "", nil
	}
	parsed, err := url.Parse(value)
	if err != nil || parsed.Host == "" { // HOST:PORT alone is allowed
		parsed, err = url.Parse("http://" + value)
	}
	if err == nil && parsed.Hostname() != "" && slices.Contains([]string{"http", "https", "socks5", "socks5h"}, parsed.Scheme) {
		return value, nil
	}
	return "", fault.New(fault.Refused, "cannot use the proxy that %s (environment, %s) names: it is not http://[USER:PASSWORD@]HOST:PORT",
		strings.ToUpper(name), strings.Join(s.paths, " or ")).WithHint("write special characters of the user and the password as %%XX")
}

// proxyFor returns the HOST:PORT of the proxy for a registry, or "".
func proxyFor(sys *types.SystemContext, host string) string {
	proxy, err := sys.DockerProxy(&url.URL{Scheme: "https", Host: host})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Host
}

// proxyFiles returns where an administrator can name the proxy.
func (c classifier) proxyFiles() string {
	var all []string
	for _, file := range proxyFiles() {
		all = append(all, c.shown(file))
	}
	return strings.Join(all, " or ")
}

// proxyAnswer recognizes a proxy that refuses the connection. net/http returns the proxy's
// response only as the text of the status line.
func (c classifier) proxyAnswer(err error) *fault.Error {
	refusal, ok := errors.AsType[*url.Error](err)
	if c.proxy == "" || !ok {
		return nil
	}
	switch refusal.Err.Error() {
	case http.StatusText(http.StatusProxyAuthRequired):
		return fault.New(fault.Refused, "the proxy %s wants other credentials: %w", c.proxy, err).
			WithHint("put user and password into its URL in HTTPS_PROXY, %s", c.proxyFiles())
	case http.StatusText(http.StatusForbidden):
		return fault.New(fault.Refused, "the proxy %s refuses a connection to %s: %w", c.proxy, c.ref.Host(), err).
			WithHint("allow it there, or list the registry in NO_PROXY if it is reached without (environment, %s)", c.proxyFiles())
	}
	return nil
}

// reachHint returns the hint for a registry that cannot be reached.
func (c classifier) reachHint() string {
	if c.proxy == "" {
		return fmt.Sprintf("does this machine reach %s? (network, DNS, proxy, is the registry up?)", c.ref.Host())
	}
	return fmt.Sprintf("does this machine reach the proxy %s, and does that reach %s?", c.proxy, c.ref.Host())
}
