package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestAccountsInExpressions: an expression that API servers evaluate cannot refer to another object. So it has the name of
// an account as text, as the controllers' webhook does: they must go on while nobody answers it. Such a name is that of a
// ServiceAccount which deploy/ makes.
func TestAccountsInExpressions(t *testing.T) {
	accounts, text := map[string]bool{}, ""
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text += string(data)
		for _, document := range strings.Split(string(data), "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Namespace, Name string }
			}
			if yaml.Unmarshal([]byte(document), &o) == nil && o.Kind == "ServiceAccount" {
				accounts["system:serviceaccount:"+o.Metadata.Namespace+":"+o.Metadata.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`system:serviceaccount:[a-z0-9:-]+`).FindAllString(text, -1)
	slices.Sort(named)
	named = slices.Compact(named)
	if len(named) == 0 {
		t.Error("deploy has no account as text")
	}
	for _, name := range named {
		if !accounts[name] {
			t.Errorf("%s is none of %v", name, accounts)
		}
	}
}
