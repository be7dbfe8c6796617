package hostimages

import (
	"compress/gzip"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/klauspost/compress/zstd"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
)

// Limits of the metadata, in bytes after decompression. Repositories of extensions have some hundred
// packages, and lists of less than 1 MiB.
const (
	maxRepositoryIndex = 1 << 20
	maxPackageList     = 32 << 20
	maxListWindow      = 8 << 20 // of zstd; createrepo_c's own compression needs no more
)

// repositoryPackages returns the names of the packages in the repository at dir, according to its metadata,
// once for each version. The metadata are as createrepo_c writes and libdnf reads them: repodata/repomd.xml names the
// list "primary", an XML file that is uncompressed or compressed with gzip or zstd. The error has kind fault.BadInput if dir is not a valid repository.
func repositoryPackages(dir string) (names []string, err error) {
	root, err := os.OpenRoot(dir) // confines the paths that the metadata name
	if err != nil {
		return nil, noRepository(err)
	}
	defer root.Close()
	list, err := primaryList(root)
	if err != nil {
		return nil, noRepository(err)
	}
	if names, err = packagesInList(root, list); err != nil {
		return nil, noRepository(fmt.Errorf("%s: %w", list, err))
	}
	return names, nil
}

func noRepository(err error) error {
	return fault.New(fault.BadInput, "cannot read the repository of packages: %w", err)
}

// primaryList returns the path of the package list, as named by the index.
func primaryList(root *os.Root) (string, error) {
	const index = "repodata/repomd.xml"
	file, err := root.Open(index)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var repomd struct {
		Data []struct {
			Type     string `xml:"type,attr"`
			Location struct {
				Href string `xml:"href,attr"`
			} `xml:"location"`
		} `xml:"data"`
	}
	if err := xml.NewDecoder(guard.NewBudget(maxRepositoryIndex, "bytes").Reader(file)).Decode(&repomd); err != nil {
		return "", fmt.Errorf("%s: %w", index, err)
	}
	for _, d := range repomd.Data {
		if d.Type == "primary" {
			return d.Location.Href, nil
		}
	}
	return "", fmt.Errorf("%s names no list of packages", index)
}

func packagesInList(root *os.Root, list string) ([]string, error) {
	file, err := root.Open(list)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	plain, err := decompressList(file, path.Ext(list))
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return packageNames(guard.NewBudget(maxPackageList, "decompressed bytes").Reader(plain))
}

func decompressList(r io.Reader, extension string) (io.ReadCloser, error) {
	switch extension {
	case ".gz":
		return gzip.NewReader(r)
	case ".zst":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxListWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case ".xml":
		return io.NopCloser(r), nil
	}
	return nil, fmt.Errorf("it is compressed in a way that is not known: %s", extension)
}
