package ignition

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v30 "github.com/coreos/ignition/v2/config/v3_0/types"
	v31 "github.com/coreos/ignition/v2/config/v3_1/types"
	v32 "github.com/coreos/ignition/v2/config/v3_2/types"
	v33 "github.com/coreos/ignition/v2/config/v3_3/types"
	v34 "github.com/coreos/ignition/v2/config/v3_4/types"
	v3 "github.com/coreos/ignition/v2/config/v3_5"
	v35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/vcontext/report"
)

// FuzzParseOf: the parsers find what Ignition's own find.
func FuzzParseOf(f *testing.F) {
	for _, version := range []string{"3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"} {
		for _, rest := range []string{
			``, `,"storage":{"files":[{"path":"/a","mode":420,"contents":{"source":"data:,x"}},{"path":"/a"},{"path":"b","Path":"c"}],"nonsense":{}}`,
			`,"storage":{"links":[{"path":"/a","target":"/b"}],"files":[{"path":"/a/b"},null]},"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]"},{"name":"x"}]}`,
			`,"kernelArguments":{"shouldExist":["a","a"]},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","a"]}]}`,
			`,"storage":{"files":[{"Path":"/a","mode":420,"contents":{"source":"data:,x\\\\\""}}]}`, `,"storage":{"files":[{"p\u0061th":"/a" , "mode" : 420}]}`,
			`,"storage":5`, `,"storage":{"luks":[{"name":"a"}],"disks":[{"device":"/dev/a","partitions":[{"label":"a"},{"label":"a"}]}]}`,
			`,"systemd":{"units":[{"name":"a.service","contents":"x"}]},"storage":{"files":[{"path":"/etc/systemd/system/a.service"}]}`,
		} {
			f.Add(version, `{"ignition":{"version":"`+version+`"}`+rest+`}`)
		}
	}
	f.Fuzz(func(t *testing.T, version, text string) {
		if found, wrong := VersionOf([]byte(text)); wrong.Failed() || found != version {
			return
		}
		got, gotReport, gotErr := parseOf(version)([]byte(text))
		want, wantReport, wantErr := v3.ParseCompatibleVersion([]byte(text))
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) || !slices.Equal(texts(gotReport), texts(wantReport)) {
			t.Errorf("%s\n%v\n%s\n%v\nwant\n%v\n%s\n%v", text, got, strings.Join(texts(gotReport), "\n"), gotErr, want, strings.Join(texts(wantReport), "\n"), wantErr)
		}
	})
}

// TestNamesOf: no two names of members differ only in case, on which spelled relies.
func TestNamesOf(t *testing.T) {
	for _, config := range []any{v30.Config{}, v31.Config{}, v32.Config{}, v33.Config{}, v34.Config{}, v35.Config{}} {
		names, lower := namesOf(reflect.TypeOf(config), map[string]bool{}), map[string]string{}
		for name := range names {
			if other, there := lower[strings.ToLower(name)]; there {
				t.Errorf("%T: %s and %s", config, name, other)
			}
			lower[strings.ToLower(name)] = name
		}
		if !names["path"] || !names["sshAuthorizedKeys"] || len(names) < 50 {
			t.Errorf("%T: %v", config, names)
		}
	}
}

// texts returns the entries of a report, sorted: Ignition's order of unknown members is random. That lines may be
// wrong, because null stands for an object, is of no interest.
func texts(r report.Report) (all []string) {
	for _, e := range r.Entries {
		if strings.HasPrefix(e.Message, "context tree does not match content tree") {
			continue
		}
		all = append(all, fmt.Sprintf("%v %s: %s", e.Kind, e.Context, e.Message))
	}
	slices.Sort(all)
	return all
}

// BenchmarkParse compares the parsers with Ignition's own, for a config of version 3.2 with 100 files.
func BenchmarkParse(b *testing.B) {
	file := `{"path":"/etc/example/%d","mode":420,"contents":{"source":"data:,` + strings.Repeat("%%20example", 100) + `"}}`
	var files []string
	for i := range 100 {
		files = append(files, fmt.Sprintf(file, i))
	}
	text := []byte(`{"ignition":{"version":"3.2.0"},"storage":{"files":[` + strings.Join(files, ",") + `]}}`)
	for name, parse := range map[string]parser[Config]{"own": parseOf("3.2.0"), "ignition": v3.ParseCompatibleVersion} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
