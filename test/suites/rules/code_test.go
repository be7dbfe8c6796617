package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// exits are the functions that end the process, by package.
var exits = map[string][]string{
	"os":                         {"Exit"},
	"log":                        {"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
	"github.com/sirupsen/logrus": {"Exit", "Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
}

// constants are the functions with immutable results. A package-level variable may hold such a result.
var constants = []string{
	"errors.New", "fault.New", "gvariant.MustType", "regexp.MustCompile", "strings.NewReplacer",
}

// file is a parsed source file.
type file struct {
	*ast.File
	fset    *token.FileSet
	pkg     string            // the short name of its package
	main    bool              // whether that is a program
	imports map[string]string // paths of the imported packages, by their names in this file
}

var parseSources = sync.OnceValues(func() (files []file, err error) {
	list, err := listPackages()
	for _, p := range list {
		for _, name := range p.GoFiles {
			if p.underTest() {
				continue
			}
			f := file{fset: token.NewFileSet(), pkg: p.short(), main: p.Name == "main", imports: map[string]string{}}
			if f.File, err = parser.ParseFile(f.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			for _, i := range f.Imports {
				imported := strings.Trim(i.Path.Value, `"`)
				name := path.Base(imported)
				if i.Name != nil {
					name = i.Name.Name
				}
				f.imports[name] = imported
			}
			files = append(files, f)
		}
	}
	return files, err
})

// sources returns the source files of the product, without tests.
func sources(t *testing.T) []file {
	t.Helper()
	files, err := parseSources()
	if err != nil {
		t.Fatalf("cannot parse the product: %v", err)
	}
	return files
}

// nodes calls found for each node of one type in the source files of the product.
func nodes[N ast.Node](t *testing.T, found func(f file, n N)) {
	t.Helper()
	for _, f := range sources(t) {
		ast.Inspect(f.File, func(n ast.Node) bool {
			if n, ok := n.(N); ok {
				found(f, n)
			}
			return true
		})
	}
}

func (f file) at(n ast.Node) token.Position { return f.fset.Position(n.Pos()) }

// packageOf returns the path of the package in an expression such as os.Exit; "" for other selectors.
func (f file) packageOf(s *ast.SelectorExpr) string {
	if x, ok := s.X.(*ast.Ident); ok {
		return f.imports[x.Name]
	}
	return ""
}

func TestOnlyMainExits(t *testing.T) {
	nodes(t, func(f file, s *ast.SelectorExpr) {
		if path := f.packageOf(s); !f.main && slices.Contains(exits[path], s.Sel.Name) {
			t.Errorf("%s: %s.%s: only package main ends the process; return an error", f.at(s), path, s.Sel.Name)
		}
	})
}

// TestNoGlobalLogger checks that packages log only to a logger that the caller passes. Only package
// main may use logrus's standard logger, to forward what libraries log.
func TestNoGlobalLogger(t *testing.T) {
	own := []string{"New", "JSONFormatter", "Logger", "Entry", "Fields", "Level", "Hook", "LevelHooks", "AllLevels", "ErrorKey"}
	nodes(t, func(f file, s *ast.SelectorExpr) {
		if !f.main && f.packageOf(s) == "github.com/sirupsen/logrus" && !slices.Contains(own, s.Sel.Name) && !strings.HasSuffix(s.Sel.Name, "Level") {
			t.Errorf("%s: logrus.%s: it is of the process's own logger; log to one that is given", f.at(s), s.Sel.Name)
		}
	})
}

func TestNoInit(t *testing.T) {
	nodes(t, func(f file, fn *ast.FuncDecl) {
		if fn.Recv == nil && fn.Name.Name == "init" {
			t.Errorf("%s: func init: let the caller construct what it needs", f.at(fn))
		}
	})
}

// TestOneReportType checks that all packages report problems of an input with the types of package
// problem, so that no conversions are needed between packages.
func TestOneReportType(t *testing.T) {
	nodes(t, func(f file, s *ast.TypeSpec) {
		if f.pkg != "problem" && slices.Contains([]string{"Problem", "Problems", "Severity"}, s.Name.Name) {
			t.Errorf("%s: type %s: use package problem", f.at(s), s.Name.Name)
		}
	})
}

// TestGoroutinesOfAnImport checks that the packages that read images start goroutines only with
// package guard, so that a panic in one of them becomes an error of the import.
func TestGoroutinesOfAnImport(t *testing.T) {
	reads := []string{"ostree", "osimage"}
	nodes(t, func(f file, s *ast.GoStmt) {
		if within(f.pkg, reads) {
			t.Errorf("%s: go: use guard.Start", f.at(s))
		}
	})
	nodes(t, func(f file, call *ast.CallExpr) { // Go methods of errgroup.Group and sync.WaitGroup
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" && within(f.pkg, reads) {
			t.Errorf("%s: Go: use a guard.Group", f.at(s))
		}
	})
}

// ownSize matches a format that shows an amount of data without printable.Size.
var ownSize = regexp.MustCompile(`%[0-9.]*[dfgv] ?([kMGTP]B\b|bytes (free|fetched|written|left)\b)`)

// TestSizes: amounts of data are shown by printable.Size only. Limits of an input may be
// exact.
func TestSizes(t *testing.T) {
	nodes(t, func(f file, text *ast.BasicLit) {
		if text.Kind == token.STRING && ownSize.MatchString(text.Value) {
			t.Errorf("%s: %s: use printable.Size", f.at(text), text.Value)
		}
	})
	for text, own := range map[string]bool{"%.1f MB": true, "%d bytes free": true, "%s free": false, "more than %d bytes": false, "%d MiB": false} {
		if ownSize.MatchString(text) != own {
			t.Errorf("%q: taken for the opposite", text)
		}
	}
}

// TestNoGlobalState allows package-level variables only for values that Go has no constants for: errors, regular
// expressions, embedded files, constant tables, interface assertions, and the linker's version and commit.
func TestNoGlobalState(t *testing.T) {
	tables := map[string]bool{} // by package and name
	nodes(t, func(f file, g *ast.GenDecl) {
		if g.Tok != token.VAR || !slices.Contains(f.Decls, ast.Decl(g)) {
			return
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if embedded(g.Doc) || embedded(v.Doc) {
				continue
			}
			for i, name := range v.Names {
				switch {
				case name.Name == "_", f.main && (name.Name == "version" || name.Name == "commit"), i < len(v.Values) && constant(v.Values[i]):
				case i < len(v.Values) && table(v.Values[i]):
					tables[f.pkg+"."+name.Name] = true
				default:
					t.Errorf("%s: var %s: no global state; make it a field or a parameter", f.at(v), name.Name)
				}
			}
		}
	})
	nodes(t, func(f file, n ast.Node) {
		for _, target := range written(n) {
			if id := base(target); id != nil && tables[f.pkg+"."+id.Name] {
				t.Errorf("%s: %s is a table at package level and is changed here", f.at(n), id.Name)
			}
		}
	})
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

func constant(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && slices.Contains(constants, x.Name+"."+s.Sel.Name)
}

func table(e ast.Expr) bool {
	_, ok := e.(*ast.CompositeLit)
	return ok
}

// written returns the expressions that a node assigns to, deletes from or clears.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"delete", "clear"}, id.Name) && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// base returns the variable at the beginning of an expression with indexes and fields.
func base(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// TestTracked: git has no programs, images or other large files, which stay in its history for ever.
func TestTracked(t *testing.T) {
	const most = 512 << 10 // bytes
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("no checkout of git")
	}
	files := strings.Split(strings.TrimSuffix(run(t, "git", "ls-files", "-z"), "\x00"), "\x00")
	if len(files) < 1000 {
		t.Fatalf("git has only %d files", len(files))
	}
	for _, name := range files {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Size() > most {
			t.Errorf("%s has %d bytes, and may have %d", name, info.Size(), most)
		}
	}
}
