package enable_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
)

// dir is a directory as an enable.Tree.
type dir string

func (d dir) Look(path string) (hostfiles.File, bool, error) { return hostfiles.Read(string(d), path) }

func (d dir) Names(at string) (names []string, err error) {
	all, err := os.ReadDir(filepath.Join(string(d), at))
	for _, e := range all {
		names = append(names, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}

// system returns a directory with the given files by path. In paths, E, U and P stand for the
// administrator's units, the image's units and the image's presets. A text that begins with -> is
// a link.
func system(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, long(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, isLink := strings.CutPrefix(text, "->"); isLink {
			err = os.Symlink(long(target), name)
		} else {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func long(name string) string {
	return strings.NewReplacer("E/", enable.Dir+"/", "U/", enable.ImageDir+"/", "P/", "/usr/lib/systemd/system-preset/").Replace(name)
}

// damaged is a tree in which one directory cannot be read.
type damaged struct {
	dir
	at string
}

var errDamaged = errors.New("it is damaged")

func (d damaged) Names(at string) ([]string, error) {
	if at == d.at {
		return nil, errDamaged
	}
	return d.dir.Names(at)
}

// TestResolveDamagedImage (P58): a unit is not disabled by links of the image that cannot be
// read.
func TestResolveDamagedImage(t *testing.T) {
	const wants = "E/m.target.wants"
	root := system(t, map[string]string{"U/a.service": service("WantedBy=m.target"), wants + "/other.service": "->U/other.service"})
	image := damaged{dir(root), "/usr" + long(wants)}
	got, err := enable.Resolve(enable.System{Etc: dir(root), Image: image}, enable.Units{Wishes: wishes("disable a.service")}, nil)
	if !errors.Is(err, errDamaged) {
		t.Errorf("entries %v, error %v", got.Entries, err)
	}
}

// service returns a unit file with the section [Install].
func service(install string) string {
	return "[Unit]\nDescription=a\n[Service]\nExecStart=/bin/true\n[Install]\n" + install + "\n"
}

// TestResolveAgainstSystemctl (P58): wishes for units of an image lead to the same links as the real
// systemctl.
func TestResolveAgainstSystemctl(t *testing.T) {
	if _, err := exec.LookPath("systemctl"); err != nil {
		t.Fatal("systemctl is needed: apt-get install systemd")
	}
	wanted := service("WantedBy=m.target")
	type files = map[string]string
	for name, c := range map[string]struct {
		files files
		do    string // systemctl commands, each with one unit
		other bool   // the result differs from systemctl's: see TestResolve
	}{
		"a unit of the image":              {files{"U/a.service": service("WantedBy=m.target\nRequiredBy=n.target\nAlias=b.service")}, "enable a.service", false},
		"the administrator's goes first":   {files{"U/a.service": wanted, "E/a.service": service("WantedBy=n.target")}, "enable a.service", false},
		"a drop-in":                        {files{"U/a.service": wanted, "U/a.service.d/x.conf": "[Install]\nWantedBy=n.target\n"}, "enable a.service", false},
		"a drop-in of the administrator's": {files{"U/a.service": wanted, "U/a.service.d/x.conf": "[Install]\nWantedBy=n.target\n", "E/a.service.d/x.conf": "[Install]\nWantedBy=\nWantedBy=o.target\n"}, "enable a.service", false},
		"an instance":                      {files{"U/a@.service": service("WantedBy=m.target %i.target\nAlias=b@.service")}, "enable a@x.service", false},
		"an instance with a file":          {files{"U/a@.service": wanted, "U/a@x.service": service("WantedBy=n.target")}, "enable a@x.service", false},
		"a drop-in of an instance":         {files{"U/a@.service": wanted, "U/a@.service.d/x.conf": "[Install]\nRequiredBy=n.target\n", "U/a@x.service.d/y.conf": "[Install]\nWantedBy=o.target\n"}, "enable a@x.service", false},
		"a default instance":               {files{"U/a@.service": service("WantedBy=m.target\nDefaultInstance=d")}, "enable a@.service", false},
		"an alias of the image":            {files{"U/a.service": wanted, "U/b.service": "->a.service"}, "enable b.service", false},
		"with others":                      {files{"U/a.service": service("WantedBy=m.target\nAlso=a.socket"), "U/a.socket": service("WantedBy=sockets.target\nAlso=a.service")}, "enable a.service", false},
		"with one that is not there":       {files{"U/a.service": service("WantedBy=m.target\nAlso=a.socket")}, "enable a.service", false},
		"with one that is masked":          {files{"U/a.service": service("WantedBy=m.target\nAlso=a.socket"), "U/a.socket": "->/dev/null"}, "enable a.service", false},
		"enabled already, by another path": {files{"U/a.service": wanted, "E/m.target.wants/a.service": "->../../../../usr/lib/systemd/system/a.service"}, "enable a.service", false},
		"static":                           {files{"U/a.service": "[Service]\nExecStart=/bin/true\n"}, "enable a.service", false},
		"masked":                           {files{"U/a.service": "->/dev/null"}, "enable a.service", false},
		"empty":                            {files{"U/a.service": ""}, "enable a.service", false},
		"masked in /etc":                   {files{"U/a.service": wanted, "E/a.service": "->/dev/null"}, "enable a.service", false},
		"not there":                        {files{"U/b.service": wanted}, "enable a.service", false},
		"no instance":                      {files{"U/a@.service": wanted}, "enable a@.service", false},
		"an alias that is taken":           {files{"U/a.service": service("Alias=b.service"), "E/b.service": "->/usr/lib/systemd/system/c.service", "U/c.service": wanted}, "enable a.service", false},
		"disabled": {files{"U/a.service": wanted, "E/m.target.wants/a.service": "->U/a.service", "E/o.target.requires/a.service": "->../../../../usr/lib/systemd/system/a.service",
			"E/z.service": "->U/a.service", "U/b.service": wanted, "E/m.target.wants/b.service": "->U/b.service"}, "disable a.service", false},
		"disabled with others": {files{"U/a.service": service("WantedBy=m.target\nAlso=c.socket"), "U/c.socket": service("WantedBy=sockets.target"), "E/m.target.wants/a.service": "->U/a.service",
			"E/sockets.target.wants/c.socket": "->U/c.socket", "E/sockets.target.wants/other.socket": "->U/c.socket"}, "disable a.service", false},
		"one instance disabled":     {files{"U/a@.service": wanted, "E/m.target.wants/a@x.service": "->U/a@.service", "E/m.target.wants/a@y.service": "->U/a@.service"}, "disable a@x.service", false},
		"all instances disabled":    {files{"U/a@.service": wanted, "E/m.target.wants/a@x.service": "->U/a@.service", "E/m.target.wants/a@y.service": "->U/a@.service"}, "disable a@.service", false},
		"an alias disabled":         {files{"U/a.service": wanted, "U/b.service": "->a.service", "E/m.target.wants/a.service": "->U/a.service"}, "disable b.service", false},
		"enabled and disabled":      {files{"U/a.service": service("WantedBy=m.target\nAlso=b.service"), "U/b.service": wanted}, "enable a.service,disable b.service", false},
		"disabled, and not there":   {files{"E/m.target.wants/a.service": "->U/a.service"}, "disable a.service", false},
		"an alias in /etc":          {files{"U/a.service": wanted, "E/b.service": "->U/a.service"}, "enable b.service", true},
		"preset, without a rule":    {files{"U/a.service": wanted}, "preset a.service", false},
		"preset to be enabled":      {files{"U/a.service": wanted, "P/50-a.preset": "# a rule\nenable a.*\ndisable *\n"}, "preset a.service", false},
		"preset to be disabled":     {files{"U/a.service": wanted, "P/50-a.preset": "disable [!b].service\n", "P/60-a.preset": "enable *\n", "E/m.target.wants/a.service": "->U/a.service"}, "preset a.service", false},
		"preset, the first rule":    {files{"U/a.service": wanted, "P/50-a.preset": "enable a.service\n", "P/40-a.preset": "disable *\n"}, "preset a.service", false},
		"preset, replaced in /etc":  {files{"U/a.service": wanted, "P/50-a.preset": "enable a.service\n", "/etc/systemd/system-preset/50-a.preset": "disable *\n"}, "preset a.service", false},
		"preset of instances":       {files{"U/a@.service": wanted, "P/50-a.preset": "enable a@.service x y\ndisable *\n"}, "preset a@.service", false},
		"preset of one of these":    {files{"U/a@.service": wanted, "P/50-a.preset": "enable a@.service x y\ndisable *\n"}, "preset a@y.service", false},
		"preset of none of these":   {files{"U/a@.service": wanted, "P/50-a.preset": "enable a@.service x y\ndisable *\n", "E/m.target.wants/a@z.service": "->U/a@.service"}, "preset a@z.service", false},
		"preset of Ignition's left": {files{"U/a.service": wanted, "P/50-a.preset": "disable *\n", "/etc/systemd/system-preset/20-ignition.preset": "enable a.service\n"}, "preset a.service", true},
		"unmasked":                  {files{"U/a.service": wanted, "E/a.service": "->/dev/null"}, "unmask a.service", false},
		"an empty file, unmasked":   {files{"U/a.service": wanted, "E/a.service": ""}, "unmask a.service,enable a.service", false},
		"unmasked and enabled":      {files{"U/a.service": wanted, "E/a.service": "->/dev/null"}, "unmask a.service,enable a.service", false},
		"unmasked, not masked":      {files{"U/a.service": wanted, "E/a.service": service("WantedBy=n.target")}, "unmask a.service", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := system(t, c.files)
			units := enable.Units{Wishes: wishes(c.do)}
			got, err := enable.Resolve(enable.System{Etc: dir(root), Image: dir(root)}, units, nil)
			if err != nil {
				t.Fatal(err)
			}
			links := linksIn(t, root)
			for _, e := range got.Entries {
				if links[e.Path] = e.Target; e.Kind == hostfiles.KindAbsent {
					delete(links, e.Path)
				}
			}
			var failure error
			var out []byte
			for command := range strings.SplitSeq(c.do, ",") {
				text, err := exec.Command("systemctl", append([]string{"--root=" + root}, strings.Fields(command)...)...).CombinedOutput()
				out, failure = append(out, text...), errors.Join(failure, err)
			}
			want := linksIn(t, root)
			if same := (failure != nil) == (got.Err() != nil) && maps.Equal(links, want); same == c.other {
				t.Errorf("links %v, %v; systemctl makes %v, %v\n%s", links, got.Err(), want, failure, out)
			}
		})
	}
}

// TestExplicitLast: what a MachineConfig states about a unit itself overrides presets, and statements about a template
// or a unit with it in Also=, in whatever order. systemctl, asked the same, has the same result: for a machine's first
// boot by preset-all with Ignition's preset file, later by presets before all else.
func TestExplicitLast(t *testing.T) {
	if _, err := exec.LookPath("systemctl"); err != nil {
		t.Fatal("systemctl is needed: apt-get install systemd")
	}
	wanted, none := service("WantedBy=m.target"), map[string]string{}
	both := map[string]string{"E/a.service": service("WantedBy=m.target\nAlso=b.socket"), "E/b.socket": service("WantedBy=sockets.target")}
	template := map[string]string{"E/a@.service": wanted}
	linked := map[string]string{"E/a@.service": wanted, "E/m.target.wants/a@x.service": "->../a@.service", "E/m.target.wants/a@y.service": "->E/a@.service"}
	for name, c := range map[string]struct {
		files    map[string]string
		wishes   string
		commands string // of systemctl; "": Ignition's preset file, and preset-all
		want     map[string]string
	}{
		"an instance of a template":            {template, "preset a@.service,enable a@x.service", "preset a@.service,enable a@x.service", map[string]string{"E/m.target.wants/a@x.service": "E/a@.service"}},
		"the same on a first boot":             {template, "preset a@.service,enable a@x.service", "", map[string]string{"E/m.target.wants/a@x.service": "E/a@.service"}},
		"an instance that was enabled":         {linked, "preset a@.service,enable a@x.service", "preset a@.service,enable a@x.service", map[string]string{"E/m.target.wants/a@x.service": "E/a@.service"}},
		"an instance of a disabled template":   {linked, "disable a@.service,enable a@x.service", "disable a@.service,enable a@x.service", map[string]string{"E/m.target.wants/a@x.service": "E/a@.service"}},
		"a disabled instance":                  {template, "enable a@x.service,disable a@y.service,preset a@.service", "preset a@.service,disable a@y.service,enable a@x.service", map[string]string{"E/m.target.wants/a@x.service": "E/a@.service"}},
		"a unit in Also=":                      {both, "enable a.service,preset b.socket", "preset b.socket,enable a.service", map[string]string{"E/m.target.wants/a.service": "E/a.service", "E/sockets.target.wants/b.socket": "E/b.socket"}},
		"the same in Also= on a first boot":    {both, "enable a.service,preset b.socket", "", map[string]string{"E/m.target.wants/a.service": "E/a.service", "E/sockets.target.wants/b.socket": "E/b.socket"}},
		"in Also= of one that is preset":       {both, "preset a.service,enable b.socket", "preset a.service,enable b.socket", map[string]string{"E/sockets.target.wants/b.socket": "E/b.socket"}},
		"in Also= of a disabled one":           {both, "disable a.service,enable b.socket", "disable a.service,enable b.socket", map[string]string{"E/sockets.target.wants/b.socket": "E/b.socket"}},
		"disabled, in Also= of an enabled one": {both, "disable b.socket,enable a.service", "enable a.service,disable b.socket", map[string]string{"E/m.target.wants/a.service": "E/a.service"}},
		"disabled instance in Also=":           {map[string]string{"E/a.service": service("WantedBy=m.target\nAlso=b@x.service"), "E/b@.service": wanted}, "disable b@.service,enable a.service", "enable a.service,disable b@.service", map[string]string{"E/m.target.wants/a.service": "E/a.service"}},
		"disabled default instance":            {map[string]string{"E/a@.service": service("WantedBy=m.target\nDefaultInstance=d")}, "enable a@.service,disable a@d.service", "enable a@.service,disable a@d.service", none},
		"presets that disagree": {map[string]string{"E/a.service": service("WantedBy=m.target\nAlso=b.socket"), "E/b.socket": service("WantedBy=sockets.target"), "P/10-b.preset": "enable b.*\n"},
			"preset b.socket,preset a.service", "preset a.service,preset b.socket", map[string]string{"E/sockets.target.wants/b.socket": "E/b.socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(c.files)
			files["P/99-none.preset"] = "disable *\n"
			root := system(t, files)
			asked := wishes(c.wishes)
			var results []map[string]string
			for range 2 {
				got, err := enable.Resolve(enable.System{Etc: dir(root), Image: dir(root)}, enable.Units{Wishes: asked}, nil)
				if err = errors.Join(err, got.Err()); err != nil {
					t.Fatal(err)
				}
				links := linksIn(t, root)
				for _, e := range got.Entries {
					if links[e.Path] = e.Target; e.Kind == hostfiles.KindAbsent {
						delete(links, e.Path)
					}
				}
				results = append(results, absolute(links))
				slices.Reverse(asked)
			}
			commands := strings.Split(c.commands, ",")
			if c.commands == "" {
				commands = []string{"preset-all"}
				preset := ""
				for _, w := range asked {
					if name, instance, isInstance := strings.Cut(w.Name, "@x."); isInstance {
						preset += "enable " + name + "@." + instance + " x\n"
					} else if w.State == enable.Enabled {
						preset += "enable " + w.Name + "\n"
					}
				}
				writeFile(t, root+"/etc/systemd/system-preset/20-ignition.preset", preset)
			}
			for _, command := range commands {
				if out, err := exec.Command("systemctl", append([]string{"--root=" + root}, strings.Fields(command)...)...).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
			}
			want := map[string]string{}
			for link, target := range c.want {
				want[long(link)] = long(target)
			}
			if systemd := absolute(linksIn(t, root)); !maps.Equal(systemd, want) {
				t.Errorf("systemctl makes %v, want %v", systemd, want)
			}
			for i, links := range results {
				if !maps.Equal(links, want) {
					t.Errorf("order %d: %v, want %v", i, links, want)
				}
			}
		})
	}
}

// absolute returns links with absolute targets.
func absolute(links map[string]string) map[string]string {
	for link, target := range links {
		if !path.IsAbs(target) {
			links[link] = path.Join(path.Dir(link), target)
		}
	}
	return links
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(path.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// wishes returns the wishes that correspond to systemctl commands.
func wishes(commands string) (all []enable.Wish) {
	for command := range strings.SplitSeq(commands, ",") {
		verb, name, _ := strings.Cut(command, " ")
		w := enable.Wish{Name: name, Unmask: verb == "unmask", State: map[string]enable.State{"enable": enable.Enabled, "disable": enable.Disabled, "preset": enable.Preset}[verb]}
		if last := len(all) - 1; last >= 0 && all[last].Name == name {
			all[last].State = w.State
			continue
		}
		all = append(all, w)
	}
	return all
}

// TestResolve (P58): the result of wishes where systemctl cannot be compared: with entries of the
// target, with links in the image's /usr/etc, and where the result differs.
func TestResolve(t *testing.T) {
	wanted := service("WantedBy=m.target")
	link, absent := "->U/a.service", hostfiles.Absent(path.Join(enable.Dir, "m.target.wants/a.service")).Entry
	enabled := hostfiles.NewLink(absent.Path, enable.ImageDir+"/a.service").Entry
	own := hostfiles.NewFile(enable.Dir+"/a.service", 0o644, []byte(wanted)).Entry
	for name, c := range map[string]struct {
		files   map[string]string
		do      string
		install map[string]string
		asked   []hostfiles.Entry
		want    []hostfiles.Entry
		wrong   string
	}{
		"disabled, enabled in the image":  {map[string]string{"U/a.service": wanted, "/usr" + absent.Path: link}, "disable a.service", nil, nil, []hostfiles.Entry{absent}, ""},
		"an alias in /etc":                {map[string]string{"U/a.service": wanted, "E/b.service": link}, "enable b.service", nil, nil, []hostfiles.Entry{enabled}, ""},
		"as a link of the image's says":   {map[string]string{"U/a.service": wanted, "E/m.target.wants/a.service": "->/lib/systemd/system/a.service"}, "enable a.service", nil, nil, []hostfiles.Entry{hostfiles.NewLink(absent.Path, "/lib/systemd/system/a.service").Entry}, ""},
		"Ignition's preset":               {map[string]string{"U/a.service": wanted, "/etc/systemd/system-preset/20-ignition.preset": "enable *\n", "P/90.preset": "disable *\n", "E/m.target.wants/a.service": link}, "preset a.service", nil, nil, []hostfiles.Entry{absent}, ""},
		"a file that is asked for":        {nil, "enable a.service", map[string]string{own.Path: "[Install]\nWantedBy=m.target\n"}, []hostfiles.Entry{own}, []hostfiles.Entry{hostfiles.NewLink(absent.Path, own.Path).Entry}, ""},
		"an empty file that is asked for": {map[string]string{"U/a.service": wanted}, "enable a.service", map[string]string{own.Path: ""}, []hostfiles.Entry{hostfiles.NewFile(own.Path, 0o644, nil).Entry}, nil, "unit a.service: it is masked"},
		"a drop-in that is asked for":     {map[string]string{"U/a.service": service("")}, "enable a.service", map[string]string{own.Path + ".d/x.conf": "[Install]\nWantedBy=m.target\n"}, []hostfiles.Entry{hostfiles.NewFile(own.Path+".d/x.conf", 0o644, []byte("[Install]\nWantedBy=m.target\n")).Entry}, []hostfiles.Entry{enabled}, ""},
		"a file that goes":                {map[string]string{"U/a.service": wanted, "E/a.service": service("WantedBy=n.target")}, "enable a.service", nil, []hostfiles.Entry{hostfiles.Default(own.Path).Entry}, []hostfiles.Entry{enabled}, ""},
		"an old link that goes, and back": {map[string]string{"U/a.service": wanted, "E/m.target.wants/a.service": "->E/a.service"}, "enable a.service", nil, []hostfiles.Entry{hostfiles.Default(absent.Path).Entry}, []hostfiles.Entry{enabled}, ""},
		"a link that is asked for":        {map[string]string{"U/a.service": wanted}, "disable a.service", nil, []hostfiles.Entry{enabled}, nil, "unit a.service: it needs " + absent.Path + " to be absent, and a link is asked for there"},
		"masked by the image":             {map[string]string{"U/a.service": "->/dev/null"}, "unmask a.service", nil, nil, nil, "unit a.service: it is masked by the image"},
		"two wrong":                       {nil, "enable b.service,enable a.service", nil, nil, nil, "unit a.service: there is no such unit\nunit b.service: there is no such unit"},
		"linked from elsewhere":           {map[string]string{"E/a.service": "->/opt/a.service"}, "enable a.service", nil, nil, nil, "its file is a link to /opt/a.service"},
	} {
		t.Run(name, func(t *testing.T) {
			root := system(t, c.files)
			got, err := enable.Resolve(enable.System{Etc: dir(root), Image: dir(root)}, enable.Units{Wishes: wishes(c.do), Install: c.install}, c.asked)
			if err != nil {
				t.Fatal(err)
			}
			wrong := ""
			if err := got.Err(); err != nil {
				wrong = err.Error()
			}
			if !slices.Equal(got.Entries, c.want) || !strings.Contains(wrong, c.wrong) || (wrong == "") != (c.wrong == "") {
				t.Errorf("entries %v, want %v; wrong %q, want %q", got.Entries, c.want, wrong, c.wrong)
			}
		})
	}
}
