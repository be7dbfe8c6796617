package initramfs_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
	"machine-pivot/test/tools/need"
)

// childNetwork makes TestNetwork act as the program that calls Network.
const childNetwork = "TEST_NETWORK"

// TestNetwork, in new network and mount namespaces: an existing route is enough, a missing one
// is awaited, and name servers come from the first source that has them.
func TestNetwork(t *testing.T) {
	if os.Getenv(childNetwork) != "" {
		askForNetwork(t)
		return
	}
	needRoot(t)
	for _, program := range []string{"unshare", "ip"} {
		need.Program(t, program)
	}
	const link = "ip link add d0 type bridge; ip link set d0 up; ip addr add 192.0.2.2/24 dev d0; ip -6 addr add 2001:db8::2/64 dev d0 nodad; "
	const state = "mkdir -p /run/systemd/netif; echo 'DNS=192.0.2.53 2001:db8::53#dns.example' >/run/systemd/netif/state; "
	for _, c := range []struct{ name, setup, want string }{
		{"IPv4", link + "ip route add default via 192.0.2.1; " + state, "network: up\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n"},
		{"IPv6", link + "ip -6 route add default via 2001:db8::1; ", "network: up\n"},
		{"resolved knows", link + "ip route add default via 192.0.2.1; mkdir -p /run/systemd/resolve; echo nameserver 192.0.2.54 >/run/systemd/resolve/resolv.conf; ",
			"network: up\nnameserver 192.0.2.54\n"},
		{"unreachable is no route", link + "ip route add unreachable default; ", "nothing in the initramfs starts a network"},
		{"nothing", "", "nothing in the initramfs starts a network"},
		{"no systemd to ask", "mkdir -p /etc/systemd/system; touch /etc/systemd/system/systemd-networkd.service; ", "cannot reach systemd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := elsewhere(t, childNetwork, c.setup, "--net")
			if err != nil || !strings.Contains(out, c.want) {
				t.Errorf("%v, want %q:\n%s", err, c.want, out)
			}
		})
	}
}

func askForNetwork(t *testing.T) {
	err := initramfs.New("/nowhere").Network(context.Background())
	if err != nil {
		if fault.KindOf(err) != fault.Later {
			t.Errorf("of kind %v", fault.KindOf(err))
		}
		os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	conf, _ := os.ReadFile("/etc/resolv.conf")
	os.Stdout.WriteString("network: up\n" + string(conf))
}
