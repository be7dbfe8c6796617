package authored_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v3 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/test/tools/sample"
)

func TestParseEveryVersion(t *testing.T) {
	for _, version := range []string{"2.0.0", "2.1.0", "2.2.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"} {
		member := `"path":"/etc/motd","mode":420`
		if version[0] == '2' {
			member += `,"filesystem":"root"`
		}
		config, problems := authored.ParseIgnition(fmt.Appendf(nil, `{"ignition":{"version":%q},"storage":{"files":[{%s,"contents":{"source":"data:,hi"}}]}}`, version, member))
		if len(problems) > 0 {
			t.Errorf("%s: %v", version, problems)
			continue
		}
		if f := config.Storage.Files; config.Ignition.Version != ignition.Version || len(f) != 1 || f[0].Path != "/etc/motd" || *f[0].Mode != 0o644 || *f[0].Contents.Source != "data:,hi" {
			t.Errorf("%s: %+v", version, config)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                               ".ignition.version: it is missing",
		`[]`:                               ": it is an array, not an object",
		`{"ignition":7}`:                   ".ignition: it is a number, not an object",
		`{"ignition":{"version":3.4}}`:     ".ignition.version: it is a number, not a string",
		`{"ignition":{"version":"1"}}`:     ".ignition.version: ",
		`{"ignition":{"version":"2.3.0"}}`: ".ignition.version: of version 2 only 2.0.0 to 2.2.0",
		`{"ignition":{"version":"3.7.0"}}`: ".ignition.version: ",
		`{"ignition":{"version":"3.0.0"},"kernelArguments":{"shouldExist":["x"]}}`:                                                                 ".kernelArguments: unknown member",
		`{"ignition":{"version":"3.6.0"},"storage":{"files":[{"path":"/a","future":1}]}}`:                                                          ".storage.files[0].future: unknown member",
		`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"},{"path":"/b","mode":"0644","overwrite":"yes"}]}}`:                       ".storage.files[1].overwrite: it is a string, not true or false",
		`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/b","mode":4.5}]}}`:                                                          ".storage.files[0].mode: it is the number 4.5, not a whole number",
		`{"ignition":{"version":"3.2.0"},"storage":{"files":{}}}`:                                                                                  ".storage.files: it is an object, not an array",
		`{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":[true]}]}}`:                                         ".passwd.users[0].sshAuthorizedKeys[0]: it is true, not a string",
		`{"ignition":{"version":"3.4.0"},"kernelArguments":["a"]}`:                                                                                 ".kernelArguments: it is an array, not an object",
		`{"ignition":{"version":"3.6.0"},"systemd":{"units":[{"name":"a.service","enabled":1}]}}`:                                                  ".systemd.units[0].enabled: it is the number 1, not true or false",
		`{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a.service"},{"name":"b.service","mask":"no"}]}}`:                             ".systemd.units[1].mask: it is a string, not true or false",
		`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"a"}]}}`:                                                                      ".storage.files[0].path: ",
		`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"},{"path":"/a"}]}}`:                                                       ".storage.files[1]: ",
		`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"a","filesystem":"root"}]}}`:                                                  ".storage.files[0]",
		`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","filesystem":"data"}]}}`:                                                 `.storage.files[0].filesystem: only the file system root is supported, not "data"`,
		`{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"a.network","contents":"x"}]}}`:                                              "networkd",
		`{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core"},{"name":"other"}]}}`:                                                   `.passwd.users[1]: only the user core is supported, not "other"`,
		`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","filesystem":"root"},{"path":"/a","filesystem":"root","append":true}]}}`: `.storage.files[1]: "/a" is there before, and appended to`,
		`{"ignition":{"version":"2.2.0"},"nonsense":{}}`:                                                                                           "nonsense",
	} {
		_, problems := authored.ParseIgnition([]byte(in))
		if !problems.Failed() || !strings.Contains(text(problems), want) {
			t.Errorf("%s\n%s\nwant %s", in, text(problems), want)
		}
	}
}

func TestBounds(t *testing.T) {
	for list, n := range map[string]int{"links": 5_001, "files": 50_001} {
		raw := `{"ignition":{"version":"3.4.0"},"storage":{"` + list + `":[` + strings.Repeat("{},", n-1) + `{}]}}`
		if _, problems := authored.ParseIgnition([]byte(raw)); len(problems) != 1 || !strings.Contains(text(problems), fmt.Sprintf("it has %d ", n)) {
			t.Errorf("%s: %.500s", list, text(problems))
		}
	}
}

func text(problems problem.Report) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&b, "%s: %s\n", p.Path, p.Message)
	}
	return b.String()
}

// In version 2 the last of several entries wins.
func TestVersion2Repetitions(t *testing.T) {
	config := parse(t, `{"ignition":{"version":"2.2.0"},
"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","b"]},{"name":"core","sshAuthorizedKeys":["b","c"]}]},
"storage":{"files":[{"filesystem":"root","path":"/a","contents":{"source":"data:,1"}},{"filesystem":"root","path":"/b"},{"filesystem":"root","path":"/a","contents":{"source":"data:,2"}}]},
"systemd":{"units":[{"name":"x.service","contents":"[Service]\n","dropins":[{"name":"a.conf","contents":"[Service]\n"},{"name":"b.conf","contents":"[Unit]\n"}]},
 {"name":"x.service","contents":"[Unit]\n","dropins":[{"name":"b.conf","contents":"[Service]\n"}]}]}}`)
	if f := config.Storage.Files; len(f) != 2 || f[0].Path != "/a" || *f[0].Contents.Source != "data:,2" {
		t.Errorf("files %+v", f)
	}
	if u := config.Systemd.Units; len(u) != 1 || *u[0].Contents != "[Unit]\n" || len(u[0].Dropins) != 2 || *u[0].Dropins[0].Contents != "[Service]\n" || u[0].Dropins[1].Name != "a.conf" {
		t.Errorf("units %+v", u)
	}
	if u := config.Passwd.Users; len(u) != 1 || !reflect.DeepEqual(u[0].SSHAuthorizedKeys, []types.SSHAuthorizedKey{"b", "c", "a"}) {
		t.Errorf("users %+v", u)
	}
}

// TestVersion2Keys: duplicate keys are removed.
func TestVersion2Keys(t *testing.T) {
	config := parse(t, `{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","b","a"]}]}}`)
	if u := config.Passwd.Users; len(u) != 1 || !reflect.DeepEqual(u[0].SSHAuthorizedKeys, []types.SSHAuthorizedKey{"a", "b"}) {
		t.Errorf("users %+v", u)
	}
}

// TestVersion2Order: the order is reversed, like in the machine-config operator.
func TestVersion2Order(t *testing.T) {
	node := func(path string) string { return `{"filesystem":"root","path":"` + path + `"}` }
	config := parse(t, `{"ignition":{"version":"2.2.0"},"storage":{"files":[`+strings.Join([]string{node("/a"), node("/b"), node("/b"), node("/c")}, ",")+`],
"directories":[`+node("/x")+`,`+node("/y")+`]},"systemd":{"units":[{"name":"a.service"},{"name":"b.service"}]}}`)
	var got []string
	for _, f := range config.Storage.Files {
		got = append(got, f.Path)
	}
	for _, d := range config.Storage.Directories {
		got = append(got, d.Path)
	}
	for _, u := range config.Systemd.Units {
		got = append(got, u.Name)
	}
	if want := []string{"/c", "/b", "/a", "/x", "/y", "b.service", "a.service"}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func parse(t *testing.T, in string) ignition.Config {
	t.Helper()
	config, problems := authored.ParseIgnition([]byte(in))
	if problems.Failed() {
		t.Fatalf("%s\n%s", in, text(problems))
	}
	return config
}

// file returns a config with one file that has these members.
func file(t *testing.T, members string) ignition.Config {
	t.Helper()
	return parse(t, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a",`+members+`}]}}`)
}

func TestMergedFile(t *testing.T) {
	const gz = `"contents":{"source":"data:;base64,H4sIAAAAAAAAA8vIBACsKpPYAgAAAA==","compression":"gzip","verification":{"hash":"sha256-8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"}}`
	for _, c := range []struct{ parent, child, want string }{
		{`"mode":384,"contents":{"source":"data:,1"}`, `"contents":{"source":"data:,2"}`, `{"contents":{"source":"data:,2"},"mode":384,"path":"/a"}`},
		{gz, `"contents":{"source":"data:,2"}`, `{"contents":{"source":"data:,2"},"path":"/a"}`},
		{gz, `"mode":384`, `{` + gz + `,"mode":384,"path":"/a"}`},
		{`"contents":{"source":"data:,1"}`, `"mode":384`, `{"contents":{"source":"data:,1"},"mode":384,"path":"/a"}`},
	} {
		merged := ignition.Marshal(ignition.Merge(file(t, c.parent), file(t, c.child)))
		var got, want any
		if err := json.Unmarshal(merged, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[`+c.want+`]}}`), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s over %s:\n%s\nwant\n%s", c.child, c.parent, merged, c.want)
		}
	}
}

// random returns valid configs in which paths and names often collide.
func random(r *rand.Rand, kind func(path string) int) ignition.Config {
	c := ignition.Empty()
	used := map[string]bool{}
	for range r.IntN(6) {
		node := types.Node{Path: fmt.Sprintf("/p%d", r.IntN(5))}
		if used[node.Path] {
			continue
		}
		used[node.Path] = true
		text := fmt.Sprintf("data:,%d", r.IntN(100))
		switch kind(node.Path) {
		case 0:
			c.Storage.Directories = append(c.Storage.Directories, types.Directory{Node: node})
		case 1:
			c.Storage.Links = append(c.Storage.Links, types.Link{Node: node, LinkEmbedded1: types.LinkEmbedded1{Target: &text}})
		default:
			f := types.File{Node: node}
			if r.IntN(2) == 0 {
				f.Contents.Source = &text
			} else {
				mode := r.IntN(0o777)
				f.Mode = &mode
			}
			c.Storage.Files = append(c.Storage.Files, f)
		}
	}
	for i := range r.IntN(3) {
		text, mask := fmt.Sprintf("[Unit]\n#%d", r.IntN(9)), r.IntN(2) == 0
		u := types.Unit{Name: fmt.Sprintf("u%d.service", (i+r.IntN(2))%3), Mask: &mask}
		if len(c.Systemd.Units) > 0 && c.Systemd.Units[0].Name == u.Name {
			continue
		}
		if r.IntN(2) == 0 {
			u.Contents = &text
		}
		u.Dropins = []types.Dropin{{Name: fmt.Sprintf("%d.conf", r.IntN(3)), Contents: &text}}
		c.Systemd.Units = append(c.Systemd.Units, u)
	}
	if r.IntN(2) == 0 {
		c.Passwd.Users = []types.PasswdUser{{Name: "core", SSHAuthorizedKeys: []types.SSHAuthorizedKey{types.SSHAuthorizedKey(fmt.Sprint("key", r.IntN(4)))}}}
	}
	if r.IntN(3) == 0 {
		c.KernelArguments.ShouldExist = []types.KernelArgument{types.KernelArgument(fmt.Sprint("k", r.IntN(4)))}
	}
	return c
}

// naive merges like Ignition, one config after the other. Contents that are replaced are removed
// first.
func naive(configs []ignition.Config) ignition.Config {
	result := ignition.Empty()
	for _, c := range configs {
		replaced := map[string]bool{}
		for _, f := range c.Storage.Files {
			replaced[f.Path] = f.Contents.Source != nil
		}
		result.Storage.Files = slices.Clone(result.Storage.Files)
		for i, f := range result.Storage.Files {
			if replaced[f.Path] {
				result.Storage.Files[i].Contents = types.Resource{}
			}
		}
		result = v3.Merge(result, c)
	}
	return result
}

func TestMergeIsIgnitions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range sample.Rounds(2000) {
		var configs []ignition.Config
		for range r.IntN(6) {
			configs = append(configs, random(r, func(string) int { return r.IntN(4) }))
		}
		before, _ := json.Marshal(configs)
		got, want := string(ignition.Marshal(ignition.Merge(configs...))), string(ignition.Marshal(naive(configs)))
		if got != want {
			t.Fatalf("%s\nmerged to\n%s\nnot\n%s", before, got, want)
		}
		if after, _ := json.Marshal(configs); string(after) != string(before) {
			t.Fatalf("the configs were changed:\n%s\n%s", before, after)
		}
	}
}

// Merging a part first changes nothing as long as the entries at a path have the same kind. (A link
// between two files hides the earlier file only if the link is merged before the later one.)
func TestIgnitionMergeIsAssociative(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range sample.Rounds(2000) {
		kind := func(path string) int { return int(path[2] - '0') }
		a, b, c := random(r, kind), random(r, kind), random(r, kind)
		left := ignition.Merge(ignition.Merge(a, b), c)
		right := ignition.Merge(a, ignition.Merge(b, c))
		if l, r := string(ignition.Marshal(left)), string(ignition.Marshal(right)); l != r {
			t.Fatalf("(a+b)+c\n%s\na+(b+c)\n%s", l, r)
		}
	}
}

func TestDown(t *testing.T) {
	plain := parse(t, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","mode":420,"overwrite":true,"contents":{"source":"data:,hi"}}]},
"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]}}`)
	for _, version := range authored.IgnitionVersions() {
		raw, problems := authored.WriteIgnition(plain, version)
		if len(problems) > 0 {
			t.Errorf("%s: %s", version, text(problems))
			continue
		}
		back, problems := authored.ParseIgnition(raw)
		if len(problems) > 0 || !strings.Contains(string(raw), `"version":"`+version+`"`) || string(ignition.Marshal(back)) != string(ignition.Marshal(plain)) {
			t.Errorf("%s: %s\n%s", version, text(problems), raw)
		}
	}
}

func TestDownRefusesWhatIsLost(t *testing.T) {
	for _, c := range []struct{ config, since, before, want string }{
		{`"kernelArguments":{"shouldExist":["a"]}`, "3.3.0", "3.2.0", ".kernelArguments: unknown member"},
		{`"storage":{"luks":[{"name":"x","device":"/dev/x","keyFile":{"source":"data:,x"}}]}`, "3.2.0", "3.1.0", ".storage.luks: unknown member"},
		{`"storage":{"luks":[{"name":"x","device":"/dev/x","discard":true,"keyFile":{"source":"data:,x"}}]}`, "3.4.0", "3.3.0", ".storage.luks[0].discard: unknown member"},
		{`"ignition":{"version":"3.5.0","proxy":{"httpProxy":"http://p"}}`, "3.1.0", "3.0.0", ".ignition.proxy: unknown member"},
	} {
		config := `{"ignition":{"version":"3.5.0"},` + c.config + `}`
		if strings.Contains(c.config, `"ignition"`) {
			config = `{` + c.config + `}`
		}
		parsed := parse(t, config)
		if _, problems := authored.WriteIgnition(parsed, c.since); len(problems) > 0 {
			t.Errorf("%s as %s: %s", config, c.since, text(problems))
		}
		if raw, problems := authored.WriteIgnition(parsed, c.before); raw != nil || !strings.Contains(text(problems), c.want) {
			t.Errorf("%s as %s: %s, want %s", config, c.before, text(problems), c.want)
		}
	}
}

// The time is linear in the size of the config, also for a large config of version 2 with an error.
func TestLargeVersion2(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 20,000 files, twice")
	}
	for _, last := range []string{"/etc/last", "not/absolute"} {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, `{"filesystem":"root","path":"/etc/%d","contents":{"source":"data:,x"}},`, i)
		}
		raw := `{"ignition":{"version":"2.2.0"},"storage":{"files":[` + b.String() + `{"filesystem":"root","path":"` + last + `"}]}}`
		start := time.Now()
		config, problems := authored.ParseIgnition([]byte(raw))
		if last[0] == '/' && (problems.Failed() || len(config.Storage.Files) != 20_001) || last[0] != '/' && !strings.Contains(text(problems), "path not absolute") {
			t.Errorf("%d files, %s", len(config.Storage.Files), text(problems))
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	}
}

// TestAddress: URLs are shown without possible secrets.
func TestAddress(t *testing.T) {
	for source, want := range map[string]string{
		"https://host.example:8443/a/b": "https://host.example:8443/a/b",
		"https://host/dir/?sig=x#y":     "https://host/dir/",
		"https://host?sig=x":            "https://host",
		"https://u:p@host/a@b?x=@":      "https://host/a@b",
		"https://u:p@host":              "https://host",
		"http://[2001:db8::1]/a#x":      "http://[2001:db8::1]/a",
		"s3://bucket/key?versionId=x":   "s3://bucket/key",
		"arn:aws:s3:::bucket/key?x":     "arn:aws:s3:::bucket/key",
		"data:,secret":                  "a data URL",
		"":                              "",
	} {
		if got := ignition.Address(source); got != want {
			t.Errorf("%s is shown as %s, want %s", source, got, want)
		}
	}
}
