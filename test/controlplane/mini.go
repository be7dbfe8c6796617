//go:build !full

package main

// fullComponents returns no more components: they would take longer to compile.
func fullComponents() map[string]component { return nil }
