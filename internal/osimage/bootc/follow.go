package bootc

import (
	"errors"
	"fmt"

	"machine-pivot/internal/ostree"
)

// follow reads the file that a link of a commit leads to.
func follow(repo FileReader, commit ostree.Checksum, link string) (string, error) {
	file, exists, err := repo.Resolve(commit, link)
	switch {
	case err != nil:
		return "", err
	case !exists:
		return "", fmt.Errorf("it leads to /%s, which is not in the image", file.Path)
	case file.IsDir:
		return "", errors.New("it leads to a directory")
	case file.Links == 0:
		return "", errors.New("it is not a symbolic link")
	case len(file.File) > MaxBoundSize:
		return "", fmt.Errorf("it has %d bytes, more than %d", len(file.File), MaxBoundSize)
	}
	return string(file.File), nil
}
