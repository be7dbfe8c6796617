package rpmostree_test

import (
	"errors"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// TestEntriesThatEqualDefaults: what is asked for wins over the next image's default also where the booted image has
// the same by default, which libostree's merge takes for unmodified.
func TestEntriesThatEqualDefaults(t *testing.T) {
	for _, name := range []string{"ostree", "direct"} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			shell(t, h, `umask 022; cd usr/etc
echo keep >f; echo keep >gone; echo same >mode; chmod 600 mode; echo same >owner; chown 7:8 owner; ln -s one link
mkdir -m 700 dir; echo old >dir/old; mkdir -m 711 less; echo old >less/old; mkdir -m 711 linked; echo old >linked/old; mkdir -m 700 above; echo keep >above/f
mkdir -p w.wants; ln -s /usr/lib/x.service w.wants/x.service
echo x >local; printf 'root:hash:1::::::\n' >shadow; chmod 600 shadow
cp -a f gone mode owner link dir less linked above w.wants local shadow ../../etc/; echo mine >../../etc/local`)
			h.PutIntoNext(map[string]string{
				"usr/etc/f": "new", "usr/etc/mode": "same\n", "usr/etc/owner": "same\n", "usr/etc/dir/new": "new", "usr/etc/above/new": "new",
				"usr/etc/local": "new\n", "usr/etc/shadow": "root:*:1::::::\n",
			})
			h.LinkIntoNext(map[string]string{"usr/etc/link": "two", "usr/etc/linked": "dir"})
			r := request(t, h)
			owned := hostfiles.NewFile("/etc/owner", 0o644, []byte("same\n"))
			owned.UID, owned.GID = 7, 8
			r.Entries = []hostfiles.File{
				hostfiles.NewFile("/etc/f", 0o644, []byte("keep\n")), hostfiles.NewFile("/etc/gone", 0o644, []byte("keep\n")),
				hostfiles.NewFile("/etc/mode", 0o600, []byte("same\n")), owned, hostfiles.NewLink("/etc/link", "one"),
				hostfiles.NewDirectory("/etc/dir", 0o700), hostfiles.NewDirectory("/etc/less", 0o711), hostfiles.NewDirectory("/etc/linked", 0o711),
				hostfiles.NewFile("/etc/above/f", 0o644, []byte("keep\n")), hostfiles.NewLink("/etc/w.wants/x.service", "/usr/lib/x.service"),
				hostfiles.Default("/etc/local"), hostfiles.NewPassword("root", "hash"),
			}
			before := list(t, h)
			e := merging(h)[name]
			must(t, errors.Join(e.Preflight(t.Context(), pivot.Plan{}), e.Prepare(t.Context(), r)))
			must(t, e.Commit(t.Context(), r))
			if after := list(t, h); after != before {
				t.Errorf("the old /etc is\n%s\nwas\n%s", after, before)
			}
			h.Boot()
			want := `above d 755 0:0
above/f f 644 0:0
above/new f 644 0:0
default f 644 0:0
dir d 700 0:0
dir/new f 644 0:0
f f 644 0:0
gone f 644 0:0
less d 711 0:0
link l 777 0:0 one
linked d 711 0:0
linked/old f 644 0:0
local f 644 0:0
mode f 600 0:0
owner f 644 7:8
shadow f 600 0:0
w.wants d 755 0:0
w.wants/x.service l 777 0:0 /usr/lib/x.service
keep
new
root:hash
`
			got := shell(t, h, `cd etc && find . ! -name . ! -path './containers*' -printf '%P %y %m %U:%G %l\n' | sed 's/ $//' | sort && cat f local && cut -d: -f1,2 shadow`)
			if got != want {
				t.Errorf("the new /etc is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestWaysOfEntries: the directories above an entry are those of the next system, with its links. A link that only the
// booted image has is not followed any more.
func TestWaysOfEntries(t *testing.T) {
	for _, c := range []struct {
		name       string
		old        string            // makes the booted /usr/etc and /etc
		next       map[string]string // contents of the next image
		links      map[string]string
		entry      hostfiles.File
		want, says string // what is in the next /etc, or the error
	}{
		{name: "a link of both images", old: "mkdir real; ln -s real d", next: map[string]string{"usr/etc/real/x": ""}, links: map[string]string{"usr/etc/d": "real"},
			want: "d l real, real d, real/f f, real/x f"},
		{name: "an absolute link of both", old: "mkdir real; ln -s /etc/real d", next: map[string]string{"usr/etc/real/x": ""}, links: map[string]string{"usr/etc/d": "/etc/real"},
			want: "d l /etc/real, real d, real/f f, real/x f"},
		{name: "a link of the next image", next: map[string]string{"usr/etc/real/x": ""}, links: map[string]string{"usr/etc/d": "real"},
			want: "d l real, real d, real/f f, real/x f"},
		{name: "a link instead of a directory", old: "mkdir d; echo y >d/g", next: map[string]string{"usr/etc/real/x": ""}, links: map[string]string{"usr/etc/d": "real"},
			want: "d l real, real d, real/f f, real/x f"},
		{name: "a directory instead of a link", old: "mkdir real; ln -s real d", next: map[string]string{"usr/etc/real/x": "", "usr/etc/d/y": ""},
			want: "d d, d/f f, d/y f, real d, real/x f"},
		{name: "a link that the next image lacks", old: "mkdir real; ln -s real d",
			want: "d d, d/f f"},
		{name: "a file instead of a directory", old: "mkdir d; echo y >d/g", next: map[string]string{"usr/etc/d": "file"}, says: "it leads through /usr/etc/d, which is a file"},
		{name: "a directory instead of a file", old: "echo y >d", next: map[string]string{"usr/etc/d/y": ""}, want: "d d, d/f f, d/y f"},
		{name: "a link of the next image out of /etc", links: map[string]string{"usr/etc/d": "/usr/share/d"}, says: "it is /usr/share/d/f in the new system, outside of /etc"},
		{name: "a link to be absent", next: map[string]string{"usr/etc/real/f": "", "usr/etc/real/x": ""}, links: map[string]string{"usr/etc/d": "real"},
			entry: hostfiles.Absent("/etc/d/f"), want: "d l real, real d, real/x f"},
		{name: "to be absent below a link of old", old: "mkdir real; echo r >real/f; ln -s real d", next: map[string]string{"usr/etc/real/f": "", "usr/etc/d/f": "", "usr/etc/d/y": ""},
			entry: hostfiles.Absent("/etc/d/f"), want: "d d, d/y f, real d, real/f f"},
		{name: "a default below a link of old", old: "mkdir real; echo r >real/f; ln -s real d", next: map[string]string{"usr/etc/real/f": "", "usr/etc/d/f": ""},
			entry: hostfiles.Default("/etc/d/f"), want: "d d, d/f f, real d, real/f f"},
	} {
		for _, engine := range []string{"ostree", "direct"} {
			t.Run(c.name+", "+engine, func(t *testing.T) {
				h := hostdir.New(t)
				shell(t, h, "umask 022\ncd usr/etc\n"+c.old+"\ncp -a . ../../etc/")
				h.PutIntoNext(c.next)
				h.LinkIntoNext(c.links)
				r := request(t, h)
				r.Entries = []hostfiles.File{hostfiles.NewFile("/etc/d/f", 0o644, []byte("wanted"))}
				if c.entry.Path != "" {
					r.Entries = []hostfiles.File{c.entry}
				}
				e := merging(h)[engine]
				err := e.Prepare(t.Context(), r)
				if c.says != "" {
					if err == nil || !strings.Contains(err.Error(), c.says) || fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
						t.Errorf("error %v", err)
					}
					return
				}
				must(t, err)
				must(t, e.Commit(t.Context(), r))
				h.Boot()
				got := shell(t, h, `cd etc && find . ! -name . ! -path './containers*' ! -name default -printf '%P %y %l\n' | sed 's/ $//' | sort`)
				if got = strings.ReplaceAll(strings.TrimSpace(got), "\n", ", "); got != c.want {
					t.Errorf("the new /etc has %s, want %s", got, c.want)
				}
			})
		}
	}
}

// TestLocalChanges: a change of the running /etc that libostree's merge could not carry over is named before the commit.
func TestLocalChanges(t *testing.T) {
	for _, c := range []struct {
		name, old, local string
		next             map[string]string
		links            map[string]string
		says             string // "": it is carried over
	}{
		{"a changed file, a directory in the next", "echo x >d", "echo local >d", map[string]string{"usr/etc/d/f": ""}, nil, "cannot carry over /etc/d:"},
		{"a new file", "", "echo local >d", map[string]string{"usr/etc/d/f": ""}, nil, "cannot carry over /etc/d:"},
		{"a new link", "", "ln -s x d", map[string]string{"usr/etc/d/f": ""}, nil, "cannot carry over /etc/d:"},
		{"deep", "mkdir a", "echo local >a/d", map[string]string{"usr/etc/a/d/f": ""}, nil, "cannot carry over /etc/a/d:"},
		{"an unchanged file", "echo x >d", "", map[string]string{"usr/etc/d/f": ""}, nil, ""},
		{"a file in a directory that is a file in the next", "mkdir d; echo x >d/f", "echo local >d/f", map[string]string{"usr/etc/d": ""}, nil, "cannot carry over /etc/d/f:"},
		{"something removed there", "mkdir d; echo x >d/f", "rm d/f", map[string]string{"usr/etc/d": ""}, nil, "cannot carry over /etc/d/f:"},
		{"an unchanged directory", "mkdir d; echo x >d/f", "", map[string]string{"usr/etc/d": ""}, nil, ""},
		{"a new directory", "", "mkdir d; echo x >d/f", map[string]string{"usr/etc/d": ""}, nil, ""},
		{"a link in the next", "mkdir d; echo x >d/f", "echo local >d/f", map[string]string{"usr/etc/e/x": ""}, map[string]string{"usr/etc/d": "e"}, ""},
		{"an absolute link, to the running system", "mkdir d; echo x >d/f", "echo local >d/f", map[string]string{"usr/etc/e/x": ""}, map[string]string{"usr/etc/d": "/etc/e"}, "cannot carry over /etc/d/f:"},
		{"a link to nowhere", "mkdir d; echo x >d/f", "echo local >d/f", nil, map[string]string{"usr/etc/d": "e"}, "cannot carry over /etc/d/f:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			shell(t, h, "umask 022\ncd usr/etc\n"+c.old+"\ncp -a . ../../etc/\ncd ../../etc\n"+c.local)
			h.PutIntoNext(c.next)
			h.LinkIntoNext(c.links)
			r := request(t, h)
			e := merging(h)["ostree"]
			err := e.Prepare(t.Context(), r)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) || fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
					t.Errorf("error %v", err)
				}
				return
			}
			must(t, err)
			must(t, e.Commit(t.Context(), r))
		})
	}
}
