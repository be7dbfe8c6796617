package osimage_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/test/worlds/registry"
)

// The password must be escaped in a URL, but needs no quoting elsewhere.
const (
	proxyUser     = "cluster"
	proxyPassword = "p@ss%word$1"
)

// proxied is a host with a registry that can be reached directly and through a proxy. The registry has an address of
// this machine other than loopback, because proxies are never used for loopback addresses.
type proxied struct {
	*host
	proxy *registry.Proxy
	name  string // of the registry, HOST:PORT
	ref   imageref.Reference
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	h := newHost(t, registry.Options{Names: []string{"0.0.0.0"}})
	p := &proxied{host: h, name: h.registry.HostAs("0.0.0.0")}
	p.proxy = p.startProxy(proxyUser, proxyPassword)
	h.write("/etc/containers/certs.d/"+p.name+"/ca.crt", string(h.registry.CA()))
	h.write("/var/lib/kubelet/config.json", string(h.registry.PullSecret(p.name)))
	h.push("x", plain(t))
	p.ref = parse(t, p.name+"/test/os:x")
	return p
}

// startProxy starts a proxy that connects to the registry.
func (p *proxied) startProxy(user, password string) *registry.Proxy {
	p.t.Helper()
	proxy, err := registry.StartProxy(p.registry.Host(), user, password)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// TestProxyForEverybody (P8) uses a proxy that needs no password.
func TestProxyForEverybody(t *testing.T) {
	p := newProxied(t)
	open := p.startProxy("", "")
	p.write("/etc/mco/proxy.env", "HTTPS_PROXY="+open.URL("", "")+"\n")
	if _, err := p.lookUp(t.Context(), p.ref); err != nil {
		t.Error(err)
	}
	if !slices.Contains(open.Log(), p.name) {
		t.Errorf("the proxy was asked for %q", open.Log())
	}
}

func TestProxy(t *testing.T) {
	const bad = "http://127.0.0.1:1"
	for name, c := range map[string]struct {
		file   string            // /etc/mco/proxy.env; {url} stands for the proxy's URL
		own    string            // /etc/pivot/proxy.env, likewise
		env    map[string]string // likewise
		direct bool              // the proxy is not used
	}{
		"none":                   {direct: true},
		"file":                   {file: "HTTP_PROXY=http://other.invalid\nHTTPS_PROXY={url}\nNO_PROXY=.cluster.local,10.0.0.0/16\n"},
		"file, lower case":       {file: "https_proxy={url}\nno_proxy=localhost\n"},
		"file, quoted":           {file: "# by the operator\n; as well\n HTTPS_PROXY = \"{url}\"  \nNO_PROXY='a.invalid, \\\n b.invalid'\n"},
		"file, without a scheme": {file: "HTTPS_PROXY={bare}\n"},
		"file, plain HTTP only":  {file: "HTTP_PROXY={url}\n", direct: true},
		"own file":               {own: "HTTPS_PROXY={url}\n"},
		"own file wins":          {file: "https_proxy=" + bad + "\n", own: "HTTPS_PROXY={url}\n"},
		"each from one file":     {file: "HTTPS_PROXY={url}\n", own: "NO_PROXY=0.0.0.0\n", direct: true},
		"own file, environment":  {own: "HTTPS_PROXY=" + bad + "\n", env: map[string]string{"https_proxy": "{url}"}},
		"environment":            {env: map[string]string{"HTTPS_PROXY": "{url}"}},
		"environment wins":       {file: "HTTPS_PROXY=" + bad + "\n", env: map[string]string{"https_proxy": "{url}"}},
		"set to nothing":         {file: "HTTPS_PROXY={url}\n", env: map[string]string{"HTTPS_PROXY": ""}, direct: true},
		"each by itself":         {file: "HTTPS_PROXY={url}\n", env: map[string]string{"NO_PROXY": "0.0.0.0"}, direct: true},
		"no_proxy address":       {file: "HTTPS_PROXY={url}\nNO_PROXY=0.0.0.0\n", direct: true},
		"no_proxy network":       {file: "HTTPS_PROXY={url}\nNO_PROXY=.cluster.local,0.0.0.0/8\n", direct: true},
		"no_proxy star":          {file: "HTTPS_PROXY={url}\nNO_PROXY=*\n", direct: true},
		"no_proxy other":         {file: "HTTPS_PROXY={url}\nNO_PROXY=.other.invalid,10.0.0.0/8\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxied(t)
			url := p.proxy.URL(proxyUser, proxyPassword)
			put := strings.NewReplacer("{url}", url, "{bare}", strings.TrimPrefix(url, "http://"))
			for path, text := range map[string]string{"/etc/mco/proxy.env": c.file, "/etc/pivot/proxy.env": c.own} {
				if text != "" {
					p.write(path, put.Replace(text))
				}
			}
			for name, value := range c.env {
				t.Setenv(name, put.Replace(value))
			}
			_, err := p.lookUp(t.Context(), p.ref)
			if err != nil {
				t.Errorf("%v\nhint: %s", err, fault.HintOf(err))
			}
			if asked := slices.Contains(p.proxy.Log(), p.name); asked == c.direct {
				t.Errorf("the proxy was asked for %q", p.proxy.Log())
			}
		})
	}
}

// TestProxyFails: errors report the proxy's response, but never its password.
func TestProxyFails(t *testing.T) {
	for name, c := range map[string]struct {
		setting    func(p *registry.Proxy) string
		status     int
		kind       fault.Kind
		text, hint string
	}{
		"wrong password": {
			func(p *registry.Proxy) string { return p.URL(proxyUser, proxyPassword+"x") }, 0,
			fault.Refused, "the proxy {proxy} wants other credentials", "/etc/mco/proxy.env",
		},
		"forbidden": {
			func(p *registry.Proxy) string { return p.URL(proxyUser, proxyPassword) }, http.StatusForbidden,
			fault.Refused, "the proxy {proxy} refuses a connection to {registry}", "NO_PROXY",
		},
		"in trouble": {
			func(p *registry.Proxy) string { return p.URL(proxyUser, proxyPassword) }, http.StatusBadGateway,
			fault.Unavailable, "Bad Gateway", "reach the proxy {proxy}, and does that reach {registry}",
		},
		"down": {
			func(p *registry.Proxy) string {
				_ = p.Close()
				return p.URL(proxyUser, proxyPassword)
			}, 0,
			fault.Unavailable, "connection refused", "reach the proxy {proxy}",
		},
		"not escaped": {
			func(p *registry.Proxy) string { return "http://" + proxyUser + ":" + proxyPassword + "@" + p.Host() }, 0,
			fault.Refused, "cannot use the proxy that HTTPS_PROXY", "%XX",
		},
		"unknown scheme": {
			func(p *registry.Proxy) string { return "ftp://" + proxyUser + ":" + proxyPassword + "@" + p.Host() }, 0,
			fault.Refused, "cannot use the proxy that HTTPS_PROXY", "%XX",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxied(t)
			p.write("/etc/mco/proxy.env", "HTTPS_PROXY="+c.setting(p.proxy)+"\n")
			p.proxy.Refuse(c.status)
			put := strings.NewReplacer("{proxy}", p.proxy.Host(), "{registry}", p.name)
			_, err := p.lookUp(t.Context(), p.ref)
			refused(t, err, c.kind, put.Replace(c.text), put.Replace(c.hint))
			for _, secret := range []string{proxyPassword, "p%40ss", "word$1", "pull-secret"} {
				if told := err.Error() + fault.HintOf(err) + strings.Join(p.notes, " "); strings.Contains(told, secret) {
					t.Errorf("%q is told: %s", secret, told)
				}
			}
		})
	}
}
