// Package attack makes scripted attempts against a listener, as a stranger can who reaches its address.
package attack

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Attempts is how many attempts are made against each listener and each kind of object.
const Attempts = 200

// maxGrown is how much memory a process may take during the attempts, in bytes, with that of the attackers themselves.
const maxGrown = 256 << 20

// Listener is what is attacked.
type Listener struct {
	Name    string
	Address string
	TLS     bool   // whatever its certificate is
	Path    string // of what it serves
	Secret  string // must be in no answer
	// Headers are what nearly is enough, such as the token of somebody else. Half of the attempts have one of them.
	Headers []string
	// Certificates are what nearly is enough for TLS. Each attempt has one of them or none.
	Certificates []tls.Certificate
	// Well is called after the attempts: whether a client that may is served.
	Well func() error
}

// Try makes the attempts, 32 at a time, and prints what came of them. It fails if an answer has the secret, if the process
// keeps memory or goroutines of the attempts, or if the listener does not serve afterwards.
func (l Listener) Try(t *testing.T) {
	t.Helper()
	before, goroutines := memory(), runtime.NumGoroutine()
	var peak uint64
	var mu sync.Mutex
	answered, told := 0, 0
	var all sync.WaitGroup
	slots := make(chan struct{}, 32)
	for n := range Attempts {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			answer := l.one(rand.New(rand.NewPCG(uint64(n), 47)))
			mu.Lock()
			defer mu.Unlock()
			peak = max(peak, memory())
			if answer != "" {
				answered++
			}
			if l.Secret != "" && strings.Contains(answer, l.Secret) {
				told++
			}
		})
	}
	all.Wait()
	if told > 0 {
		t.Errorf("%s: %d of %d answers have the secret", l.Name, told, Attempts)
	}
	if grown := int64(peak) - int64(before); grown > maxGrown {
		t.Errorf("%s: %d MiB of memory", l.Name, grown>>20)
	}
	if err := l.Well(); err != nil {
		t.Errorf("%s: afterwards: %v", l.Name, err)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines+20; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%s: %d goroutines, %d before", l.Name, runtime.NumGoroutine(), goroutines)
			break
		}
	}
	t.Logf("attacked %s: %d attempts, %d answered, %d told the secret, %d MiB of memory at most, with the attackers' own", l.Name, Attempts, answered, told, max(int64(peak)-int64(before), 0)>>20)
}

func memory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// one makes an attempt and returns the answer.
func (l Listener) one(random *rand.Rand) string {
	connection, err := net.DialTimeout("tcp", l.Address, 5*time.Second)
	if err != nil {
		return ""
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(2 * time.Second))
	if l.TLS && random.IntN(8) > 0 { // the others speak no TLS
		config := &tls.Config{InsecureSkipVerify: true}
		if n := random.IntN(len(l.Certificates) + 1); n > 0 {
			config.Certificates = l.Certificates[n-1 : n]
		}
		connection = tls.Client(connection, config)
	}
	for _, part := range l.request(random) {
		if _, err := io.WriteString(connection, part); err != nil {
			break
		}
	}
	answer, _ := io.ReadAll(io.LimitReader(connection, 1<<20)) // until the deadline, if it is not closed
	return string(answer)
}

// request returns the parts of what an attempt sends.
func (l Listener) request(random *rand.Rand) []string {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	method := pick("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "PRI", strings.Repeat("A", 5000))
	path := pick(l.Path, l.Path+"/", l.Path+"%00", l.Path+"/../"+l.Path, "/..//"+l.Path, "//"+l.Path, strings.ToUpper(l.Path), "http://x"+l.Path, "*", "/debug/pprof/heap",
		"/metrics", "/"+strings.Repeat("a/", 4000), l.Path+"?"+strings.Repeat("a=b&", 2000), "/%2e%2e/%2e%2e/etc/shadow", l.Path+"\\..\\")
	version := pick("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "")
	header := pick("", "Host: a\r\nHost: b", "Host: x\r\nAuthorization: Bearer "+strings.Repeat("a", random.IntN(20000)), "Host: x\r\nAuthorization: Bearer\r\nAuthorization: Bearer a",
		"Host: x\r\nX: "+strings.Repeat("y", 1<<20), "Host: x\r\n"+strings.Repeat("X: y\r\n", 20000), "Host: x\r\nContent-Length: 99999999999", "Host: x\r\nContent-Length: -1",
		"Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", "Host: x\r\nTransfer-Encoding: gzip, chunked", "Host: x\r\nTransfer-Encoding: chunked", "Host: x\r\nExpect: 100-continue\r\nContent-Length: 1000000",
		"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "Host: x\r\nRange: bytes=0-,0-,0-,0-", "Host: x\r\n folded: y", "Host: x\r\nA B: c", "Host: \x00")
	if len(l.Headers) > 0 && random.IntN(2) == 0 {
		method, version, header = "GET", "HTTP/1.1", "Host: x\r\n"+pick(l.Headers...)
		if random.IntN(2) == 0 {
			path = l.Path
		}
	}
	body := pick("", "", "5\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\n", "1\r\na\r\n", strings.Repeat("a", 100_000), `{"kind":"AdmissionReview"}`, strings.Repeat("[", 100_000), "\x00\xff\xfe")
	whole := fmt.Sprintf("%s %s %s\r\n%s\r\n\r\n%s", method, path, version, header, body)
	switch random.IntN(6) {
	case 0: // it ends in the middle, and stays open
		return []string{whole[:random.IntN(len(whole))]}
	case 1: // many at once
		return []string{strings.Repeat(whole, 20)}
	case 2: // no HTTP
		junk := make([]byte, random.IntN(100_000))
		for i := range junk {
			junk[i] = byte(random.IntN(256))
		}
		return []string{string(junk)}
	case 3: // the beginning of HTTP/2, and frames that are none
		return []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", strings.Repeat("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", random.IntN(5000)), whole}
	}
	return []string{whole}
}
