package initramfs

import (
	"os"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// trust returns environment variables that make Go's TLS trust the certificates of the system
// (crypto/x509: SSL_CERT_FILE, SSL_CERT_DIR): its bundle and the directories that the bundle is
// made from. The directories are needed because the tool that adds an administrator's
// certificates to the bundle runs only in the started system. trust returns nothing if the
// system has no bundle or the variables are already set.
func trust(root string) []string {
	if os.Getenv("SSL_CERT_FILE")+os.Getenv("SSL_CERT_DIR") != "" {
		return nil
	}
	file := firstIn(root,
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
		"/etc/ssl/certs/ca-certificates.crt",                // Debian
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/etc/ssl/cert.pem",
	)
	if file == "" {
		return nil
	}
	var dirs []string
	for _, dir := range []string{"/etc/pki/ca-trust/source/anchors", "/usr/share/pki/ca-trust-source/anchors", "/usr/local/share/ca-certificates"} {
		if found := firstIn(root, dir); found != "" {
			dirs = append(dirs, found)
		}
	}
	environment := []string{"SSL_CERT_FILE=" + file}
	if len(dirs) > 0 {
		environment = append(environment, "SSL_CERT_DIR="+strings.Join(dirs, ":"))
	}
	return environment
}

// firstIn returns the path of the first of the files that exists in the system, or "" if none
// does.
func firstIn(root string, names ...string) string {
	for _, name := range names {
		if found, err := hostfiles.ResolveIn(root, name); err == nil {
			return found
		}
	}
	return ""
}
