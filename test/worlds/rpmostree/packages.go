package rpmostree

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
)

var (
	packageOptions = with(map[string]option{
		"install": {value: true}, "uninstall": {value: true}, "allow-inactive": {}, "idempotent": {}, "C": {}, "cache-only": {},
	}, "lock-finalization", "unchanged-exit-77", "reboot", "r")
	overrideOptions = with(map[string]option{
		"install": {value: true}, "uninstall": {value: true}, "C": {}, "cache-only": {}, "all": {},
	}, "lock-finalization", "reboot", "r")
)

// layers are what an origin changes of the image: the packages that it requests or removes, and all else in the same
// groups, which each operation passes on (rust/src/origin.rs).
type layers struct {
	requested, removed []string
	others             []ostree.KeyGroup // with the settings that no operation of the stand-in changes
}

func layersOf(o ostree.Origin) layers {
	l := layers{requested: o.RequestedPackages(), removed: o.RemovedPackages()}
	file, _ := ostree.ParseKeyFile(o.Bytes()) // an origin has been parsed before
	for _, g := range file.Groups() {
		if slices.Contains([]string{"packages", "overrides", "rpmostree"}, g.Name) {
			kept := slices.DeleteFunc(slices.Clone(g.Settings), func(s ostree.KeySetting) bool {
				return g.Name == "packages" && s.Key == "requested" || g.Name == "overrides" && s.Key == "remove" || s.Value == "false"
			})
			l.others = append(l.others, ostree.KeyGroup{Name: g.Name, Settings: kept})
		}
	}
	return l
}

// other returns the value of a key that no operation changes, or "".
func (l layers) other(group, key string) string {
	value, _ := ostree.NewKeyFile(l.others...).Value(group, key)
	return value
}

// empty reports whether the deployment is of the image's own commit. A second initramfs needs no commit.
func (l layers) empty() bool {
	for _, g := range l.others {
		for _, s := range g.Settings {
			if s.Key != "initramfs-etc" {
				return false
			}
		}
	}
	return len(l.requested)+len(l.removed) == 0
}

// text returns the layers as sections of an origin.
func (l layers) text() string {
	text := string(ostree.NewKeyFile(l.others...).Bytes())
	if len(l.requested) > 0 {
		text += "\n[packages]\nrequested=" + strings.Join(l.requested, ";") + ";\n"
	}
	if len(l.removed) > 0 {
		text += "\n[overrides]\nremove=" + strings.Join(l.removed, ";") + ";\n"
	}
	return text
}

func (c *call) install() (int, error) {
	return c.updateByClient(update{install: c.options.operand, uninstall: c.options.values("uninstall")})
}

func (c *call) uninstall() (int, error) {
	return c.updateByClient(update{install: c.options.values("install"), uninstall: c.options.operand})
}

// override implements "override remove" and "override reset"
// (src/app/rpmostree-override-builtins.cxx).
func (c *call) override() (int, error) {
	if len(c.options.operand) < 2 {
		return exitFailed, failf("At least one PACKAGE must be specified")
	}
	what := update{install: c.options.values("install"), uninstall: c.options.values("uninstall")}
	switch names := c.options.operand[1:]; c.options.operand[0] {
	case "remove":
		what.remove = names
	case "reset":
		what.reset = names
	default:
		return exitFailed, failf("Unknown \"override\" subcommand '%s'", c.options.operand[0])
	}
	return c.updateByClient(what)
}

// withLayers returns an origin with other layers. If there are layers, the key of the base commit
// is baserefspec instead of refspec.
func withLayers(o ostree.Origin, l layers) (ostree.Origin, error) {
	key := "refspec"
	if !l.empty() {
		key = "baserefspec"
	}
	text := "[origin]\n"
	for _, k := range []string{"refspec", "baserefspec", "container-image-reference", "custom-url", "custom-description"} {
		if value := o.Get(k); value != "" {
			text += strings.Replace(k, "baserefspec", "refspec", 1) + "=" + value + "\n"
		}
	}
	text = strings.Replace(text, "\nrefspec=", "\n"+key+"=", 1)
	return ostree.ParseOrigin([]byte(text + l.text()))
}

// layered returns the commit to deploy for a base and an origin: the base itself, or a new commit
// on top of it with the origin's layers. If packages that the base lacks are requested by name, a
// repository must be enabled, even if all of them are in the cache (rpmostree_context_setup in
// src/libpriv/rpmostree-core.cxx).
func (c *call) layered(base string, origin ostree.Origin) (commit string, err error) {
	db, err := c.database(base)
	if err != nil {
		return "", err
	}
	lacking := slices.DeleteFunc(origin.RequestedPackages(), func(name string) bool {
		_, there := db.find(name)
		return there
	})
	enabled, err := c.repositories()
	if err != nil {
		return "", err
	}
	if len(lacking) > 0 && len(enabled) == 0 {
		return "", failf("No enabled repositories")
	}
	return c.layeredFromCache(base, origin)
}

// layeredFromCache is layered for a call that installs nothing, and needs no repository.
func (c *call) layeredFromCache(base string, origin ostree.Origin) (commit string, err error) {
	l := layersOf(origin)
	if l.empty() {
		return base, nil
	}
	files, err := c.resolve(origin.LayeredPackages())
	if err != nil {
		return "", err
	}
	db, err := c.database(base)
	if err != nil {
		return "", err
	}
	if err := c.control.note("assemblies", strings.Join(append(l.requested, prefixed("-", l.removed)...), " ")); err != nil {
		return "", err
	}
	err = c.writing(func(repo string) error {
		tree, err := os.MkdirTemp(filepath.Join(repo, "tmp"), "standin-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tree)
		tree = filepath.Join(tree, "tree")
		if _, err := c.Ostree(c.ctx, "ostree", "checkout", "--repo="+repo, "-H", base, tree); err != nil {
			return err
		}
		if db, err = assemble(tree, db, l.removed, files); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(tree, DatabasePath), 0o644, strings.NewReader(string(db.bytes()))); err != nil {
			return err
		}
		out, err := c.Ostree(c.ctx, "ostree", "commit", "--repo="+repo, "--orphan", "--parent="+base, "--tree=dir="+tree,
			"--timestamp=@0", "--add-metadata=rpmostree.clientlayer=true", "--add-metadata-string=rpmostree.packages="+strings.Join(l.requested, ";"))
		commit = strings.TrimSpace(string(out))
		return err
	})
	return commit, err
}

// assemble removes packages from a tree and installs package files. It returns the new database.
func assemble(tree string, db database, removed, files []string) (database, error) {
	for _, name := range removed {
		p, there := db.find(name)
		if !there {
			continue // the base does not have it: the override is inactive
		}
		for _, file := range p.Files {
			if err := os.RemoveAll(filepath.Join(tree, file)); err != nil {
				return nil, err
			}
		}
		db = slices.DeleteFunc(db, func(have dbPackage) bool { return have.Name == name })
	}
	for _, file := range files {
		r, err := openRPM(file)
		if err != nil {
			return nil, err
		}
		err = r.unpack(tree)
		if cerr := r.file.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if _, there := db.find(r.pkg.Name); !there {
			db = append(db, r.pkg)
		}
	}
	return db, nil
}

// resolve returns the files of packages, from the repositories in the booted system's /etc or from
// the cache. A package that is layered on a deployment but found in neither is accepted without a
// file, since the real rpm-ostree may have it in its cache.
func (c *call) resolve(names []string) (files []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	offered, err := c.offered()
	if err != nil {
		return nil, err
	}
	cached, err := c.cached()
	if err != nil {
		return nil, err
	}
	var lacking []string
	for _, name := range names {
		file, there := offered[name]
		switch {
		case there && file == unsigned:
			return nil, failf("package %s cannot be verified and repo is GPG enabled", name)
		case there:
			if file, err = c.keep(name, file); err != nil {
				return nil, err
			}
			files = append(files, file)
		case !slices.Contains(cached, name):
			lacking = append(lacking, name)
		}
	}
	if len(lacking) > 0 {
		return nil, failf("Packages not found: %s", strings.Join(lacking, ", "))
	}
	return files, nil
}

// cacheDir has the packages that were layered before. The real rpm-ostree keeps them in the ostree
// repository.
const cacheDir = "/var/cache/rpm-ostree-standin"

// keep copies a package to the cache, and returns its path there.
func (c *call) keep(name, file string) (string, error) {
	kept := filepath.Join(c.Root, cacheDir, name+".rpm")
	if file == kept {
		return kept, nil
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(kept), 0o755)
	}
	if err == nil {
		err = os.WriteFile(kept, data, 0o644)
	}
	return kept, err
}

// unsigned stands for the file of a package in a repository that requires signatures.
const unsigned = "unsigned"

// offered returns the package files in the cache and the repositories, by package name.
func (c *call) offered() (map[string]string, error) {
	offered := map[string]string{}
	kept, err := filepath.Glob(filepath.Join(c.Root, cacheDir, "*.rpm"))
	if err != nil {
		return nil, err
	}
	for _, file := range kept {
		offered[strings.TrimSuffix(filepath.Base(file), ".rpm")] = file
	}
	repos, err := c.repositories()
	if err != nil {
		return nil, err
	}
	for _, repo := range repos {
		if _, err := os.Stat(filepath.Join(c.Root, repo.dir, "repodata/repomd.xml")); err != nil {
			return nil, failf("Updating rpm-md repo '%[1]s': cannot update repo '%[1]s': Cannot download repomd.xml: Cannot download repodata/repomd.xml: All mirrors were tried", repo.id)
		}
		found, err := filepath.Glob(filepath.Join(c.Root, repo.dir, "*.rpm"))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			r, err := openRPM(file)
			if err != nil {
				return nil, err
			}
			if offered[r.pkg.Name] = file; repo.signed {
				offered[r.pkg.Name] = unsigned
			}
			if err := r.file.Close(); err != nil {
				return nil, err
			}
		}
	}
	return offered, nil
}

// repository is an enabled package repository in a directory of the host.
type repository struct {
	id, dir string
	signed  bool // its packages must be signed
}

// repositories returns the enabled repositories, which libdnf reads from the booted system's
// /etc: a section of a .repo file each, enabled unless it says otherwise.
func (c *call) repositories() (all []repository, err error) {
	files, err := filepath.Glob(filepath.Join(c.Root, "etc/yum.repos.d/*.repo"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, section := range strings.Split("\n"+string(text), "\n[")[1:] {
			id, settings, _ := strings.Cut(section, "]\n")
			_, url, _ := strings.Cut(settings, "baseurl=file://")
			dir, _, _ := strings.Cut(url, "\n")
			if id != "main" && !disabled.MatchString(settings) {
				all = append(all, repository{id, dir, !strings.Contains(settings, "gpgcheck=0\n")})
			}
		}
	}
	return all, nil
}

var disabled = regexp.MustCompile(`(?im)^enabled *= *(0|no|false|off)$`)

// cached returns the names of packages that are layered on any deployment.
func (c *call) cached() (names []string, err error) {
	all, err := c.deployments()
	for _, d := range all {
		names = append(names, d.deployed.Origin.LayeredPackages()...)
	}
	return names, err
}
