package main

import (
	"archive/tar"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"machine-pivot/internal/inflate"
)

// The floor of an image is the work that no import of it can avoid, on all processors: it fetches
// the layers over the same TLS, hashes and decompresses them, hashes the content of each file in
// them, and appends it to one of a few files, which are synced in the end. It compares no hash, and
// makes no objects with owners, modes, attributes and names of their own.

// floorLayers is how many layers the floor fetches at once, as many as pivot.
const floorLayers = 4

// fetching is a floor that runs.
type fetching struct {
	client *http.Client
	auth   string // the value of the header Authorization
	filez  chan []byte
}

// fetchFloor runs the floor for blobs of a registry, given by their URLs, and writes to files in a
// new directory. certs has the registry's CA, and the file secret the password for it, as
// containers-auth.json(5).
func fetchFloor(blobs []string, certs, secret, out string) error {
	f := &fetching{filez: make(chan []byte, 4*runtime.NumCPU())}
	if err := f.connect(certs, secret); err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	var objects, layers errgroup.Group
	for n := range runtime.NumCPU() {
		objects.Go(func() error {
			return withOutput(filepath.Join(out, fmt.Sprintf("objects-%d", n)), f.inflateAll)
		})
	}
	layers.SetLimit(floorLayers)
	for n, url := range blobs {
		layers.Go(func() error {
			return withOutput(filepath.Join(out, fmt.Sprintf("layer-%d", n)), func(to *sumWriter) error { return f.layer(url, to) })
		})
	}
	err := layers.Wait()
	close(f.filez)
	if err := errors.Join(err, objects.Wait()); err != nil {
		return err
	}
	return syncDir(out)
}

// connect sets the client and its credentials.
func (f *fetching) connect(certs, secret string) error {
	ca, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	f.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: floorLayers}}
	data, err := os.ReadFile(secret)
	if err != nil {
		return err
	}
	var auths struct {
		Auths map[string]struct{ Auth string }
	}
	err = json.Unmarshal(data, &auths)
	for _, a := range auths.Auths {
		f.auth = "Basic " + a.Auth
	}
	return err
}

// layer fetches one layer, hashes and decompresses it, and processes the files in it. Compressed
// objects are left to other goroutines.
func (f *fetching) layer(url string, to *sumWriter) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", f.auth)
	response, err := f.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	sum := sha256.New()
	defer sum.Sum(nil)
	compressed := io.TeeReader(response.Body, sum)
	plain, err := inflate.NewGzip(compressed)
	if err != nil {
		return err
	}
	for entries := tar.NewReader(plain); ; {
		header, err := entries.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = f.entry(header, entries, to)
		}
		if err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, plain)
	return err
}

// entry hashes and writes a file of a layer.
func (f *fetching) entry(header *tar.Header, body io.Reader, to *sumWriter) error {
	if strings.HasSuffix(header.Name, ".filez") {
		data := make([]byte, header.Size)
		_, err := io.ReadFull(body, data)
		f.filez <- data
		return err
	}
	_, err := io.CopyBuffer(to, body, to.buffer)
	to.next()
	return err
}

// inflateAll decompresses, hashes and writes the objects of an archive repository. After an error
// it goes on to receive, so that the sender is not blocked.
func (f *fetching) inflateAll(to *sumWriter) (failed error) {
	decoder := inflate.New()
	for data := range f.filez {
		content, size, err := filezContent(data)
		if err == nil && failed == nil && content.Len() > 0 {
			err = decoder.Decode(to, content, uint64(size))
			to.next()
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// withOutput calls f with a writer to a new file.
func withOutput(path string, f func(*sumWriter) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return f(&sumWriter{file: file, sum: sha256.New(), buffer: make([]byte, bufferSize)})
}

// sumWriter writes contents to a file, one after the other, and hashes each.
type sumWriter struct {
	file   *os.File
	sum    hash.Hash
	buffer []byte // for io.CopyBuffer
}

// Write implements io.Writer.
func (w *sumWriter) Write(p []byte) (int, error) {
	w.sum.Write(p)
	return w.file.Write(p)
}

// next ends a content.
func (w *sumWriter) next() {
	w.sum.Sum(nil)
	w.sum.Reset()
}
