package rpmostree_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	standin "machine-pivot/test/worlds/rpmostree"
)

// engine returns an engine for the host that appends its notes to notes.
func engine(h *hostdir.Host, always bool, notes *string) *rpmostree.RpmOstree {
	clock := time.Now() // moves only when the retry sleeps
	return &rpmostree.RpmOstree{
		Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run},
		Always: always,
		Retry: retry.Policy{First: time.Second, Cap: time.Second, Bound: 5 * time.Second, Now: func() time.Time { return clock },
			Sleep: func(_ context.Context, d time.Duration) error { clock = clock.Add(d); return nil }},
		Waiting: func(err error, _ retry.Pause) { *notes += err.Error() + "\n" },
		Note:    func(message string) { *notes += message + "\n" },
	}
}

const container = "ostree-unverified-registry:example.com/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"

// request returns a request for the next system, from a native container, with one additional
// argument and one additional file.
func request(t *testing.T, h *hostdir.Host) pivot.Spec {
	t.Helper()
	commit := h.PullCommit()
	h.ImageRef(container, commit)
	state, err := h.Observe(t.Context(), pivot.Target{})
	if err != nil {
		t.Fatal(err)
	}
	return pivot.Spec{
		Merge: state.Booted, Commit: commit,
		Image:   pivot.Image{Name: imageref.FromOrigin(container), Native: true},
		Kargs:   append(state.Booted.Options, "nosmt"),
		Entries: []hostfiles.File{hostfiles.NewFile("/etc/new", 0o644, []byte("x"))},
	}
}

// TestNativeContainer: rpm-ostree rebases to the imported commit without contacting the image's
// registry, which does not exist. If it cannot rebase, libostree makes the deployment. In any
// case the origin names the image, and the image's ref, which rpm-ostree deletes, exists
// (P5).
func TestNativeContainer(t *testing.T) {
	for _, c := range []struct {
		version string
		always  bool
		layers  string
		origin  string // of the booted system
		rebase  string
		note    string
	}{
		{"2026.2", true, "", "", "rebase --lock-finalization --bypass-driver :", ""},
		{"2026.2", false, "strace;", "", "rebase --lock-finalization --bypass-driver :", ""},
		{"2022.10", true, "", "container-image-reference=ostree-unverified-registry:example.com/a:1", "rebase --lock-finalization --bypass-driver :", ""},
		{"2026.2", false, "", "", "", ""},
		{"2021.14", true, "", "", "", "rpm-ostree 2021.14 knows no container images"},
		{"2022.9", true, "", "container-image-reference=ostree-unverified-registry:example.com/a:1", "", "rpm-ostree 2022.9 cannot leave a container image for a commit"},
	} {
		t.Run(fmt.Sprintf("%s always %v %s%s", c.version, c.always, c.layers, c.origin), func(t *testing.T) {
			h := hostdir.New(t)
			h.InstallRpmOstree(standin.Control{Version: c.version})
			if c.layers != "" {
				h.Layer(c.layers)
			}
			if c.origin != "" {
				h.SetOrigin("[origin]\n" + c.origin + "\n")
			}
			var notes string
			e, r := engine(h, c.always, &notes), request(t, h)
			must(t, e.Prepare(t.Context(), r))
			repo, err := ostree.OpenRepo(h.Sysroot().RepoPath())
			must(t, err)
			if kept, err := repo.ResolveRef(standin.ImageRef(container)); err != nil || kept.String() != r.Commit {
				t.Errorf("the image's ref is %s, %v", kept, err)
			}
			must(t, e.Commit(t.Context(), r))
			rebase := c.rebase
			if rebase != "" {
				rebase += r.Commit
			}
			calls, err := standin.Calls(h.Root)
			if err != nil || !strings.Contains(strings.Join(calls, ""), rebase) || strings.Contains(strings.Join(calls, ""), "rebase") != (rebase != "") {
				t.Errorf("calls %q, %v", calls, err)
			}
			if !strings.Contains(notes, c.note) {
				t.Errorf("it does not say %q: %s", c.note, notes)
			}
			h.Boot()
			booted, err := h.Sysroot().Booted()
			if err != nil || h.Version() != "B.2" || !strings.HasSuffix(h.Options(), " nosmt") || string(h.Read("/etc/new")) != "x" {
				t.Errorf("version %s, options %s, %v", h.Version(), h.Options(), err)
			}
			want := "[origin]\ncontainer-image-reference=" + container + "\n"
			if c.layers != "" {
				want += "[packages]\nrequested=" + c.layers + "\n"
			}
			if got := string(booted.Origin.Bytes()); got != want {
				t.Errorf("origin %q, want %q", got, want)
			}
		})
	}
}

// TestLayersOnAContainerTooNew: only rpm-ostree can keep the packages, but this release cannot
// move to the image.
func TestLayersOnAContainerTooNew(t *testing.T) {
	for version, origin := range map[string]string{
		"2021.14": "refspec=os:stable",
		"2022.9":  "container-image-reference=ostree-unverified-registry:example.com/a:1",
	} {
		h := hostdir.New(t)
		h.InstallRpmOstree(standin.Control{Version: version})
		h.SetOrigin("[origin]\n" + origin + "\n[packages]\nrequested=strace;\n")
		var notes string
		err := engine(h, false, &notes).Prepare(t.Context(), request(t, h))
		if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), version) || fault.HintOf(err) == "" {
			t.Errorf("error %v", err)
		}
	}
}

// TestTampered: if the staged deployment is not the requested one at the time of the commit, it
// does not become the next boot.
func TestTampered(t *testing.T) {
	for _, c := range []struct {
		name   string
		tamper func(t *testing.T, h *hostdir.Host, r *pivot.Spec)
		want   string
	}{
		{"unlocked", func(t *testing.T, h *hostdir.Host, _ *pivot.Spec) {
			must(t, os.Remove(filepath.Join(h.Sysroot().RunDir(), ostree.LockFile)))
		}, "lock is none"},
		{"gone", func(t *testing.T, h *hostdir.Host, _ *pivot.Spec) {
			must(t, os.Remove(filepath.Join(h.Sysroot().RunDir(), ostree.StagedFile)))
		}, "nothing is staged"},
		{"another origin", func(t *testing.T, h *hostdir.Host, _ *pivot.Spec) {
			staged, err := h.Sysroot().Staged()
			must(t, err)
			d, err := h.Sysroot().Deployment(staged.Target)
			must(t, err)
			must(t, os.WriteFile(d.Path+".origin", ostree.ContainerOrigin("ostree-unverified-registry:other").Bytes(), 0o644))
		}, "origin is ostree-unverified-registry:other"},
		{"another commit", func(_ *testing.T, _ *hostdir.Host, r *pivot.Spec) { r.Commit = r.Merge.Commit }, "commit is"},
		{"arguments without root=", func(_ *testing.T, _ *hostdir.Host, r *pivot.Spec) { r.Kargs = r.Kargs[1:] }, "root= is missing"},
		{"arguments without root=, as those of the merge deployment", func(_ *testing.T, _ *hostdir.Host, r *pivot.Spec) {
			r.Kargs, r.Merge.Options = r.Kargs[1:], nil
		}, "root= is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			h.InstallRpmOstree(standin.Control{})
			var notes string
			e, r := engine(h, false, &notes), request(t, h)
			must(t, e.Prepare(t.Context(), r))
			c.tamper(t, h, &r)
			if err := e.Commit(t.Context(), r); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			h.Boot()
			if h.Version() != "A.1" || h.Read("/etc/new") != nil {
				t.Errorf("version %s runs", h.Version())
			}
		})
	}
}

// policy has labels only for the files of these tests.
var policy = []string{"/etc/a(/.*)? system_u:object_r:a_t:s0", "/etc/new -- system_u:object_r:new_t:s0", "/etc/keep <<none>>"}

// TestLabels: with SELinux, the entries and the directories created for them get the labels of the
// new system's policy before libostree merges them. Nothing else is labelled.
func TestLabels(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	h.Policy(policy...)
	h.Write("/sys/fs/selinux/enforce", []byte("1"))
	h.Write("/etc/old/file", nil)
	var notes string
	e, r := engine(h, false, &notes), request(t, h)
	for _, name := range []string{"/etc/a/b/c", "/etc/a/d", "/etc/old/new"} {
		r.Entries = append(r.Entries, hostfiles.NewFile(name, 0o644, []byte("x")))
	}
	must(t, e.Prepare(t.Context(), r))
	labels := map[string]string{}
	h.Ostree.Fail = func(_ int, after bool) error {
		for _, name := range []string{"/etc/a", "/etc/a/b", "/etc/a/b/c", "/etc/a/d", "/etc/new", "/etc/old", "/etc/old/new"} {
			label, err := hostfiles.LabelOf(h.Path(name))
			must(t, err)
			labels[name] = label
		}
		return nil
	}
	must(t, e.Commit(t.Context(), r))
	const a, n = "system_u:object_r:a_t:s0", "system_u:object_r:new_t:s0"
	want := map[string]string{"/etc/a": a, "/etc/a/b": a, "/etc/a/b/c": a, "/etc/a/d": a, "/etc/new": n, "/etc/old": "", "/etc/old/new": ""}
	if !maps.Equal(labels, want) {
		t.Errorf("labelled %q, want %q", labels, want)
	}
	h.Boot()
	if label, err := hostfiles.LabelOf(h.Path("/etc/new")); label != n {
		t.Errorf("the new system's file has the label %q (%v), want %q", label, err, n)
	}
}

// TestLabelsAreReadBack: a deployment with wrong labels is refused.
func TestLabelsAreReadBack(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	h.Policy(policy...)
	h.Write("/sys/fs/selinux/enforce", []byte("1"))
	var notes string
	e, r := engine(h, false, &notes), request(t, h)
	must(t, e.Prepare(t.Context(), r))
	h.Ostree.Fail = func(_ int, after bool) error {
		if !after {
			return nil
		}
		all, err := h.Sysroot().Deployments()
		must(t, err)
		return unix.Setxattr(filepath.Join(all[0].Path, "etc/new"), hostfiles.LabelAttribute, []byte("other"), 0)
	}
	if err := e.Commit(t.Context(), r); err == nil || !strings.Contains(err.Error(), `/etc/new has the SELinux label "other"`) {
		t.Errorf("error %v", err)
	}
}

// TestLabelUnknown: a label that the running policy neither knows nor lets this program set is
// refused before the commit.
func TestLabelUnknown(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	h.Policy(policy...)
	h.LoadedPolicy(true, "e")
	var notes string
	e, r := engine(h, false, &notes), request(t, h)
	err := e.Prepare(t.Context(), r)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "system_u:object_r:new_t:s0") ||
		!strings.Contains(fault.HintOf(err), "install_exec_t") {
		t.Errorf("error %v, hint %q", err, fault.HintOf(err))
	}
	h.LoadedPolicy(true, "f") // with mac_admin
	must(t, e.Prepare(t.Context(), r))
	h.LoadedPolicy(false, "e")
	must(t, e.Prepare(t.Context(), r))
	// The label is not set before libostree merges /etc, since a policy may forbid it in a tmpfs.
	const label = "system_u:object_r:new_t:s0"
	h.Ostree.Fail = func(int, bool) error {
		if got, err := hostfiles.LabelOf(h.Path("/etc/new")); got != "" {
			t.Errorf("the file has the label %q before it is merged (%v)", got, err)
		}
		return nil
	}
	must(t, e.Commit(t.Context(), r))
	h.Boot()
	if got, err := hostfiles.LabelOf(h.Path("/etc/new")); got != label {
		t.Errorf("the new system's file has the label %q, want %q (%v)", got, label, err)
	}
}

// TestHang: a call of rpm-ostree that does not answer times out and is retried. If it never
// answers, the error says so and nothing is left staged.
func TestHang(t *testing.T) {
	for _, point := range []standin.Fault{
		{Verb: "status", At: "start"}, {Verb: "status", At: "end"},
		{Verb: "rebase", At: "start"}, {Verb: "rebase", At: "locked"}, {Verb: "rebase", At: "staged"}, {Verb: "rebase", At: "end"},
	} {
		for _, nth := range []int{1, 0} {
			t.Run(fmt.Sprintf("%s at %s once %v", point.Verb, point.At, nth == 1), func(t *testing.T) {
				sample.Short(t, 8)
				t.Parallel()
				h := hostdir.New(t)
				point.Nth, point.Do = nth, "hang"
				h.InstallRpmOstree(standin.Control{Version: "2024.5", Faults: []standin.Fault{point}})
				var notes string
				e, r := engine(h, true, &notes), request(t, h)
				e.Limits = rpmostree.Limits{Status: 200 * time.Millisecond, Rebase: 300 * time.Millisecond}
				if point.Verb == "rebase" {
					e.Limits.Status = 0
				} else {
					e.Limits.Rebase = 0
				}
				err := e.Prepare(t.Context(), r)
				if !strings.Contains(notes, "rpm-ostree did not answer within") {
					t.Errorf("it does not say that it waits: %s", notes)
				}
				if point.Verb == "rebase" && (point.At == "staged" || point.At == "end") {
					nth = 1 // the deployment is staged, which counts although the call hangs
				}
				if nth == 1 {
					must(t, err)
					must(t, e.Commit(t.Context(), r))
					return
				}
				if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "gave up after") ||
					!strings.Contains(err.Error(), "rpm-ostree did not answer within") || !strings.Contains(fault.HintOf(err), "rpm-ostreed") {
					t.Errorf("error %v, hint %s", err, fault.HintOf(err))
				}
				must(t, e.Discard(t.Context()))
				must(t, e.Discard(t.Context())) // also if there is nothing
				nothingStaged(t, h)
			})
		}
	}
}

func nothingStaged(t *testing.T, h *hostdir.Host) {
	t.Helper()
	for _, name := range []string{ostree.StagedFile, ostree.LockFile} {
		if _, err := os.Lstat(filepath.Join(h.Sysroot().RunDir(), name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left (%v)", name, err)
		}
	}
}

// TestDaemonTroubles: messages of D-Bus and systemd about a daemon that is not up, has died or is
// slow are transient failures. Others are not.
func TestDaemonTroubles(t *testing.T) {
	for message, passing := range map[string]bool{
		"Timeout was reached": true,
		"GDBus.Error:org.freedesktop.DBus.Error.NoReply: Message recipient disconnected from message bus without replying": true,
		"GDBus.Error:org.freedesktop.DBus.Error.TimedOut: Failed to activate service 'org.projectatomic.rpmostree1'":       true,
		"GDBus.Error:org.freedesktop.DBus.Error.ServiceUnknown: The name is not activatable":                               true,
		"Could not activate remote peer.": true,
		"Job for rpm-ostreed.service failed because the control process exited with error code": true,
		"Packages not found: no-such-package":                                                   false,
	} {
		for _, nth := range []int{1, 0} {
			t.Run(fmt.Sprintf("%.60s once %v", message, nth == 1), func(t *testing.T) {
				sample.Short(t, 3)
				t.Parallel()
				h := hostdir.New(t)
				h.InstallRpmOstree(standin.Control{Faults: []standin.Fault{{Verb: "rebase", Nth: nth, At: "start", Do: "fail", Message: message}}})
				var notes string
				e, r := engine(h, true, &notes), request(t, h)
				err := e.Prepare(t.Context(), r)
				if passing && nth == 1 {
					must(t, err)
					return
				}
				if err == nil || fault.KindOf(err).Transient() != passing || !strings.Contains(err.Error(), message) {
					t.Errorf("error %v", err)
				}
				if fault.HintOf(err) == "" {
					t.Error("no hint")
				}
				if passing != strings.Contains(notes, message) {
					t.Errorf("tried again: %v; notes %s", !passing, notes)
				}
				must(t, e.Discard(t.Context()))
				nothingStaged(t, h)
			})
		}
	}
}

// TestNetworkTroubles: messages of rpm-ostree about a registry or a package repository are
// classified by the cause, not by the step that fails.
func TestNetworkTroubles(t *testing.T) {
	const opening = "Creating importer: failed to invoke method OpenImage: failed to invoke method OpenImage: "
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	r := request(t, h)
	for message, passing := range map[string]bool{
		// A registry, with the messages of a release that contacts it.
		opening + "fetching manifest b in r.example/os: pinging container registry r.example: Get \"https://r.example/v2/\": dial tcp 192.0.2.1:443: connect: connection refused": true,
		opening + "fetching manifest b in r.example/os: pinging container registry r.example: Get \"https://r.example/v2/\": dial tcp: lookup r.example: no such host":            true,
		opening + "fetching manifest b in r.example/os: Get \"https://r.example/v2/\": dial tcp 192.0.2.1:443: i/o timeout":                                                       true,
		opening + "fetching manifest b in r.example/os: Get \"https://r.example/v2/\": net/http: TLS handshake timeout":                                                           true,
		opening + "fetching manifest b in r.example/os: Get \"https://r.example/v2/\": read tcp 192.0.2.1:443: connection reset by peer":                                          true,
		opening + "reading manifest b in r.example/os: received unexpected HTTP status: 503 Service Unavailable":                                                                  true,
		opening + "reading manifest b in r.example/os: toomanyrequests: slow down":                                                                                                true,
		opening + "reading manifest b in r.example/os: unauthorized":                                                                                                              false,
		opening + "reading manifest b in r.example/os: denied: requested access to the resource is denied":                                                                        false,
		opening + "reading manifest b in r.example/os: manifest unknown":                                                                                                          false,
		opening + "fetching manifest b in r.example/os: Get \"https://r.example/v2/\": tls: failed to verify certificate: x509: certificate signed by unknown authority":          false,
		// One endpoint that may answer later is enough, as for pivot's own pulls.
		opening + "(Mirrors also failed: [m.example/os: dial tcp 192.0.2.1:443: connect: connection refused]): r.example/os: reading manifest b in r.example/os: unauthorized": true,
		// A package repository.
		"Updating rpm-md repo 'x': cannot update repo 'x': Cannot download repomd.xml: Cannot download repodata/repomd.xml: All mirrors were tried; Last error: Curl error (6): Could not resolve hostname for http://x/repodata/repomd.xml": true,
		"Updating rpm-md repo 'x': cannot update repo 'x': Cannot prepare internal mirrorlist: Curl error (28): Timeout was reached for https://x/metalink":                                                                                  true,
		"Updating rpm-md repo 'x': cannot update repo 'x': Cannot download repomd.xml: All mirrors were tried; Last error: Status code: 502 for http://x/repodata/repomd.xml (IP: 192.0.2.1)":                                                true,
		"Updating rpm-md repo 'x': cannot update repo 'x': Cannot download repomd.xml: All mirrors were tried; Last error: Status code: 404 for http://x/repodata/repomd.xml (IP: 192.0.2.1)":                                                false,
		"Updating rpm-md repo 'x': cannot update repo 'x': Cannot prepare internal mirrorlist: Curl error (60): SSL peer certificate or SSH remote key was not OK for https://x/metalink":                                                    false,
	} {
		var notes string
		e := engine(h, true, &notes)
		e.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
			if argv[0] == "rpm-ostree" && argv[1] == "rebase" {
				return nil, errors.New("rpm-ostree: error: " + message)
			}
			return h.Run(ctx, argv...)
		}
		err := e.Prepare(t.Context(), r)
		if err == nil || fault.KindOf(err).Transient() != passing || !strings.Contains(err.Error(), message) || fault.HintOf(err) == "" {
			t.Errorf("error %v, hint %q", err, fault.HintOf(err))
		}
		if passing != strings.Contains(notes, message) {
			t.Errorf("tried again: %v; notes %s", !passing, notes)
		}
	}
}

// TestDiscardDoesNotWait: a daemon that is still working after its client timed out holds the
// lock, for which libostree would wait forever.
func TestDiscardDoesNotWait(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	var notes string
	e := engine(h, false, &notes)
	must(t, e.Prepare(t.Context(), request(t, h)))
	unlock, calls := h.Lock(), len(h.Ostree.Calls)
	err := e.Discard(t.Context())
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "ostree/lock") || len(h.Ostree.Calls) != calls {
		t.Errorf("error %v, calls %q", err, h.Ostree.Calls[calls:])
	}
	if staged, err := h.Sysroot().Staged(); err != nil || staged == nil || !staged.Locked {
		t.Errorf("staged %+v, %v; want it as it was, locked", staged, err)
	}
	unlock()
	must(t, e.Discard(t.Context()))
	nothingStaged(t, h)
}

// TestLockHeld: RpmOstree waits for another program that changes the deployments (P38). Ostree,
// which does not wait, returns an error that names the lock.
func TestLockHeld(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	r := request(t, h)
	unlock := h.Lock()
	plain := &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
	err := plain.Prepare(t.Context(), r)
	if !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "ostree/lock") || fault.HintOf(err) == "" || len(h.Ostree.Calls) > 0 {
		t.Errorf("error %v, calls %q", err, h.Ostree.Calls)
	}
	var notes string
	e := engine(h, false, &notes)
	tries := 0
	e.Waiting = func(err error, _ retry.Pause) {
		if tries++; tries == 2 {
			unlock()
		}
	}
	if err := e.Prepare(t.Context(), r); err != nil || tries != 2 {
		t.Errorf("error %v after %d waits", err, tries)
	}
}

// TestUnknownVersion: the way to lock depends on the version, so an unknown version is refused.
func TestUnknownVersion(t *testing.T) {
	h := hostdir.New(t)
	h.Ostree.Version = "nonsense"
	e := &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
	err := e.Prepare(t.Context(), request(t, h))
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "nonsense") || len(h.Ostree.Calls) > 0 {
		t.Errorf("error %v, calls %q", err, h.Ostree.Calls)
	}
}

// TestClientFailsLast: if rpm-ostree's client fails after its daemon has made the deployment, the
// staged deployment counts. With a read-only /tmp the client does not fail at all.
func TestClientFailsLast(t *testing.T) {
	const message = "Failed to load package list: something with the packages"
	for _, c := range []struct {
		name   string
		faults []standin.Fault
		note   string // "" if there is none
	}{
		{"read-only /tmp", nil, ""},
		{"another reason", []standin.Fault{{Verb: "rebase", At: "end", Do: "fail", Message: message}}, message},
		{"killed", []standin.Fault{{Verb: "rebase", At: "end", Do: "die"}}, "signal: killed"},
	} {
		for _, image := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s container %v", c.name, image), func(t *testing.T) {
				sample.Short(t, 3)
				h := hostdir.New(t)
				h.InstallRpmOstree(standin.Control{Faults: c.faults})
				h.ReadOnlyTmp()
				var notes string
				e, r := engine(h, true, &notes), request(t, h)
				if !image {
					r.Image = pivot.ImageOf(imageref.FromOrigin("example.com/os@sha256:1"))
				}
				must(t, e.Prepare(t.Context(), r))
				must(t, e.Commit(t.Context(), r))
				if !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
					t.Errorf("notes %q, want %q", notes, c.note)
				}
				if calls, err := standin.Calls(h.Root); err != nil || strings.Count(strings.Join(calls, ""), "rebase") != 1 {
					t.Errorf("calls %q, %v", calls, err)
				}
			})
		}
	}
}

// TestRebaseThatIsBad: rpm-ostree tests the new system after it has staged it. A system that fails
// this test is not used, although it is staged.
func TestRebaseThatIsBad(t *testing.T) {
	for _, at := range []string{"locked", "staged"} {
		h := hostdir.New(t)
		message := "Sanity-checking final rootfs: Executing bwrap(/usr/bin/true): Child process killed by signal 11"
		h.InstallRpmOstree(standin.Control{Faults: []standin.Fault{{Verb: "rebase", At: at, Do: "fail", Message: message}}})
		var notes string
		e := engine(h, true, &notes)
		err := e.Prepare(t.Context(), request(t, h))
		if err == nil || fault.KindOf(err).Transient() || !strings.Contains(err.Error(), message) {
			t.Errorf("at %s: error %v", at, err)
		}
		must(t, e.Discard(t.Context()))
		nothingStaged(t, h)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
