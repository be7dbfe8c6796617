package provision_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/author/provision"
)

func now() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

func address(text string) netip.Addr { return netip.MustParseAddr(text) }

func valid() map[string][]byte {
	data := map[string][]byte{}
	for key, value := range provision.TokenData("secret", "worker", now().Add(time.Hour), "1") {
		data[key] = []byte(value)
	}
	return data
}

func TestParseToken(t *testing.T) {
	got, err := provision.ParseToken(valid())
	want := provision.Token{Pool: "worker", Digest: provision.TokenDigest("secret"), Expires: now().Add(time.Hour), Uses: 1, Grace: provision.DefaultGrace}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range []struct{ key, value, want string }{
		{"pool", "", "pool: it is missing"},
		{"sha256", "", "64 hexadecimal digits"},
		{"sha256", "secret", "64 hexadecimal digits"},
		{"sha256", strings.Repeat("a", 66), "64 hexadecimal digits"},
		{"sha256", strings.Repeat("z", 64), "64 hexadecimal digits"},
		{"expires", "", "expires: "},
		{"expires", "tomorrow", `"tomorrow" is no time`},
		{"uses", "0", "from 1 to 10000"},
		{"uses", "-1", "from 1 to 10000"},
		{"uses", "10001", "from 1 to 10000"},
		{"uses", "many", "nor unlimited"},
		{"grace", "-1s", "no time from 0s to 24h"},
		{"grace", "1y", "no time from 0s to 24h"},
		{"state", "{", "state: it cannot be read"},
		{"state", `{"used":-5}`, "negative"},
		{"state", `{"used":0,"recent":{"x":"2026-05-01T12:00:00Z"}}`, "state: it cannot be read"},
	} {
		data := valid()
		data[c.key] = []byte(c.value)
		if _, err := provision.ParseToken(data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%q: %v", c.key, c.value, err)
		}
	}
	if _, err := provision.ParseToken(nil); err == nil || strings.Count(err.Error(), ";") != 2 {
		t.Errorf("not all problems are named: %v", err)
	}
}

// A token is found by its text and its pool; nothing else finds it.
func TestFindToken(t *testing.T) {
	all := []provision.Token{{Pool: "worker", Digest: provision.TokenDigest("a")}, {Pool: "master", Digest: provision.TokenDigest("b")}, {Pool: "infra", Digest: provision.TokenDigest("a")}}
	for _, c := range []struct {
		secret, pool string
		want         int
	}{
		{"a", "worker", 0}, {"a", "infra", 2}, {"b", "master", 1}, {"b", "worker", -1}, {"a", "master", -1},
		{"", "worker", -1}, {"a", "", -1}, {strings.Repeat("a", 1<<16), "worker", -1},
	} {
		if got := provision.FindToken(all, c.secret, c.pool); got != c.want {
			t.Errorf("%.10q %q: %d, want %d", c.secret, c.pool, got, c.want)
		}
	}
	if a, b := provision.NewToken(), provision.NewToken(); a == b || len(a) != 43 {
		t.Errorf("new tokens are %q and %q", a, b)
	}
}

// TestUse counts the uses of a token through a list of requests.
func TestUseToken(t *testing.T) {
	type request struct {
		from  string
		after time.Duration
		want  provision.Verdict
	}
	for name, c := range map[string]struct {
		uses     int
		requests []request
	}{
		"once, and its retries":       {1, []request{{"10.0.0.1", 0, provision.Count}, {"10.0.0.1", time.Minute, provision.Free}, {"10.0.0.1", 14 * time.Minute, provision.Free}}},
		"replayed from elsewhere":     {1, []request{{"10.0.0.1", 0, provision.Count}, {"10.0.0.2", time.Second, provision.Spent}}},
		"replayed later":              {1, []request{{"10.0.0.1", 0, provision.Count}, {"10.0.0.1", 15 * time.Minute, provision.Spent}}},
		"a retry does not renew it":   {1, []request{{"10.0.0.1", 0, provision.Count}, {"10.0.0.1", 14 * time.Minute, provision.Free}, {"10.0.0.1", 16 * time.Minute, provision.Spent}}},
		"a machine twice":             {2, []request{{"10.0.0.1", 0, provision.Count}, {"10.0.0.1", time.Hour, provision.Count}, {"10.0.0.1", 2 * time.Hour, provision.Spent}}},
		"two machines":                {2, []request{{"10.0.0.1", 0, provision.Count}, {"10.0.0.2", 0, provision.Count}, {"10.0.0.3", 0, provision.Spent}, {"10.0.0.2", 0, provision.Free}}},
		"not counted":                 {0, []request{{"10.0.0.1", 0, provision.Free}, {"10.0.0.2", 48 * time.Hour, provision.Free}}},
		"another server's clock":      {1, []request{{"10.0.0.1", time.Minute, provision.Count}, {"10.0.0.1", 0, provision.Free}}},
		"a clock that is far ahead":   {1, []request{{"10.0.0.1", time.Hour, provision.Count}, {"10.0.0.1", 0, provision.Spent}}},
		"neighbours of a network":     {1, []request{{"fd00::1", 0, provision.Count}, {"fd00::2", 0, provision.Spent}}},
		"a ledger that others filled": {1, []request{{"10.0.0.1", 0, provision.Count}, {"10.0.0.9", 0, provision.Spent}, {"10.0.0.1", 0, provision.Free}}},
	} {
		x := provision.Token{Uses: c.uses, Grace: provision.DefaultGrace}
		for i, r := range c.requests {
			before := fmt.Sprint(x.Ledger)
			verdict, next := x.Use(address(r.from), now().Add(r.after))
			if verdict != r.want {
				t.Errorf("%s: request %d: %d, want %d", name, i, verdict, r.want)
			}
			if fmt.Sprint(x.Ledger) != before {
				t.Errorf("%s: request %d changes the ledger before it is stored", name, i)
			}
			x.Ledger = next
		}
	}
}

// The largest ledger fits into a Secret, and is read as it was written.
func TestLargestLedger(t *testing.T) {
	x := provision.Token{Uses: provision.MaxUses, Grace: provision.DefaultGrace, Ledger: provision.Ledger{Used: provision.MaxUses - 1, Recent: map[netip.Addr]time.Time{}}}
	for i := range provision.MaxUses - 1 {
		x.Ledger.Recent[address(fmt.Sprintf("fd00:1111:2222:3333:4444:5555:6666:%x", i))] = now()
	}
	_, full := x.Use(address("fd00::1"), now())
	text, err := full.JSON()
	if err != nil || len(text) > 1_000_000 || full.Used != provision.MaxUses {
		t.Fatalf("%d bytes, %d uses, %v", len(text), full.Used, err)
	}
	data := valid()
	data[provision.TokenState] = text
	if read, err := provision.ParseToken(data); err != nil || !reflect.DeepEqual(read.Ledger, full) {
		t.Errorf("it is another one when it is read: %v", err)
	}
}
