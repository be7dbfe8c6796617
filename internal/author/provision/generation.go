package provision

import (
	"sync"

	"machine-pivot/internal/author/authored"
)

// generation is the content between two reloads. Each role's config is rendered at most once for
// each version.
type generation struct {
	content Content
	stamp   string                        // stamp of the input
	answers map[string]map[string]*answer // by role and version; the maps never change
}

// answer is a config in one version, or the reason why there is none.
type answer struct {
	once    sync.Once
	body    []byte
	etag    string
	refused string
}

func newGeneration(content Content, stamp string) *generation {
	g := &generation{content: content, stamp: stamp, answers: map[string]map[string]*answer{}}
	for role := range content.Roles {
		g.answers[role] = map[string]*answer{}
		for _, version := range authored.IgnitionVersions() {
			g.answers[role][version] = &answer{}
		}
	}
	return g
}

// find returns the answer for a role; nil if there is no such role.
func (g *generation) find(role, version string) *answer {
	a := g.answers[role][version]
	if a == nil {
		return nil
	}
	a.once.Do(func() {
		body, report := Config(g.content.Roles[role], version, g.content.More...)
		if report.Failed() {
			a.refused = report.String()
			return
		}
		a.body, a.etag = body, tag(body)
	})
	return a
}
