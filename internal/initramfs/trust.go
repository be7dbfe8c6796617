package initramfs

import (
	"os"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// trust is the environment by which Go's TLS finds the system's trusted
// certificates (crypto/x509: SSL_CERT_FILE, SSL_CERT_DIR): its bundle, and what an
// administrator put beside it, since the tool that makes the bundle only runs in
// the started system. Where the system has no bundle, or the environment says
// something already, nothing changes.
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

// firstIn is where the first of the names is that the system has; "" if it has none.
func firstIn(root string, names ...string) string {
	for _, name := range names {
		if found, err := hostfiles.ResolveIn(root, name); err == nil {
			return found
		}
	}
	return ""
}
