package snapshot_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/snapshot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// web is a server with fixed responses by path.
type web map[string]string

func (w web) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	body, ok := w[in.URL.Path]
	if !ok {
		http.NotFound(out, in)
		return
	}
	if to, ok := strings.CutPrefix(body, "redirect "); ok {
		out.Header().Set("Location", to)
		out.WriteHeader(http.StatusFound)
		return
	}
	fmt.Fprint(out, strings.ReplaceAll(body, "SERVER", "http://"+in.Host))
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// taker returns a Taker that does not sleep, with a fixed clock.
func taker() *snapshot.Taker {
	taker := snapshot.New(kargs.DefaultPolicy())
	taker.Wait = func(context.Context, time.Duration) error { return nil }
	taker.Now = func() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }
	return taker
}

// mc returns a MachineConfig with an Ignition config that has these members.
func mc(t *testing.T, members string) *authored.MachineConfig {
	t.Helper()
	all, report := authored.Decode("mc.json", []byte(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
"metadata":{"name":"a","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":{"config":`+config(members)+`}}`),
		authored.Rules{KernelArguments: kargs.DefaultPolicy()})
	if len(all) != 1 || report.Failed() {
		t.Fatalf("%s\n%s", members, report)
	}
	return all[0]
}

// config returns an Ignition config with these members. A leading IGNITION{ opens the member
// "ignition" and sets its version.
func config(members string) string {
	if rest, ok := strings.CutPrefix(members, "IGNITION{"); ok {
		return `{"ignition":{"version":"3.4.0",` + rest + `}`
	}
	return `{"ignition":{"version":"3.4.0"},` + members + `}`
}

func merges(urls ...string) string {
	var list []string
	for _, u := range urls {
		list = append(list, `{"source":"`+u+`"}`)
	}
	return `IGNITION{"config":{"merge":[` + strings.Join(list, ",") + `]}}`
}

func fileFrom(contents string) string {
	return `"storage":{"files":[{"path":"/etc/a","mode":420,"contents":{` + contents + `}}]}`
}

// inlined returns the self-contained config of a MachineConfig with these members.
func inlined(t *testing.T, taker *snapshot.Taker, members string) (string, problem.Report, error) {
	t.Helper()
	in := mc(t, members)
	before := string(ignition.Marshal(*in.Spec.Config))
	all, report, err := taker.Inline(context.Background(), []*authored.MachineConfig{in})
	if after := string(ignition.Marshal(*in.Spec.Config)); after != before {
		t.Errorf("the input was changed:\n%s\n%s", before, after)
	}
	if err != nil || report.Failed() {
		return "", report, err
	}
	if remote := ignition.Remote(all[0].Spec.Config); len(remote) > 0 {
		t.Errorf("it still fetches %+v", remote)
	}
	if _, problems := authored.ParseIgnition(ignition.Marshal(*all[0].Spec.Config)); len(problems) > 0 {
		t.Errorf("not valid any more: %v", problems)
	}
	return string(ignition.Marshal(*all[0].Spec.Config)), report, nil
}

// Later configs override earlier ones, a config overrides those that it refers to, and in the end
// files of any depth are inline.
func TestMergesWhatConfigsName(t *testing.T) {
	url := serve(t, web{
		"/first":  config(`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,first"}},{"path":"/etc/b","contents":{"source":"SERVER/text"}}]}`),
		"/second": `{"ignition":{"version":"2.2.0","config":{"append":[{"source":"SERVER/third"}]}},"storage":{"files":[{"filesystem":"root","path":"/etc/a","contents":{"source":"data:,second"}}]}}`,
		"/third":  config(`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,third"}},{"path":"/etc/c","contents":{"source":"data:,third"}}]}`),
		"/text":   "text of b",
	})
	got, report, err := inlined(t, taker(), strings.TrimSuffix(merges(url+"/first", url+"/second"), "}")+`},"storage":{"files":[{"path":"/etc/d","contents":{"source":"`+url+`/text"}}]}`)
	// Translated from version 2, every file has overwrite.
	const want = `{"ignition":{"version":"3.5.0"},"storage":{"files":[` +
		`{"contents":{"source":"data:,second"},"overwrite":true,"path":"/etc/a"},` +
		`{"contents":{"source":"data:,text%20of%20b"},"path":"/etc/b"},` +
		`{"contents":{"source":"data:,third"},"path":"/etc/c"},` +
		`{"contents":{"source":"data:,text%20of%20b"},"path":"/etc/d"}]}}`
	if err != nil || got != want {
		t.Errorf("%v %s\n%s\nwant\n%s", err, report, got, want)
	}
}

func TestReplace(t *testing.T) {
	url := serve(t, web{"/other": config(`"storage":{"files":[{"path":"/etc/other"}]}`)})
	got, _, err := inlined(t, taker(), `IGNITION{"config":{"replace":{"source":"`+url+`/other"}}},"storage":{"files":[{"path":"/etc/own","contents":{"source":"http://127.0.0.1:1/never"}}]}`)
	if err != nil || strings.Contains(got, "/own") || !strings.Contains(got, `"path":"/etc/other"`) {
		t.Errorf("%v\n%s", err, got)
	}
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fmt.Fprint(z, text)
	z.Close()
	return b.String()
}

// The hash is that of the decompressed content, which is inlined.
func TestHashAndCompression(t *testing.T) {
	url := serve(t, web{"/gz": gzipped("hello"), "/plain": "hello", "/binary": strings.Repeat("\xff\x00", 50)})
	sum := fmt.Sprintf("sha256-%x", sha256.Sum256([]byte("hello")))
	for _, c := range []struct{ contents, want string }{
		{`"source":"` + url + `/plain"`, `{"source":"data:,hello"}`},
		{`"source":"` + url + `/plain","verification":{"hash":"` + sum + `"}`, `{"source":"data:,hello","verification":{"hash":"` + sum + `"}}`},
		{`"source":"` + url + `/gz","compression":"gzip","verification":{"hash":"` + sum + `"}`, `{"source":"data:,hello","verification":{"hash":"` + sum + `"}}`},
		{`"source":"` + url + `/binary"`, `{"source":"data:;base64,/wD/AP8A`},
	} {
		got, report, err := inlined(t, taker(), fileFrom(c.contents))
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v\n%s\n%s\nwant %s", c.contents, err, report, got, c.want)
		}
	}
}

// All failures are reported at once, with their places.
func TestRefused(t *testing.T) {
	url := serve(t, web{
		"/page":   "<!DOCTYPE html><html><body>Log in</body></html>",
		"/loop":   config(strings.TrimSuffix(merges("SERVER/loop2"), "}") + `}`),
		"/loop2":  config(strings.TrimSuffix(merges("SERVER/loop"), "}") + `}`),
		"/passwd": "redirect file:///etc/passwd",
		"/ftp":    "redirect ftp://127.0.0.1/x",
		"/round":  "redirect /round",
		"/bad":    config(`"storage":{"files":[{"path":"relative"},{"path":"/run/machine-config-daemon-force"}]}`),
		"/half":   "{",
		"/init":   config(`"kernelArguments":{"shouldExist":["init=/bin/sh"]}`),
		"/deep":   config(`"storage":{"files":[{"path":"/etc/x","contents":{"source":"SERVER/absent"}}]}`),
	})
	zeros := "sha256-" + strings.Repeat("0", 64)
	for _, c := range []struct{ members, want string }{
		{fileFrom(`"source":"` + url + `/absent"`), "mc.json: error: $.spec.config.storage.files[0].contents: cannot use \"" + url + `/absent": the server answers 404 Not Found`},
		{fileFrom(`"source":"` + url + `/half","verification":{"hash":"` + zeros + `"}`), "its content has the hash sha256-"},
		{fileFrom(`"source":"` + url + `/page"`), "the server gave a web page, perhaps one to log in"},
		{fileFrom(`"source":"` + url + `/passwd"`), "the server redirects to file:///etc/passwd"},
		{fileFrom(`"source":"` + url + `/ftp"`), "the server redirects to ftp://127.0.0.1/x"},
		{fileFrom(`"source":"` + url + `/round"`), "the server redirects more than 10 times"},
		{fileFrom(`"source":"` + url + `/half","compression":"gzip"`), "cannot decompress it"},
		{fileFrom(`"source":"s3://bucket/key"`), "cannot fetch s3://bucket/key: only http and https URLs are fetched"},
		{fileFrom(`"source":"tftp://host/key"`), "only http and https"},
		{merges(url + "/page"), "$.spec.config.ignition.config.merge[0]: cannot use \"" + url + `/page": the server gave a web page, not a config`},
		{merges(url + "/half"), "in " + url + "/half: it is not JSON"},
		{merges(url + "/loop"), "the config names itself: " + url + "/loop names " + url + "/loop2 names " + url + "/loop"},
		{merges(url + "/bad"), "in " + url + "/bad: storage.files[0].path: path not absolute"},
		{merges(url + "/init"), "in " + url + `/init: kernelArguments.shouldExist[0]: "init=/bin/sh" `},
		{merges(url + "/deep"), "$.spec.config.ignition.config.merge[0]: in " + url + `/deep: storage.files[0].contents: cannot use "` + url + `/absent": the server answers 404`},
		{merges(*ignition.Inline([]byte(config(fileFrom(`"source":"` + url + `/absent"`)))).Source), "in a data URL: storage.files[0].contents: cannot use"},
	} {
		_, report, err := inlined(t, taker(), c.members)
		if err != nil || !report.Failed() || !strings.Contains(report.String(), c.want) {
			t.Errorf("%s\n%v\n%s\nwant %s", c.members, err, report, c.want)
		}
	}
	both := `"storage":{"files":[{"path":"/etc/a","contents":{"source":"` + url + `/absent"}},{"path":"/etc/b","contents":{"source":"` + url + `/absent2"}}]}`
	if _, report, _ := inlined(t, taker(), both); strings.Count(report.String(), "answers 404") != 2 {
		t.Error(report)
	}
}

// A chain of configs is limited even if each refers to a new URL.
func TestDepth(t *testing.T) {
	var n atomic.Int64
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, config(merges(fmt.Sprintf("http://%s/%d", r.Host, n.Add(1)))))
	}))
	if _, report, _ := inlined(t, taker(), merges(url)); !strings.Contains(report.String(), "more than 10 configs name one another") || n.Load() > 11 {
		t.Errorf("%d fetches\n%s", n.Load(), report)
	}
}

// A tree of configs that grows exponentially is limited, too.
func TestWidth(t *testing.T) {
	all := web{"/9": config(`"storage":{}`)}
	for i := range 9 {
		next := fmt.Sprintf("SERVER/%d", i+1)
		all[fmt.Sprintf("/%d", i)] = config(merges(next+"?a", next+"?b", next+"?c"))
	}
	if _, report, _ := inlined(t, taker(), merges(serve(t, all)+"/0")); !strings.Contains(report.String(), "more than 1000 configs are to be merged") {
		t.Error(report)
	}
}

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		failures int
		status   int
		requests int64
		want     fault.Kind // of the error; 0 for none
	}{
		{3, 503, 4, 0}, {1, 429, 2, 0}, {9, 500, 4, fault.Unavailable},
	} {
		var n atomic.Int64
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if int(n.Add(1)) <= c.failures {
				w.WriteHeader(c.status)
			}
			fmt.Fprint(w, "text")
		}))
		_, report, err := inlined(t, taker(), fileFrom(`"source":"`+url+`"`))
		if n.Load() != c.requests || (err != nil) != (c.want != 0) || err != nil && fault.KindOf(err) != c.want {
			t.Errorf("%+v: %d requests, %v\n%s", c, n.Load(), err, report)
		}
	}
	url := "http://127.0.0.1:1/refused"
	if _, report, err := inlined(t, taker(), fileFrom(`"source":"`+url+`"`)); fault.KindOf(err) != fault.Unavailable || !report.Failed() {
		t.Error(err, report)
	}
}

// TestRetryAfter: a server that asks to be left alone for a while is.
func TestRetryAfter(t *testing.T) {
	var n atomic.Int64
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Retry-After", "40")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "text")
	}))
	patient := taker()
	var waits []time.Duration
	patient.Wait = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	if _, report, err := inlined(t, patient, fileFrom(`"source":"`+url+`"`)); err != nil || len(waits) != 1 || waits[0] < 40*time.Second || waits[0] > time.Minute {
		t.Errorf("waits %v, %v\n%s", waits, err, report)
	}
}

// TestCancelledBetweenTries: the report has the reason for the end of the retries, and the last
// failure.
func TestCancelledBetweenTries(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	cancelled := taker()
	cancelled.Wait = func(context.Context, time.Duration) error { return context.Canceled }
	_, report, err := inlined(t, cancelled, fileFrom(`"source":"`+url+`"`))
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(report.String(), "context canceled (the server answers 503") {
		t.Error(err, report)
	}
}

func TestTooLarge(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 1<<20)
		for range 17 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	if _, report, _ := inlined(t, taker(), fileFrom(`"source":"`+url+`"`)); !strings.Contains(report.String(), "larger than 16777216 bytes") {
		t.Error(report)
	}
	bomb := serve(t, web{"/": gzipped(strings.Repeat("\x00", 17<<20))})
	if _, report, _ := inlined(t, taker(), fileFrom(`"source":"`+bomb+`/","compression":"gzip"`)); !strings.Contains(report.String(), "larger than 16777216 bytes when decompressed") {
		t.Error(report)
	}
}

// A config's certificate authorities are used for its fetches, and configured headers are sent only
// to the host that they are for.
func TestCertificatesAndHeaders(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "token %q", r.Header.Get("X-Token"))
	}))
	defer server.Close()
	file := func(path string) string {
		return `"storage":{"files":[{"path":"/etc/a","contents":{"source":"` + server.URL + path + `","httpHeaders":[{"name":"X-Token","value":"secret"}]}}]}`
	}
	if _, report, _ := inlined(t, taker(), file("/")); !strings.Contains(report.String(), "certificate") {
		t.Errorf("an unknown authority was trusted: %s", report)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	source := *ignition.Inline(ca).Source
	got, report, err := inlined(t, taker(), `IGNITION{"security":{"tls":{"certificateAuthorities":[{"source":"`+source+`"}]}}},`+file("/"))
	if err != nil || !strings.Contains(got, "data:,token%20%22secret%22") || strings.Contains(got, "X-Token") {
		t.Errorf("%v %s\n%s", err, report, got)
	}
	trusting := taker()
	trusting.Roots = string(ca)
	if got, report, err := inlined(t, trusting, file("/")); err != nil || !strings.Contains(got, "secret") {
		t.Errorf("%v %s\n%s", err, report, got)
	}
}

func TestRedirects(t *testing.T) {
	plain := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, "http://"+to+"/x", http.StatusFound)
			return
		}
		fmt.Fprintf(w, "token %q", r.Header.Get("X-Token"))
	}))
	host := strings.TrimPrefix(plain, "http://")
	for to, want := range map[string]string{
		host: "data:,token%20%22secret%22",
		strings.Replace(host, "127.0.0.1", "localhost", 1): "data:,token%20%22%22",
	} {
		got, report, err := inlined(t, taker(), fileFrom(`"source":"`+plain+`/?to=`+to+`","httpHeaders":[{"name":"X-Token","value":"secret"}]`))
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v %s\n%s", to, err, report, got)
		}
	}
	secure := httptest.NewTLSServer(http.RedirectHandler(plain, http.StatusFound))
	defer secure.Close()
	trusting := taker()
	trusting.Roots = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	if _, report, _ := inlined(t, trusting, fileFrom(`"source":"`+secure.URL+`"`)); !strings.Contains(report.String(), "the server redirects from https to http") {
		t.Error(report)
	}
}

func TestLock(t *testing.T) {
	answers := web{"/a": "one", "/b": "two"}
	url := serve(t, answers)
	members := `"storage":{"files":[{"path":"/etc/a","contents":{"source":"` + url + `/a"}},{"path":"/etc/b","contents":{"source":"` + url + `/b"}}]}`
	take := func(lock []byte, accept bool, now int) (string, []byte, problem.Report) {
		t.Helper()
		l, err := snapshot.ParseLock(lock)
		if err != nil {
			t.Fatal(err)
		}
		tk := taker()
		tk.Lock, tk.Accept = l, accept
		tk.Now = func() time.Time { return time.Date(2026, 1, now, 0, 0, 0, 0, time.UTC) }
		got, report, err := inlined(t, tk, members)
		if err != nil {
			t.Fatal(err)
		}
		return got, l.JSON(), report
	}
	first, lock, report := take(nil, false, 1)
	if report.Failed() || !strings.Contains(string(lock), `"url": "`+url+`/a"`) || !strings.Contains(string(lock), "2026-01-01T00:00:00Z") {
		t.Fatalf("%s\n%s", report, lock)
	}
	again, lock2, _ := take(lock, false, 2)
	if again != first || string(lock2) != string(lock) {
		t.Errorf("a second snapshot differs:\n%s\n%s\n%s\n%s", first, again, lock, lock2)
	}
	answers["/b"] = "three"
	_, lock3, report := take(lock, false, 3)
	if !strings.Contains(report.String(), "its content has changed: since 2026-01-01T00:00:00Z it was sha256:") || string(lock3) != string(lock) {
		t.Errorf("%s\n%s", report, lock3)
	}
	third, lock4, report := take(lock, true, 4)
	if report.Failed() || !strings.Contains(third, "data:,three") || !strings.Contains(string(lock4), "2026-01-04") || !strings.Contains(string(lock4), "2026-01-01") {
		t.Errorf("%s\n%s\n%s", report, third, lock4)
	}
	for _, bad := range []string{"{", "[]", `{"version":2}`, `{"version":1,"resources":[{"url":"x","digest":"md5:0"}]}`, `{"version":1,"extra":1}`} {
		if _, err := snapshot.ParseLock([]byte(bad)); fault.KindOf(err) != fault.BadInput {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestSecretsOfURLs: signatures and credentials in URLs are never shown.
func TestSecretsOfURLs(t *testing.T) {
	answers := web{
		"/ok": "text", "/away": "redirect ftp://name:S3CRET@127.0.0.1/x?sig=S3CRET",
		"/config": config(fileFrom(`"source":"SERVER/absent?sig=S3CRET"`)),
		"/self":   config(merges("SERVER/self?sig=S3CRET")),
	}
	url := strings.Replace(serve(t, answers), "//", "//S3CRET:S3CRET@", 1)
	for _, c := range []struct{ members, want string }{
		{fileFrom(`"source":"` + url + `/ok?sig=S3CRET#S3CRET"`), "over http and without"},
		{fileFrom(`"source":"` + url + `/absent?sig=S3CRET"`), `/absent\": the server answers 404`},
		{fileFrom(`"source":"` + url + `/away?sig=S3CRET"`), "the server redirects to ftp://127.0.0.1/x"},
		{fileFrom(`"source":"s3://bucket/key?versionId=S3CRET"`), "cannot fetch s3://bucket/key"},
		{fileFrom(`"source":"http://127.0.0.1:1/?sig=S3CRET"`), "cannot use"},
		{merges(url + "/config?sig=S3CRET"), "/config: storage.files[0].contents: cannot use"},
		{merges(url + "/self?sig=S3CRET"), "the config names itself"},
	} {
		tk := taker()
		tk.Lock = must(snapshot.ParseLock(nil))
		_, report, err := inlined(t, tk, c.members)
		told := fmt.Sprint(report, err, string(tk.Lock.JSON()))
		if strings.Contains(told, "S3CRET") || !strings.Contains(fmt.Sprintf("%q", told), c.want) && !strings.Contains(told, c.want) {
			t.Errorf("%s:\n%s\nwant %s", c.members, told, c.want)
		}
	}
}

func must(lock *snapshot.Lock, err error) *snapshot.Lock {
	if err != nil {
		panic(err)
	}
	return lock
}

// TestLockWithoutQueries: the lock stores URLs without their queries, so a URL can have
// several contents, and a new signature is no change.
func TestLockWithoutQueries(t *testing.T) {
	answers := map[string]string{"a": "one", "b": "two"}
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answers[r.URL.Query().Get("file")]) }))
	take := func(lock, signature string, accept bool) (string, problem.Report) {
		t.Helper()
		tk := taker()
		tk.Lock, tk.Accept = must(snapshot.ParseLock([]byte(lock))), accept
		file := func(name string) string {
			return `{"path":"/etc/` + name + `","contents":{"source":"` + url + `/x?file=` + name + `&sig=` + signature + `"}}`
		}
		_, report, err := inlined(t, tk, `"storage":{"files":[`+file("a")+`,`+file("b")+`]}`)
		if err != nil {
			t.Fatal(err)
		}
		return string(tk.Lock.JSON()), report
	}
	first, report := take("", "S1", false)
	if report.Failed() || strings.Count(first, `"url": "`+url+`/x"`) != 2 || strings.Contains(first, "S1") {
		t.Fatalf("%s\n%s", report, first)
	}
	if again, report := take(first, "S2", false); report.Failed() || again != first {
		t.Errorf("signed anew: %s\n%s", report, again)
	}
	answers["b"] = "three"
	if again, report := take(first, "S3", false); !strings.Contains(report.String(), "its content has changed: since") || again != first {
		t.Errorf("changed: %s\n%s", report, again)
	}
	accepted, report := take(first, "S3", true)
	if report.Failed() || accepted == first || strings.Count(accepted, `"url"`) != 2 {
		t.Errorf("accepted: %s\n%s", report, accepted)
	}
	// Queries in a lock file of an earlier version are removed.
	old := strings.Replace(first, url+`/x"`, url+`/x?file=a&sig=S0"`, 1)
	if again, report := take(old, "S4", true); report.Failed() || strings.Contains(again, "S0") {
		t.Errorf("of an earlier version: %s\n%s", report, again)
	}
}

// One URL has one entry, however its content is used.
func TestLockOfOneURLTwice(t *testing.T) {
	url := serve(t, web{"/gz": gzipped("hello")})
	tk := taker()
	var err error
	if tk.Lock, err = snapshot.ParseLock(nil); err != nil {
		t.Fatal(err)
	}
	_, report, err := inlined(t, tk, `"storage":{"files":[{"path":"/etc/plain","contents":{"source":"`+url+`/gz","compression":"gzip"}},{"path":"/etc/packed","contents":{"source":"`+url+`/gz"}}]}`)
	if err != nil || report.Failed() || strings.Count(string(tk.Lock.JSON()), `"url"`) != 1 {
		t.Errorf("%v %s\n%s", err, report, tk.Lock.JSON())
	}
}

func TestWarnings(t *testing.T) {
	url := serve(t, web{"/a": "one"})
	_, report, _ := inlined(t, taker(), fileFrom(`"source":"`+url+`/a"`))
	if len(report) != 1 || !strings.Contains(report.String(), "over http and without verification.hash") {
		t.Error(report)
	}
}
