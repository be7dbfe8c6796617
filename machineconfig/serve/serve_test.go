package serve_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"machine-pivot/kargs"
	"machine-pivot/machineconfig"
	"machine-pivot/machineconfig/serve"
)

// input is what a server under test serves.
type input struct {
	mu     sync.Mutex
	stamp  string
	spec   string // of the worker's MachineConfig
	err    error
	cert   *tls.Certificate
	loads  int
	logged []string
}

func (in *input) set(change func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	change()
}

func (in *input) load(context.Context) (serve.Content, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.loads++
	if in.err != nil {
		return serve.Content{}, in.err
	}
	all, report := machineconfig.Decode("a.json", []byte(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
"metadata":{"name":"a","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":`+in.spec+`}`), machineconfig.Rules{KernelArguments: kargs.DefaultPolicy()})
	if report.Failed() {
		return serve.Content{}, report.Err("it")
	}
	merged, err := machineconfig.Merge(all, machineconfig.Images{})
	if err == nil {
		err = merged.Render("worker")
	}
	return serve.Content{Roles: map[string]*machineconfig.MachineConfig{"worker": merged}, Certificate: in.cert}, err
}

// testServer is a server under test and its input.
type testServer struct {
	*serve.Server
	in  *input
	url string
}

func server(t testing.TB, change func(*input)) testServer {
	t.Helper()
	in := &input{spec: `{"kernelArguments":["nosmt"]}`}
	if change != nil {
		change(in)
	}
	s := &serve.Server{
		MaxConnections: 4096,
		Load:           in.load,
		Stamp:          func() (string, error) { in.mu.Lock(); defer in.mu.Unlock(); return in.stamp, nil },
		Log:            func(line string) { in.set(func() { in.logged = append(in.logged, line) }) },
	}
	if err := s.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	return testServer{s, in, web.URL}
}

func (s testServer) get(t testing.TB, path string, header http.Header) (int, http.Header, string) {
	t.Helper()
	return s.do(t, http.MethodGet, path, header)
}

func (s testServer) do(t testing.TB, method, path string, header http.Header) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequest(method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

func TestRequests(t *testing.T) {
	s := server(t, nil)
	code, header, body := s.get(t, "/config/worker", http.Header{})
	if code != 200 || header.Get("Content-Length") != fmt.Sprint(len(body)) || header.Get("Vary") != "Accept" || header.Get("ETag") == "" {
		t.Fatalf("%d %v", code, header)
	}
	tag := header.Get("ETag")
	for _, c := range []struct {
		method, path, match string
		status, bytes       int
	}{
		{"HEAD", "/config/worker", "", 200, 0},
		{"GET", "/config/worker", tag, 304, 0},
		{"GET", "/config/worker", `"other"`, 200, len(body)},
		{"GET", "/config/nobody", "", 404, -1},
		{"GET", "/config/", "", 404, -1},
		{"GET", "/config/worker/x", "", 404, -1},
		{"GET", "/config/..%2fworker", "", 404, -1},
		{"GET", "/", "", 404, -1},
		{"POST", "/config/worker", "", 405, -1},
		{"DELETE", "/config/worker", "", 405, -1},
		{"GET", "/healthz", "", 200, 3},
	} {
		header := http.Header{}
		if c.match != "" {
			header.Set("If-None-Match", c.match)
		}
		status, _, body := s.do(t, c.method, c.path, header)
		if status != c.status || c.bytes >= 0 && len(body) != c.bytes {
			t.Errorf("%+v: %d with %d bytes", c, status, len(body))
		}
	}
	other, _, again := s.get(t, "/config/worker", http.Header{"Accept": {"application/vnd.coreos.ignition+json;version=3.4.0"}})
	if other != 200 || again == body {
		t.Errorf("%d %s", other, again)
	}
}

// What a version has no words for is refused, with the place.
func TestNotInThatVersion(t *testing.T) {
	s := server(t, func(in *input) {
		in.spec = `{"config":{"ignition":{"version":"3.4.0"},"storage":{"luks":[{"name":"x","device":"/dev/x","keyFile":{"source":"data:,x"}}]}}}`
	})
	code, _, body := s.get(t, "/config/worker", http.Header{})
	if code != http.StatusNotAcceptable || !strings.Contains(body, "LUKS is not supported on 2.2") {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := s.get(t, "/config/worker", http.Header{"Accept": {"application/vnd.coreos.ignition+json;version=3.5.0"}}); code != 200 {
		t.Error(code)
	}
}

// A change is taken once it has settled; a bad one leaves what was served.
func TestWatch(t *testing.T) {
	s := server(t, nil)
	_, first, _ := s.get(t, "/config/worker", http.Header{})
	ticks := make(chan time.Time)
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.Watch(ctx, ticks) })
	tick := func() { ticks <- time.Time{}; ticks <- time.Time{}; ticks <- time.Time{} } // the third is taken when the second is done
	tick()
	s.in.set(func() { s.in.stamp, s.in.spec = "1", `{"kernelArguments":["quiet"]}` })
	ticks <- time.Time{}
	s.in.set(func() {
		if s.in.loads != 1 {
			t.Error("loaded before it settled")
		}
	})
	tick()
	_, second, _ := s.get(t, "/config/worker", http.Header{})
	if second.Get("ETag") == first.Get("ETag") {
		t.Error("the change is not served")
	}
	s.in.set(func() { s.in.stamp, s.in.err = "2", errors.New("line 7 is wrong") })
	tick()
	tick()
	_, third, _ := s.get(t, "/config/worker", http.Header{})
	_, _, health := s.get(t, "/healthz", nil)
	if third.Get("ETag") != second.Get("ETag") || health != "ok, but the newest input is not served: line 7 is wrong\n" {
		t.Errorf("%q", health)
	}
	s.in.set(func() { s.in.err = nil; s.in.spec = `{}` })
	tick()
	stop()
	watching.Wait()
	_, fourth, _ := s.get(t, "/config/worker", http.Header{})
	if _, _, health := s.get(t, "/healthz", nil); fourth.Get("ETag") == third.Get("ETag") || health != "ok\n" {
		t.Errorf("%q", health)
	}
	if told := strings.Count(strings.Join(s.in.logged, "\n"), "not reloaded"); told != 1 {
		t.Errorf("the failure was told %d times: %q", told, s.in.logged)
	}
}

func TestFirstLoadMustSucceed(t *testing.T) {
	s := &serve.Server{
		Load:  func(context.Context) (serve.Content, error) { return serve.Content{}, errors.New("bad") },
		Stamp: func() (string, error) { return "", nil }, Log: func(string) {},
	}
	if err := s.Reload(context.Background()); err == nil {
		t.Error("no error")
	}
}

// Over TLS, with the newest certificate, until the context ends.
func TestServeTLS(t *testing.T) {
	source := httptest.NewTLSServer(nil)
	defer source.Close()
	s := server(t, func(in *input) { in.cert = &source.TLS.Certificates[0] })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	response, err := source.Client().Get("https://" + listener.Addr().String() + "/config/worker")
	if err != nil || response.StatusCode != 200 {
		t.Fatal(err, response)
	}
	response.Body.Close()
	source.Client().CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// More connections than allowed wait, and come in when others are over.
func TestConnectionLimit(t *testing.T) {
	s := server(t, nil)
	s.MaxConnections = 2
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	var idle []net.Conn
	for range 2 { // they come in, and ask for nothing
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	answered := make(chan error, 1)
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	go func() {
		response, err := client.Get("http://" + listener.Addr().String() + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	select {
	case <-answered:
		t.Error("a third connection was served")
	case <-time.After(100 * time.Millisecond):
	}
	idle[0].Close()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	idle[1].Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Thousands of machines boot at once, each with a connection of its own.
func TestLoad(t *testing.T) {
	machines := 3000
	if testing.Short() {
		machines = 300
	}
	s := server(t, func(in *input) {
		in.spec = `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/large","contents":{"source":"data:,` + strings.Repeat("x", 100_000) + `"}}]}}}`
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	took := make([]time.Duration, machines)
	errs := make([]error, machines)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() {
			begun := time.Now()
			errs[i] = boot("http://" + listener.Addr().String() + "/config/worker")
			took[i] = time.Since(begun)
		})
	}
	all.Wait()
	total := time.Since(start)
	runtime.ReadMemStats(&after)
	stop()
	if err := errors.Join(append(errs, <-ended)...); err != nil {
		t.Fatalf("%.500s", err)
	}
	slices.Sort(took)
	t.Logf("%d first boots of 100 kB in %s: half within %s, 99%% within %s; %.0f kB allocated for each, client and server",
		machines, total.Round(time.Millisecond), took[machines/2].Round(time.Millisecond), took[machines*99/100].Round(time.Millisecond),
		float64(after.TotalAlloc-before.TotalAlloc)/float64(machines)/1024)
	if s.in.loads != 1 {
		t.Errorf("loaded %d times", s.in.loads)
	}
}

// boot asks for a config as a machine does.
func boot(url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != 200 || n < 100_000) {
		err = fmt.Errorf("%s with %d bytes", response.Status, n)
	}
	return err
}
