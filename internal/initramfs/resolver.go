package initramfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// resolvConf is where programs find their name servers (resolv.conf(5)).
const resolvConf = "/etc/resolv.conf"

// netifState is what systemd-networkd knows of all links together, as lines
// KEY=VALUE (sd-network). Without systemd-resolved nobody else tells the servers.
const netifState = "/run/systemd/netif/state"

// resolver lets names be looked up by the network's servers where the initramfs
// does not say which to use. Its /etc is memory. No servers at all are no error:
// images may come from an address.
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
	// Not through a link that leads nowhere.
	if err := os.Remove(resolvConf); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return later("cannot set the name servers: %w", err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(resolvConf), 0o755), os.WriteFile(resolvConf, []byte(text), 0o644)); err != nil {
		return later("cannot set the name servers: %w", err)
	}
	return nil
}

// fromNetif makes a resolv.conf of networkd's state.
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
