package main

import (
	"archive/tar"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
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

// The floor of an image is the work that no import can avoid, on all processors. It fetches the layers over the same
// TLS, hashes and decompresses them, hashes each file's content, and appends that to one of a few files, synced in the
// end. It compares no hash, and makes no objects with owners, modes, attributes and names of their own.
//
// The floor with files makes a file of each object's content, with the hash as its name, and nothing else. Its
// difference from the floor is what a file system needs for that many files.

// floorLayers is how many layers the floor fetches at once, as many as pivot.
const floorLayers = 4

// fetching is a floor that runs.
type fetching struct {
	client *http.Client
	auth   string // the value of the header Authorization
	filez  chan []byte
	dir    string // for files of their own; "" if there are none
}

// fetchFloor runs the floor for blobs of a registry, given by their URLs, and writes to files in a
// new directory. certs has the registry's CA, and the file secret the password for it, as
// containers-auth.json(5).
//
// With files it writes each object to a file of its own.
func fetchFloor(blobs []string, certs, secret, out string, files bool) error {
	f := &fetching{filez: make(chan []byte, 4*runtime.NumCPU())}
	if err := f.connect(certs, secret); err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	if files {
		f.dir = out
		if err := makeShards(out); err != nil {
			return err
		}
	}
	var objects, layers errgroup.Group
	for n := range runtime.NumCPU() {
		objects.Go(func() error {
			return f.withOutput(filepath.Join(out, fmt.Sprintf("objects-%d", n)), f.inflateAll)
		})
	}
	layers.SetLimit(floorLayers)
	for n, url := range blobs {
		layers.Go(func() error {
			return f.withOutput(filepath.Join(out, fmt.Sprintf("layer-%d", n)), func(to *sumWriter) error { return f.layer(url, to) })
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
	return errors.Join(err, to.next(isObject(header)))
}

// isObject reports whether an import makes a file of an entry in a layer of an ostree-native container or of a
// container build. Extended attributes have no file of their own.
func isObject(header *tar.Header) bool {
	return header.Typeflag == tar.TypeReg && !strings.Contains(header.Name, ".file-xattrs")
}

// inflateAll decompresses, hashes and writes the objects of an archive repository. After an error it continues to
// receive, so that the sender is not blocked.
func (f *fetching) inflateAll(to *sumWriter) (failed error) {
	decoder := inflate.New()
	for data := range f.filez {
		content, size, err := filezContent(data)
		if err == nil && failed == nil && content.Len() > 0 {
			err = errors.Join(decoder.Decode(to, content, uint64(size)), to.next(true))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// withOutput calls f with a writer to a new file.
func (f *fetching) withOutput(path string, with func(*sumWriter) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := &sumWriter{file: file, dir: f.dir, sum: sha256.New(), buffer: make([]byte, bufferSize)}
	defer func() { err = errors.Join(err, w.file.Close()) }()
	return with(w)
}

// sumWriter writes contents to a file, one after the other, and hashes each.
type sumWriter struct {
	file   *os.File
	dir    string // each content becomes a file below it; "": all are in one
	files  int    // number of files below dir
	sum    hash.Hash
	buffer []byte // for io.CopyBuffer
}

// Write implements io.Writer.
func (w *sumWriter) Write(p []byte) (int, error) {
	w.sum.Write(p)
	return w.file.Write(p)
}

// next ends a content. object reports whether it gets a file of its own.
func (w *sumWriter) next(object bool) error {
	sum := hex.EncodeToString(w.sum.Sum(nil))
	w.sum.Reset()
	if w.dir == "" || !object {
		return nil
	}
	// Objects of the same content stay apart.
	name := w.file.Name()
	w.files++
	to := filepath.Join(w.dir, sum[:2], fmt.Sprintf("%s-%s-%d", sum[2:], filepath.Base(name), w.files))
	err := errors.Join(w.file.Close(), os.Rename(name, to))
	if err != nil {
		return err
	}
	w.file, err = os.Create(name)
	return err
}

// makeShards makes the directories of a repository's objects.
func makeShards(dir string) error {
	for n := range 256 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%02x", n)), 0o755); err != nil {
			return err
		}
	}
	return nil
}
