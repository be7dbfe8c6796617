package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
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
	fset *token.FileSet
	main bool
}

// sources returns the source files of the product, without tests.
func sources(t *testing.T) []file {
	t.Helper()
	var files []file
	for _, p := range packages(t) {
		if p.underTest() {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				continue // the compiler reports it better
			}
			files = append(files, file{f, fset, p.Name == "main"})
		}
	}
	return files
}

func (f file) at(n ast.Node) token.Position { return f.fset.Position(n.Pos()) }

// dir returns the name that documents and tests use for the file's package: see short.
func (f file) dir() string {
	dir, err := filepath.Abs(root)
	if err != nil {
		return ""
	}
	name, err := filepath.Rel(dir, filepath.Dir(f.at(f.Name).Filename))
	if err != nil {
		return ""
	}
	return short(filepath.ToSlash(name))
}

// selected calls found for each selector expression on an imported package, with the package's path.
func (f file) selected(found func(s *ast.SelectorExpr, path string)) {
	paths := map[string]string{} // paths of the imported packages, by their names in this file
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		paths[name] = path
	}
	ast.Inspect(f.File, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && paths[x.Name] != "" {
				found(s, paths[x.Name])
			}
		}
		return true
	})
}

func TestOnlyMainExits(t *testing.T) {
	for _, f := range sources(t) {
		if f.main {
			continue
		}
		f.selected(func(s *ast.SelectorExpr, path string) {
			if slices.Contains(exits[path], s.Sel.Name) {
				t.Errorf("%s: %s.%s: only package main ends the process; return an error", f.at(s), path, s.Sel.Name)
			}
		})
	}
}

// TestNoGlobalLogger checks that packages log only to a logger that the caller passes. Only package
// main may use logrus's standard logger, to forward what libraries log.
func TestNoGlobalLogger(t *testing.T) {
	const logrus = "github.com/sirupsen/logrus"
	own := []string{"New", "Logger", "Entry", "Fields", "Level", "Hook", "LevelHooks", "AllLevels", "ErrorKey"}
	for _, f := range sources(t) {
		if f.main {
			continue
		}
		f.selected(func(s *ast.SelectorExpr, path string) {
			if path == logrus && !slices.Contains(own, s.Sel.Name) && !strings.HasSuffix(s.Sel.Name, "Level") {
				t.Errorf("%s: logrus.%s: it is of the process's own logger; log to one that is given", f.at(s), s.Sel.Name)
			}
		})
	}
}

func TestNoInit(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: func init: let the caller construct what it needs", f.at(fn))
			}
		}
	}
}

// TestOneReportType checks that all packages report problems of an input with the types of package
// problem, so that no conversions are needed between packages.
func TestOneReportType(t *testing.T) {
	for _, f := range sources(t) {
		if f.dir() == "problem" {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok && slices.Contains([]string{"Problem", "Problems", "Severity"}, s.Name.Name) {
				t.Errorf("%s: type %s: use package problem", f.at(s), s.Name.Name)
			}
			return true
		})
	}
}

// TestGoroutinesOfAnImport checks that the packages that read images start goroutines only with
// package guard, so that a panic in one of them becomes an error of the import.
func TestGoroutinesOfAnImport(t *testing.T) {
	for _, f := range sources(t) {
		if in := f.dir(); in != "ostree" && in != "osimage" && !strings.HasPrefix(in, "ostree/") && !strings.HasPrefix(in, "osimage/") {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: go: use guard.Start", f.at(n))
			case *ast.CallExpr: // Go methods of errgroup.Group and sync.WaitGroup
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
					t.Errorf("%s: Go: use a guard.Group", f.at(n))
				}
			}
			return true
		})
	}
}

// TestNoGlobalState allows package-level variables only for values that Go has no constants for:
// errors, regular expressions, embedded files, tables that are never changed, interface assertions,
// and the version and commit that the linker sets.
func TestNoGlobalState(t *testing.T) {
	tables := map[string]map[string]bool{} // by directory and name
	files := sources(t)
	for _, f := range files {
		dir := filepath.Dir(f.at(f.Name).Filename)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
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
						if tables[dir] == nil {
							tables[dir] = map[string]bool{}
						}
						tables[dir][name.Name] = true
					default:
						t.Errorf("%s: var %s: no global state; make it a field or a parameter", f.at(v), name.Name)
					}
				}
			}
		}
	}
	for _, f := range files {
		dir := filepath.Dir(f.at(f.Name).Filename)
		ast.Inspect(f.File, func(n ast.Node) bool {
			for _, target := range written(n) {
				if id := base(target); id != nil && tables[dir][id.Name] {
					t.Errorf("%s: %s is a table at package level and is changed here", f.at(n), id.Name)
				}
			}
			return true
		})
	}
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
