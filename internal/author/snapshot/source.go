package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// source is a config with its origin.
type source struct {
	taker  *Taker
	report *problem.Report
	file   string   // file of the MachineConfig
	path   string   // path of the config in that file
	chain  []string // URLs of the configs from the MachineConfig's down to this one
	roots  string   // PEM: certificate authorities for its fetches
}

// fail reports an error at a path of the config.
func (s source) fail(path, format string, args ...any) {
	s.add(problem.Errorf(path, format, args...))
}

// add reports problems of the config.
func (s source) add(problems ...problem.Problem) {
	for _, p := range problems {
		if len(s.chain) > 0 {
			// Report the place in the MachineConfig's file, which the user can edit.
			inside := problem.Problem{Path: strings.TrimPrefix(p.Path, "."), Message: p.Message}
			p.Path, p.Message = "", "in "+ignition.Address(s.chain[len(s.chain)-1])+": "+inside.Text()
		}
		p.File, p.Path = s.file, s.path+p.Path
		s.report.Add(p)
	}
}

// whole returns the config with nothing left to fetch: configs that it refers to are merged into
// it.
func (s source) whole(ctx context.Context, config ignition.Config) ignition.Config {
	config = ignition.Clone(config)
	if s.taker.configs++; s.taker.configs > maxConfigs {
		s.fail("", "more than %d configs are to be merged", maxConfigs)
		return ignition.Empty()
	}
	s.roots = s.trust(ctx, &config)
	var all []ignition.Config
	for _, p := range ignition.Configs(&config) {
		if child, ok := s.child(ctx, p); ok {
			all = append(all, child)
		}
	}
	if config.Ignition.Config.Replace.Source != nil { // it replaces this config
		return ignition.Merge(all...)
	}
	config.Ignition.Config = ignition.Empty().Ignition.Config
	for _, p := range ignition.Contents(&config) {
		s.inline(ctx, p)
	}
	return ignition.Merge(append(all, config)...)
}

// trust returns the certificate authorities for what the config fetches: those of the source and of
// the config. The config's are inlined first.
func (s source) trust(ctx context.Context, config *ignition.Config) string {
	roots := s.roots
	for i := range config.Ignition.Security.TLS.CertificateAuthorities {
		r := &config.Ignition.Security.TLS.CertificateAuthorities[i]
		p := ignition.Place{Path: fmt.Sprintf(".ignition.security.tls.certificateAuthorities[%d]", i), Resource: r}
		if content, ok := s.inline(ctx, p); ok {
			roots += "\n" + string(content)
		}
	}
	return roots
}

// inline replaces a remote resource by its content. It returns the content, and false if that
// cannot be had.
func (s source) inline(ctx context.Context, p ignition.Place) ([]byte, bool) {
	if !ignition.IsRemote(*p.Resource) {
		content, err := ignition.Content(*p.Resource, s.taker.room)
		return content, err == nil // parsing the config has reported the error
	}
	content, err := s.fetch(ctx, p)
	if err == nil && p.Resource.Verification.Hash == nil && isPage(content) && !strings.HasPrefix(path.Ext(urlPath(*p.Resource.Source)), ".htm") {
		err = fmt.Errorf("the server gave a web page, perhaps one to log in; if the page is what is wanted, say so by verification.hash")
	}
	if err != nil {
		s.fetchFailed(p, err)
		return nil, false
	}
	*p.Resource = inline(*p.Resource, content)
	return content, true
}

// fetch returns the content of a remote resource. It warns if the content could be tampered with or
// could change unnoticed.
func (s source) fetch(ctx context.Context, p ignition.Place) ([]byte, error) {
	if p.Resource.Verification.Hash == nil && s.taker.firstWarning(*p.Resource.Source) {
		switch {
		case strings.HasPrefix(*p.Resource.Source, "http:"):
			s.add(problem.Warningf(p.Path, "fetched over http and without verification.hash: anybody on the way can change it"))
		case s.taker.Lock == nil:
			s.add(problem.Warningf(p.Path, "fetched without verification.hash and without a lock file: it can be another one next time"))
		}
	}
	return s.taker.fetch(ctx, *p.Resource, s.roots)
}

// child returns a config that this one refers to, self-contained.
func (s source) child(ctx context.Context, p ignition.Place) (ignition.Config, bool) {
	content, err := s.read(ctx, p)
	if err != nil {
		s.fetchFailed(p, err)
		return ignition.Config{}, false
	}
	below := s
	below.chain = append(slices.Clone(s.chain), *p.Resource.Source)
	if len(s.chain) == 0 {
		below.path += p.Path
	}
	config, problems := authored.ParseIgnition(content)
	var report problem.Report
	if below.isInline() && !problems.Failed() { // authored.Decode has judged it
		return below.whole(ctx, config), true
	}
	below.add(problems...)
	if problems.Failed() {
		return ignition.Config{}, false
	}
	version, _ := ignition.VersionOf(content) // Parse has found one
	authored.CheckConfig(document.Node{Report: &report}, config, version, authored.Rules{KernelArguments: s.taker.policy, Room: s.taker.room})
	below.add(report...)
	return below.whole(ctx, config), true
}

// isInline reports whether the config is in the MachineConfig itself, in others that are.
func (s source) isInline() bool {
	return !slices.ContainsFunc(s.chain, func(source string) bool { return !strings.HasPrefix(source, "data:") })
}

// read returns the text of a config that this one refers to.
func (s source) read(ctx context.Context, p ignition.Place) ([]byte, error) {
	if len(s.chain) >= maxDepth {
		return nil, fmt.Errorf("more than %d configs name one another", maxDepth)
	}
	if !ignition.IsRemote(*p.Resource) {
		return ignition.Content(*p.Resource, s.taker.room)
	}
	if i := slices.Index(s.chain, *p.Resource.Source); i >= 0 {
		var names []string
		for _, source := range append(slices.Clone(s.chain[i:]), *p.Resource.Source) {
			names = append(names, ignition.Address(source))
		}
		return nil, fmt.Errorf("the config names itself: %s", strings.Join(names, " names "))
	}
	content, err := s.fetch(ctx, p)
	if err == nil && isPage(content) {
		err = fmt.Errorf("the server gave a web page, not a config")
	}
	return content, err
}

// fetchFailed reports a resource that cannot be used, and remembers a temporary failure.
func (s source) fetchFailed(p ignition.Place, err error) {
	name := ignition.Address(*p.Resource.Source)
	s.fail(p.Path, "cannot use %s: %v", problem.Quoted(name), err)
	if fault.KindOf(err) == fault.Unavailable && s.taker.failed == nil {
		s.taker.failed = fmt.Errorf("%s: %w", name, err)
	}
}

// isPage reports whether content is a web page.
func isPage(content []byte) bool {
	return strings.HasPrefix(http.DetectContentType(content), "text/html")
}

func urlPath(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Path
	}
	return ""
}
