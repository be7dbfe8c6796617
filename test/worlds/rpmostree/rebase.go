package rpmostree

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"machine-pivot/internal/ostree"
)

var rebaseOptions = with(map[string]option{
	"experimental": {}, "custom-origin-url": {value: true}, "custom-origin-description": {value: true},
	"skip-purge": {}, "C": {}, "cache-only": {}, "b": {value: true}, "branch": {value: true}, "os": {value: true}, "stateroot": {value: true},
}, "lock-finalization", "bypass-driver", "reboot", "r")

// wanted is the parsed argument of a rebase.
type wanted struct {
	refspec  string // for the new origin
	commit   string
	checksum bool // refspec is a checksum
	image    bool // refspec is an ostree image reference
}

func (c *call) rebase() (int, error) {
	if len(c.options.operand) != 1 {
		return exitFailed, failf("rebase requires a REFSPEC")
	}
	if err := c.driven(); err != nil {
		return exitFailed, err
	}
	what := update{refspec: c.options.operand[0], url: c.options.value("custom-origin-url"), description: c.options.value("custom-origin-description")}
	if what.url != "" && what.description == "" {
		return exitFailed, failf("--custom-origin-description must be supplied with --custom-origin-url")
	}
	if err := c.update(what); err != nil {
		return exitFailed, err
	}
	return exitDone, c.printChanges()
}

// driven returns an error while an update driver is active (rpmostree-clientlib.cxx).
func (c *call) driven() error {
	d := c.control.Driver
	if d == nil || !d.Active || c.options.has("bypass-driver") || !c.control.release().since(release{2021, 3}) {
		return nil
	}
	return failf("Updates and deployments are driven by %s (%s)\nSee %s's documentation\nUse --bypass-driver to bypass %s and perform the operation anyways",
		d.Name, d.Unit, d.Name, d.Name)
}

var checksum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// want classifies a refspec as rust/src/core.rs does and finds its commit.
func (c *call) want(refspec string, p deployment) (wanted, error) {
	switch {
	case strings.HasPrefix(refspec, "ostree-"):
		return c.wantImage(refspec, p)
	case p.Container != "" && !c.control.release().since(release{2022, 10}):
		// These releases parse it as an ostree refspec, which it is not (commit a4c60bd7).
		return wanted{}, failf("Invalid refspec %s", p.Container)
	case strings.HasPrefix(refspec, ":") && checksum.MatchString(refspec[1:]):
		return c.find(wanted{refspec: refspec[1:], commit: refspec[1:], checksum: true})
	case checksum.MatchString(refspec):
		// A bare checksum gets the remote of the current origin as prefix, and is then a ref.
		if remote, _, ok := strings.Cut(p.Origin, ":"); ok {
			return c.find(wanted{refspec: remote + ":" + refspec, commit: refspec})
		}
		return c.find(wanted{refspec: refspec, commit: refspec, checksum: true})
	}
	if refspec == p.Origin {
		return wanted{}, failf("Old and new refs are equal: %s", refspec)
	}
	commit, err := c.Ostree(c.ctx, "ostree", "rev-parse", "--repo="+c.repo(), refspec)
	return wanted{refspec: refspec, commit: strings.TrimSpace(string(commit))}, err
}

func (c *call) wantImage(reference string, p deployment) (wanted, error) {
	if !c.control.takesContainers() {
		return wanted{}, failf("Invalid refspec %s", reference)
	}
	if reference == p.Container {
		return wanted{}, failf("Old and new refs are equal: %s", reference)
	}
	if err := c.openImage(reference); err != nil {
		return wanted{}, err
	}
	commit, err := c.Ostree(c.ctx, "ostree", "rev-parse", "--repo="+c.repo(), ImageRef(reference))
	if err != nil {
		return wanted{}, failf("Importing: the stand-in imports no image, and %s is not in the repository", reference)
	}
	return wanted{refspec: reference, commit: strings.TrimSpace(string(commit)), image: true}, nil
}

// find checks that the commit is in the repository.
func (c *call) find(w wanted) (wanted, error) {
	sum, err := ostree.ParseChecksum(w.commit)
	if err == nil {
		_, err = c.commit(sum)
	}
	if err != nil {
		return w, failf("No such metadata object %s.commit", w.commit)
	}
	return w, nil
}

// origin returns the new origin: the refspec, with everything that is layered. A custom origin is
// kept only with a checksum or with a container's digest.
func (c *call) origin(w wanted, what update, old ostree.Origin) (ostree.Origin, error) {
	text := "[origin]\n"
	switch {
	case w.image:
		text += "container-image-reference=" + w.refspec + "\n"
	case !layersOf(old).empty():
		text += "baserefspec=" + w.refspec + "\n"
	default:
		text += "refspec=" + w.refspec + "\n"
	}
	if what.url != "" && (w.checksum || w.image && strings.Contains(w.refspec, "@sha256:")) {
		text += "custom-url=" + what.url + "\ncustom-description=" + what.description + "\n"
	}
	return ostree.ParseOrigin([]byte(text + layersOf(old).text()))
}

// ImageRef returns the ref of an image in the repository (ostree-ext: container/mod.rs for the
// name, refescape.rs for the escaping).
func ImageRef(reference string) string {
	ref, plain := "", false
	for _, r := range "docker://" + registryName(reference) {
		alphanumeric := r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r))
		switch {
		case alphanumeric, r == '-', r == '/' && plain:
			ref += string(r)
		case r == '_':
			ref += "__"
		default:
			ref += fmt.Sprintf("_%02X_", r)
		}
		plain = alphanumeric
	}
	return "ostree/container/image/" + ref
}
