package rules

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// remediless are the kinds of package fault that need no hint of their own: what is tried again or done later, what
// nobody foresees, and a wrong command line, for which the command names its help.
var remediless = []string{"Internal", "Unavailable", "Interrupted", "Later", "Usage"}

// remedies matches a hint that names what to use or to correct: a path, a flag, a setting, a program, or an argument of
// the format.
var remedies = regexp.MustCompile(`[/%=]|--|[A-Z]{3}|[a-z][A-Z]|[a-z]\.[a-z]|\b(?:pivot|pivotctl|systemctl|systemd|openssl|ostree|libostree|rpm-ostree|curl|ln|mount|skopeo|sudo|timedatectl|useradd)\b`)

// TestHintsName checks that no hint is only "wait" or "try again": its reader has to know with what.
func TestHintsName(t *testing.T) {
	found := 0
	nodes(t, func(f file, call *ast.CallExpr) {
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "WithHint" || len(call.Args) == 0 {
			return
		}
		text, literal := call.Args[0].(*ast.BasicLit)
		if !literal {
			return
		}
		found++
		if !remedies.MatchString(text.Value) {
			t.Errorf("%s: the hint %s names no command, file or setting", f.fset.Position(call.Pos()), text.Value)
		}
	})
	if found < 100 {
		t.Errorf("%d hints found; the test does not recognize them any more", found)
	}
}

// TestHints checks that each permanent error has a hint, so that its reader has something to do. An error that wraps
// another one has that one's. The controllers of a cluster show one text, in which the remedy stands.
func TestHints(t *testing.T) {
	hinted, found := map[ast.Expr]bool{}, 0
	nodes(t, func(_ file, call *ast.CallExpr) {
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "WithHint" {
			hinted[s.X] = true
		}
	})
	nodes(t, func(f file, call *ast.CallExpr) {
		kind, format := newFault(call)
		if kind == "" || slices.Contains(remediless, kind) || strings.Contains(format, "%w") {
			return
		}
		found++
		if !hinted[call] && !strings.Contains(f.fset.Position(call.Pos()).Filename, "/internal/cluster/") {
			t.Errorf("%s: %s has no hint", f.fset.Position(call.Pos()), format)
		}
	})
	if found < 100 {
		t.Errorf("%d permanent errors found; the test does not recognize them any more", found)
	}
}

// newFault returns the kind and the format of a call of fault.New; "" for another one, or if they are not constant.
func newFault(call *ast.CallExpr) (kind, format string) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "New" || len(call.Args) < 2 {
		return "", ""
	}
	pkg, ok := s.X.(*ast.Ident)
	of, constant := call.Args[0].(*ast.SelectorExpr)
	text, literal := call.Args[1].(*ast.BasicLit)
	if !ok || pkg.Name != "fault" || !constant || !literal {
		return "", ""
	}
	return of.Sel.Name, text.Value
}
