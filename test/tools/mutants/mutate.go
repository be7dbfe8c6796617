package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one small change of a file, which keeps all lines and uses of what is declared.
type mutant struct {
	file  string
	line  int
	kind  string
	edits []edit // sorted by their places
	probe edit   // stops the program where the mutant is
}

// edit replaces the bytes from one offset up to another one.
type edit struct {
	from, to int
	with     string
}

func apply(text string, edits ...edit) string {
	var b strings.Builder
	at := 0
	for _, e := range edits {
		b.WriteString(text[at:e.from] + e.with)
		at = e.to
	}
	return b.String() + text[at:]
}

var swapped = map[token.Token]string{token.LAND: "||", token.LOR: "&&", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

// mutants returns what can be changed in the functions of a file.
func mutants(file, text string) (all []mutant, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	offset := func(p token.Pos) int { return files.Position(p).Offset }
	ast.PreorderStack(parsed, nil, func(n ast.Node, above []ast.Node) bool {
		statement := statementOf(append(above, n))
		add := func(kind string, edits ...edit) {
			at := offset(statement.Pos())
			all = append(all, mutant{file, files.Position(n.Pos()).Line, kind, edits, edit{at, at, `panic("reached"); `}})
		}
		around := func(kind string, n ast.Node, before, after string) {
			from, to := offset(n.Pos()), offset(n.End())
			add(kind, edit{from, from, before}, edit{to, to, after})
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil && len(n.Body.List) > 0 {
				statement = n.Body.List[0]
				at := offset(statement.Pos())
				add("early return", edit{at, at, "if true { return " + zeroes(n.Type.Results, text, offset) + " }; "})
			}
		case *ast.IfStmt:
			around("condition negated", n.Cond, "!(", ")")
			if strings.Contains(text[offset(n.Cond.Pos()):offset(n.Cond.End())], "err != nil") {
				around("error dropped", n.Cond, "false && (", ")")
			}
		case *ast.BinaryExpr:
			if with := swapped[n.Op]; with != "" && statement != nil {
				at := offset(n.OpPos)
				add(n.Op.String()+" is "+with, edit{at, at + len(n.Op.String()), with})
			}
		case *ast.ExprStmt, *ast.DeferStmt, *ast.AssignStmt:
			if a, assigns := n.(*ast.AssignStmt); n == statement && !(assigns && a.Tok == token.DEFINE) {
				around("statement deleted", n, "if false { ", " }")
			}
		}
		return true
	})
	return all, nil
}

// statementOf returns the innermost statement of a path in a place for several; nil if there is none.
func statementOf(path []ast.Node) ast.Node {
	for i := len(path) - 1; i > 0; i-- {
		var list []ast.Stmt
		switch in := path[i-1].(type) {
		case *ast.BlockStmt:
			list = in.List
		case *ast.CaseClause:
			list = in.Body
		case *ast.CommClause:
			list = in.Body
		}
		switch s, _ := path[i].(ast.Stmt); s.(type) {
		case *ast.CaseClause, *ast.CommClause:
		default:
			if slices.Contains(list, s) {
				return s
			}
		}
	}
	return nil
}

// zeroes returns the zero values of results; nothing if they have names.
func zeroes(results *ast.FieldList, text string, offset func(token.Pos) int) string {
	var all []string
	if results != nil {
		for _, r := range results.List {
			if len(r.Names) == 0 {
				all = append(all, fmt.Sprintf("*new(%s)", text[offset(r.Type.Pos()):offset(r.Type.End())]))
			}
		}
	}
	return strings.Join(all, ", ")
}
