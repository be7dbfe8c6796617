package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/sepolicy"
	"machine-pivot/test/worlds/debianpolicy"
)

// policyName is the name of the policy in package debianpolicy.
const policyName = "debian"

// writePolicy writes Debian's SELinux policy as below /etc/selinux. Files of a component are
// labelled like the files of the machine that they are copied from.
func writePolicy(dir string) error {
	files, err := debianpolicy.Files()
	if err != nil {
		return fmt.Errorf("%w (make deps unpacks it)", err)
	}
	var places strings.Builder
	for n := range components {
		fmt.Fprintf(&places, "/%s /\n", component(n))
	}
	files[policyName+"/contexts/files/file_contexts.subs_dist"] += places.String()
	return writeFiles(dir, files)
}

// applyPolicy labels a tree by the policy in it.
func applyPolicy(tree string) error {
	contexts, err := sepolicy.In(filepath.Join(tree, "usr/etc/selinux")).Contexts(policyName)
	if err != nil {
		return err
	}
	return contexts.Apply(tree, "/")
}

// writeFiles writes files below a directory.
func writeFiles(dir string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
