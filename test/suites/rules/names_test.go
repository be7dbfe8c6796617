package rules

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNamesDifferByMoreThanCase checks that no two names in a package differ only by case, so that
// neither a reader nor a case-insensitive search confuses them. It compares the names at package level
// and, for each type, those of its methods and fields. A field may have the name of its getter.
func TestNamesDifferByMoreThanCase(t *testing.T) {
	names := map[string][]name{} // by package and lower-case name
	for _, f := range sources(t) {
		for _, n := range declared(f) {
			key := f.dir() + " " + strings.ToLower(n.scope+n.name)
			names[key] = append(names[key], n)
		}
	}
	for _, same := range names {
		for _, n := range same[1:] {
			if n.name == same[0].name || accessor(n, same[0]) || accessor(same[0], n) {
				continue
			}
			t.Errorf("%s: %s%s and %s%s differ only by case; rename one of them", filepath.Dir(n.at), n.scope, n.name, same[0].scope, same[0].name)
		}
	}
}

// accessor reports whether method may be a getter of field.
func accessor(method, field name) bool {
	return method.method && !field.method && field.scope != "" && ast.IsExported(method.name)
}

// name is a declared name.
type name struct {
	scope  string // of methods and fields: the type, with a dot
	name   string
	method bool
	at     string
}

// declared returns the names that a file declares.
func declared(f file) (names []name) {
	for _, d := range f.Decls {
		at := f.at(d).Filename
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, name{receiver(d), d.Name.Name, d.Recv != nil, at})
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names = append(names, name{"", s.Name.Name, false, at})
					names = append(names, fields(s, at)...)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						names = append(names, name{"", id.Name, false, at})
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(n name) bool { return n.name == "_" })
}

// receiver returns the type of a method's receiver, with a dot; "" for functions.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch x := of.(type) {
		case *ast.StarExpr:
			of = x.X
		case *ast.IndexExpr:
			of = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}

func fields(s *ast.TypeSpec, at string) (names []name) {
	t, ok := s.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, field := range t.Fields.List {
		for _, id := range field.Names {
			names = append(names, name{s.Name.Name + ".", id.Name, false, at})
		}
	}
	return names
}
