package initramfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// resolvConf is the file with the name servers (resolv.conf(5)).
const resolvConf = "/etc/resolv.conf"

// netifState is systemd-networkd's state of all links, with lines KEY=VALUE (sd-network).
// Without systemd-resolved it is the only file with the name servers.
const netifState = "/run/systemd/netif/state"

// resolver writes the initramfs's resolv.conf with the name servers of the network, unless it
// exists. The initramfs's /etc is in memory. No name servers are not an error, because an image
// may be named by an IP address.
func resolver() error {
	if _, err := os.Stat(resolvConf); err == nil {
		return nil
	}
	text := ""
	for _, known := range []string{"/run/systemd/resolve/resolv.conf", "/run/NetworkManager/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"} {
		if found, err := os.ReadFile(known); err == nil {
			text = string(found)
			break
		}
	}
	if text == "" {
		state, err := os.ReadFile(netifState)
		if err != nil {
			return nil
		}
		text = fromNetif(string(state))
	}
	// It may be a dangling symbolic link, which cannot be written through.
	if err := os.Remove(resolvConf); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return deferred("cannot set the name servers: %w", err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(resolvConf), 0o755), os.WriteFile(resolvConf, []byte(text), 0o644)); err != nil {
		return deferred("cannot set the name servers: %w", err)
	}
	return nil
}

// fromNetif converts networkd's state to a resolv.conf.
func fromNetif(state string) string {
	var conf strings.Builder
	for line := range strings.Lines(state) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "DNS":
			for server := range strings.FieldsSeq(value) {
				server, _, _ = strings.Cut(server, "#") // the name for DNS over TLS
				conf.WriteString("nameserver " + server + "\n")
			}
		case "DOMAINS":
			conf.WriteString("search " + value + "\n")
		}
	}
	return conf.String()
}
