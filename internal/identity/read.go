package identity

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Read reads what the machine with the root directory root has. Only of the running one, with "/", there are addresses.
func Read(root string) Identity {
	i := Identity{Name: readLine(root, "proc/sys/kernel/hostname"), MachineID: readLine(root, "etc/machine-id"), Keys: keys(root)}
	if root == "/" {
		i.Name, i.Interfaces = ofFirstProcess(i.Name), interfaces()
	}
	i.Routes = routes(root)
	return i
}

func readLine(root, name string) string {
	text, _ := os.ReadFile(filepath.Join(root, name))
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// ofFirstProcess returns the host name that the system has: a unit with ProtectHostname= has a copy from its start.
func ofFirstProcess(own string) string {
	found := make(chan string)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this function
		name := own
		if fd, err := unix.Open("/proc/1/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			if unix.Setns(fd, unix.CLONE_NEWUTS) == nil {
				var u unix.Utsname
				if unix.Uname(&u) == nil {
					name = unix.ByteSliceToString(u.Nodename[:])
				}
			}
			_ = unix.Close(fd)
		}
		found <- name
	}()
	return <-found
}

// keys returns the fingerprints of SSH's host keys as ssh-keygen -l shows them.
func keys(root string) map[string]string {
	all := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(root, "etc/ssh/ssh_host_*_key.pub"))
	for _, file := range files {
		fields := strings.Fields(readLine("/", file))
		if len(fields) < 2 {
			continue
		}
		if key, err := base64.StdEncoding.DecodeString(fields[1]); err == nil {
			sum := sha256.Sum256(key)
			all[filepath.Base(file)] = "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
		}
	}
	return all
}

// interfaces returns the addresses by which others reach the machine. Temporary ones (RFC 8981) are left out: they change
// by themselves.
func interfaces() map[string][]string {
	all := map[string][]string{}
	links, _ := net.Interfaces()
	temporary := temporaryAddresses()
	for _, link := range links {
		addresses, _ := link.Addrs()
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || prefix.Addr().IsLoopback() || prefix.Addr().IsLinkLocalUnicast() || slices.Contains(temporary, prefix.Addr()) {
				continue
			}
			all[link.Name] = append(all[link.Name], prefix.String())
		}
		slices.Sort(all[link.Name])
	}
	return all
}

func temporaryAddresses() (all []netip.Addr) {
	eachLine("/", "proc/net/if_inet6", func(fields []string) {
		const flagged = "1" // IFA_F_TEMPORARY, of if_addr.h, in the last digit
		if len(fields) < 5 || !strings.HasSuffix(fields[4], flagged) {
			return
		}
		if raw, err := hex.DecodeString(fields[0]); err == nil {
			if a, ok := netip.AddrFromSlice(raw); ok {
				all = append(all, a)
			}
		}
	})
	return all
}

// routes returns the default routes, each with its gateway and interface.
func routes(root string) (all []string) {
	add := func(gateway, link string, reversed bool) {
		raw, err := hex.DecodeString(gateway)
		if reversed {
			slices.Reverse(raw)
		}
		if a, ok := netip.AddrFromSlice(raw); err == nil && ok && link != "lo" {
			all = append(all, "via "+a.String()+" on "+link)
		}
	}
	const none = "00000000"
	eachLine(root, "proc/net/route", func(f []string) { // in the machine's byte order, which is little on all but s390x
		if len(f) > 7 && f[1] == none && f[7] == none && f[2] != none {
			add(f[2], f[0], !bigEndian())
		}
	})
	eachLine(root, "proc/net/ipv6_route", func(f []string) {
		if anywhere := strings.Repeat(none, 4); len(f) > 9 && f[0] == anywhere && f[1] == "00" && f[4] != anywhere {
			add(f[4], f[9], false)
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}

func bigEndian() bool { return runtime.GOARCH == "s390x" }

func eachLine(root, name string, use func(fields []string)) {
	file, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		use(strings.Fields(lines.Text()))
	}
}
