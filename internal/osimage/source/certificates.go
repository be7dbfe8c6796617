package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/storage/pkg/configfile"
)

// noCertificates is a directory that does not exist. The library is to look for no certificates by itself.
const noCertificates = "/dev/null.d"

// certificates returns the TLS settings with the certificates for a server, or nil if there are none. It looks in the
// library's places, and reads the same files there: *.crt are of certificate authorities, and *.cert with *.key are
// this host's own. It follows links below the host's root, which the library cannot.
func (h *Host) certificates(host string) (*tls.Config, error) {
	certs := h.search("certs", "d")
	certs.DoNotUseExtensionForConfigName = true
	places, err := configfile.GetSearchPaths(certs)
	if err != nil {
		return nil, err
	}
	for _, place := range append(places.DropInDirectories, h.shown("/etc/docker/certs.d")) {
		dir := filepath.Join(place, host)
		entries, err := h.entries(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return h.certificatesIn(dir, entries)
	}
	return nil, nil
}

// entries reads one of the library's directories.
func (h *Host) entries(dir string) ([]fs.DirEntry, error) {
	at, err := h.place(dir)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(at)
}

func (h *Host) certificatesIn(dir string, entries []fs.DirEntry) (*tls.Config, error) {
	config := &tls.Config{}
	names := map[string]bool{}
	for _, entry := range entries {
		names[entry.Name()] = true
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		base := strings.TrimSuffix(entry.Name(), filepath.Ext(path))
		var err error
		switch filepath.Ext(path) {
		case ".crt":
			err = h.trust(config, path)
		case ".cert":
			if !names[base+".key"] {
				return nil, fmt.Errorf("%s has no key beside it, %s.key; a CA's certificate is named *.crt", path, base)
			}
			err = h.present(config, path, filepath.Join(dir, base+".key"))
		case ".key":
			if !names[base+".cert"] {
				return nil, fmt.Errorf("%s has no certificate beside it, %s.cert", path, base)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return config, nil
}

// trust adds a CA's certificate to those of the system. A file that is not there, though it was listed, is a
// link to nothing, which the library skips too.
func (h *Host) trust(config *tls.Config, path string) error {
	text, err := h.readDropIn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if config.RootCAs == nil {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return fmt.Errorf("cannot read the certificates that the system trusts: %w", err)
		}
	}
	config.RootCAs.AppendCertsFromPEM(text)
	return nil
}

// present adds a certificate of this host and its key.
func (h *Host) present(config *tls.Config, path, keyPath string) error {
	text, err := h.readDropIn(path)
	if err != nil {
		return err
	}
	key, err := h.readDropIn(keyPath)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(text, key)
	if err != nil {
		return fmt.Errorf("cannot use %s with its key: %w", path, err)
	}
	config.Certificates = append(config.Certificates, pair)
	return nil
}
