package rpmostree_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/rpmostree"
)

// Each test names the sources of the real program that define the tested behaviour. "upgrader" is
// src/daemon/rpmostree-sysroot-upgrader.cxx, "types" is
// src/daemon/rpmostreed-transaction-types.cxx.

// world is a host with the stand-in.
type world struct {
	*hostdir.Host
	t *testing.T
}

func newWorld(t *testing.T, c rpmostree.Control) *world {
	h := hostdir.New(t)
	h.InstallRpmOstree(c)
	return &world{h, t}
}

// result is the result of a call.
type result struct {
	status         int
	err            error
	stdout, stderr string
}

func (w *world) call(args ...string) result {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	status, err := w.RpmOstree().Main(w.t.Context(), args, &stdout, &stderr)
	return result{status, err, stdout.String(), stderr.String()}
}

// does runs a call that must succeed, and returns its stdout.
func (w *world) does(args ...string) string {
	w.t.Helper()
	r := w.call(args...)
	if r.status != 0 || r.err != nil {
		w.t.Fatalf("rpm-ostree %v: status %d, %v: %s", args, r.status, r.err, r.stderr)
	}
	return r.stdout
}

// fails runs a call that must fail with status 1 and message after "error: " (rust/src/main.rs).
func (w *world) fails(message string, args ...string) {
	w.t.Helper()
	r := w.call(args...)
	if r.status != 1 || r.err != nil || !strings.Contains(r.stderr, "error: "+message) {
		w.t.Errorf("rpm-ostree %v: status %d, %v: %q, want %q", args, r.status, r.err, r.stderr, message)
	}
}

type object = map[string]any

func (w *world) status() object {
	w.t.Helper()
	var doc object
	if err := json.Unmarshal([]byte(w.does("status", "--json")), &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc
}

func (w *world) deployments() []object {
	w.t.Helper()
	var list []object
	for _, d := range w.status()["deployments"].([]any) {
		list = append(list, d.(object))
	}
	return list
}

// lock reports which forms of the lock are set.
func (w *world) lock() (inState, file bool) {
	w.t.Helper()
	_, err := os.Stat(w.Path("/run/ostree/staged-deployment-locked"))
	state := w.Read("/run/ostree/staged-deployment")
	return bytes.Contains(state, []byte("locked")), err == nil
}

func TestVersionAndFeatures(t *testing.T) { // src/app/libmain.cxx, rust/src/utils.rs
	for _, c := range []struct {
		control   rpmostree.Control
		container bool
	}{
		{rpmostree.Control{}, true},
		{rpmostree.Control{Version: "2021.14"}, false},
		{rpmostree.Control{Version: "2022.1"}, true},
		{rpmostree.Control{NoContainer: true}, false},
	} {
		w := newWorld(t, c.control)
		out := w.does("--version")
		if !strings.HasPrefix(out, "rpm-ostree:\n Version: '"+c.control.Version) || strings.Contains(out, "\n  - container\n") != c.container {
			t.Errorf("%+v: %s", c.control, out)
		}
	}
}

func TestOptionsByRelease(t *testing.T) { // the releases' own option tables in src/app
	for _, c := range []struct {
		before, since, option string
		verb                  []string
	}{
		{"2020.3", "2020.4", "--lock-finalization", []string{"kargs", "--append=a"}},
		{"2021.2", "2021.3", "--bypass-driver", []string{"rebase", ":" + strings.Repeat("0", 64)}},
		{"2021.4", "2021.5", "--unchanged-exit-77", []string{"kargs", "--append=a"}},
		{"2021.4", "2021.5", "--append-if-missing=a", []string{"kargs"}},
		{"2021.4", "2021.5", "--delete-if-present=a", []string{"kargs"}},
	} {
		name, _, _ := strings.Cut(c.option, "=")
		w := newWorld(t, rpmostree.Control{Version: c.before})
		w.fails("Unknown option "+name, append(c.verb, c.option)...)
		w.InstallRpmOstree(rpmostree.Control{Version: c.since})
		if r := w.call(append(c.verb, c.option)...); strings.Contains(r.stderr, "Unknown option") {
			t.Errorf("%s has no %s", c.since, c.option)
		}
	}
	w := newWorld(t, rpmostree.Control{})
	w.fails("Unknown option --bypass-driver", "kargs", "--append=a", "--bypass-driver") // kargs ignores drivers
	w.fails("Unknown option --unchanged-exit-77", "rebase", "--unchanged-exit-77", "x")
}

func TestStatusDocument(t *testing.T) { // rpmostree-builtin-status.cxx, rust/src/daemon.rs
	w := newWorld(t, rpmostree.Control{Driver: &rpmostree.Driver{Name: "Zincati", Unit: "zincati.service"}})
	doc := w.status()
	if doc["transaction"] != nil || doc["cached-update"] != nil {
		t.Errorf("status %v", doc)
	}
	if d, _ := doc["update-driver"].(object); d["driver-name"] != "Zincati" || d["driver-sd-unit"] != "zincati.service" {
		t.Errorf("driver %v", doc["update-driver"])
	}
	commit := w.PullCommit()
	w.does("rebase", "--bypass-driver", "--custom-origin-url=pivot://x@sha256:1", "--custom-origin-description=D", ":"+commit)
	all := w.deployments()
	if len(all) != 2 || all[0]["staged"] != true || all[0]["booted"] != false || all[1]["booted"] != true {
		t.Fatalf("deployments %v", all)
	}
	staged := all[0]
	if staged["id"] != "os-"+commit+".0" || staged["checksum"] != commit || staged["origin"] != commit || staged["version"] != "B.2" {
		t.Errorf("staged %v", staged)
	}
	if custom, _ := staged["custom-origin"].([]any); len(custom) != 2 || custom[0] != "pivot://x@sha256:1" {
		t.Errorf("custom origin %v", staged["custom-origin"])
	}
	for _, absent := range []string{"kargs", "finalization-locked", "base-checksum", "container-image-reference"} {
		if _, there := staged[absent]; there {
			t.Errorf("status has %s", absent)
		}
	}
}

func TestKargs(t *testing.T) { // types: KernelArgTransaction; libostree: ostree-kernel-args.c
	w := newWorld(t, rpmostree.Control{})
	if r := w.call("kargs", "--append-if-missing=rw", "--unchanged-exit-77"); r.status != 77 || r.stdout != "No changes.\n" {
		t.Errorf("%+v", r)
	}
	if r := w.call("kargs", "--append-if-missing=rw"); r.status != 0 || r.stdout != "No changes.\n" {
		t.Errorf("%+v", r)
	}
	w.fails("No key 'nosuch' found", "kargs", "--delete=nosuch")
	w.fails("No karg 'root=b' found", "kargs", "--delete=root=b")
	w.fails("Cannot specify both --delete and --replace", "kargs", "--delete=rw", "--replace=root=x")
	w.does("kargs", "--append=a=1", "--append=a=2", "--append=rw")
	w.fails("Multiple values for key 'a' found", "kargs", "--delete=a")
	w.fails("Multiple values for key 'a' found", "kargs", "--replace=a=3")
	// The base is the pending deployment. The first exact match is removed, a duplicate stays.
	w.does("kargs", "--delete=rw", "--append-if-missing=a=2", "--delete-if-present=b=1")
	w.does("kargs", "--replace=a=1=5")
	if line := w.does("kargs"); strings.HasPrefix(line, "root=LABEL=root rw") || !strings.HasSuffix(line, " a=5 a=2 rw\n") {
		t.Errorf("arguments %q", line)
	}
}

func TestKargsStartFromPending(t *testing.T) { // upgrader: the first deployment of the stateroot
	w := newWorld(t, rpmostree.Control{})
	w.does("kargs", "--append=one")
	w.does("kargs", "--append=two")
	if line := w.does("kargs"); !strings.HasSuffix(line, " one two\n") {
		t.Errorf("pending arguments %q", line)
	}
	w.does("rebase", ":"+w.PullCommit()) // inherits them
	if line := w.does("kargs"); !strings.HasSuffix(line, " one two\n") {
		t.Errorf("pending arguments after the rebase %q", line)
	}
	w.does("cleanup", "-p")
	if line := w.does("kargs"); strings.Contains(line, "one") {
		t.Errorf("arguments after the cleanup %q", line)
	}
	if out := w.does("cleanup", "-p"); out != "Deployments unchanged.\n" {
		t.Errorf("cleanup says %q", out)
	}
}

func TestKeyOnlyReleases(t *testing.T) { // commits 1a1ef139 (v2023.4) and 3b7b2768 (v2024.1)
	for version, skipped := range map[string]bool{"2023.3": false, "2023.4": true, "2023.12": true, "2024.1": false} {
		w := newWorld(t, rpmostree.Control{Version: version})
		w.does("kargs", "--append=a=1")
		w.does("kargs", "--append-if-missing=a=2")
		if line := w.does("kargs"); strings.Contains(line, "a=2") == skipped {
			t.Errorf("%s: a=2 beside a=1: %q", version, line)
		}
		if r := w.call("kargs", "--delete-if-present=a=9"); (r.status != 0) != skipped {
			t.Errorf("%s: a value that is not there: %+v", version, r)
		}
	}
}

func TestEqualRefs(t *testing.T) { // types: "Old and new refs are equal", also for the pending one, never for a checksum
	w := newWorld(t, rpmostree.Control{})
	commit, image := w.PullCommit(), w.imported()
	w.does("rebase", image)
	w.fails("Old and new refs are equal: "+image, "rebase", image)
	w.does("rebase", ":"+commit)
	w.does("rebase", ":"+commit)
}

func TestRefspecs(t *testing.T) { // rust/src/core.rs; rpmostreed-utils.cxx: the colon before a checksum
	w := newWorld(t, rpmostree.Control{Version: "2021.14"})
	w.fails("Invalid refspec ostree-unverified-registry:x/y", "rebase", "--experimental", "ostree-unverified-registry:x/y")
	w.fails("--custom-origin-description must be supplied with --custom-origin-url", "rebase", "--custom-origin-url=u", ":"+w.PullCommit())
	w.fails("No such metadata object", "rebase", ":"+strings.Repeat("0", 64))
	w.InstallRpmOstree(rpmostree.Control{})
	commit := w.PullCommit()
	// A bare checksum gets the remote of the current origin, and the custom origin is dropped.
	w.SetOrigin("[origin]\nrefspec=fedora:fedora/x86_64/coreos/stable\n")
	w.does("rebase", "--custom-origin-url=u", "--custom-origin-description=d", commit)
	if d := w.deployments()[0]; d["origin"] != "fedora:"+commit || d["custom-origin"] != nil {
		t.Errorf("staged %v", d)
	}
	w.does("rebase", "--custom-origin-url=u", "--custom-origin-description=d", ":"+commit)
	if d := w.deployments()[0]; d["origin"] != commit || d["custom-origin"] == nil {
		t.Errorf("staged %v", d)
	}
}

// TestAsksTheRegistry: a rebase contacts the registry even for an image in the repository, and uses
// only ostree's pull secrets (ostree-ext: container/store.rs, globals.rs). Verified with the real
// rpm-ostree.
func TestAsksTheRegistry(t *testing.T) {
	w := newWorld(t, rpmostree.Control{})
	image := w.imported()
	const context = "Creating importer: failed to invoke method OpenImage: failed to invoke method OpenImage: "
	if err := os.Remove(w.Path("/etc/ostree/auth.json")); err != nil {
		t.Fatal(err)
	}
	w.fails(context+"reading manifest "+w.Image[strings.Index(w.Image, "sha256:"):]+" in "+w.Registry.Host()+"/os/content: unauthorized", "rebase", image)
	w.fails(context+"fetching manifest latest in 127.0.0.1:1/x: pinging container registry 127.0.0.1:1: ", "rebase", "ostree-unverified-registry:127.0.0.1:1/x")
	for _, dir := range []string{"/usr/lib", "/etc", "/run"} {
		w.Write(dir+"/ostree/auth.json", w.Registry.PullSecret(w.Registry.Host()))
		w.does("rebase", image)
		w.does("cleanup", "-p")
		w.ImageRef(image, w.Commit)
		// The first file that exists counts, whatever its content.
		w.Write(dir+"/ostree/auth.json", []byte("{}"))
		w.fails(context+"reading manifest ", "rebase", image)
	}
}

// imported imports the next system from the registry, lets the daemon access it there, and returns
// its ostree image reference.
func (w *world) imported() string {
	image := "ostree-unverified-registry:" + w.Image
	w.ImageRef(image, w.PullCommit())
	w.Write("/etc/ostree/auth.json", w.Registry.PullSecret(w.Registry.Host()))
	return image
}

func TestFromContainerToCommit(t *testing.T) { // commit a4c60bd7 (v2022.10)
	for version, can := range map[string]bool{"2022.9": false, "2022.10": true} {
		w := newWorld(t, rpmostree.Control{Version: version})
		w.SetOrigin("[origin]\ncontainer-image-reference=ostree-unverified-registry:example.com/a:1\n")
		if r := w.call("rebase", ":"+w.PullCommit()); (r.status == 0) != can || !can && !strings.Contains(r.stderr, "Invalid refspec") {
			t.Errorf("%s: %+v", version, r)
		}
	}
}

// TestClientFailsLast: the client fails to list the changed packages without a writable /tmp, but
// the transaction is done (rpmostree-clientlib.cxx). Verified with the real rpm-ostree.
func TestClientFailsLast(t *testing.T) {
	for _, args := range [][]string{{"kargs", "--append=a"}, {"rebase", ""}} {
		w := newWorld(t, rpmostree.Control{})
		if args[0] == "rebase" {
			args[1] = ":" + w.PullCommit()
		}
		w.ReadOnlyTmp()
		w.fails("Failed to load package list: Failed to invoke rpm-ostree shlib-backend: error: mkdirat: Read-only file system", args...)
		if d := w.deployments()[0]; d["staged"] != true {
			t.Errorf("%s: first is %v", args[0], d)
		}
	}
}

func TestLockForms(t *testing.T) { // commit 37c7228d (v2024.6); libostree commit ac69c707 (v2023.7)
	for _, c := range []struct {
		version, libostree    string
		inState, file         bool // after one operation that locks
		twiceState, twiceFile bool // after a second one
		freeFile              bool // after one that does not lock
	}{
		{"2024.5", "2022.7", false, true, false, true, true},
		{"2024.5", hostdir.LockInState, false, true, false, false, false},
		{"2024.6", "2022.7", true, false, true, false, false},
		{"2024.6", hostdir.LockInState, true, false, true, false, false},
	} {
		w := newWorld(t, rpmostree.Control{Version: c.version})
		w.Ostree.Version = c.libostree
		expect := func(when string, wantState, wantFile bool) {
			t.Helper()
			if inState, file := w.lock(); inState != wantState || file != wantFile {
				t.Errorf("%s on %s, %s: locked in the state %v, by a file %v", c.version, c.libostree, when, inState, file)
			}
		}
		w.does("kargs", "--append=a", "--lock-finalization")
		expect("locked", c.inState, c.file)
		if got := w.deployments()[0]["finalization-locked"]; (got == true) != c.file {
			t.Errorf("%s: status says %v", c.version, got)
		}
		w.does("rebase", "--lock-finalization", ":"+w.PullCommit())
		expect("locked twice", c.twiceState, c.twiceFile)
		w.does("kargs", "--append=b")
		expect("then not", false, c.freeFile)
	}
}

func TestFinalizeDeployment(t *testing.T) { // types: FinalizeDeploymentTransaction
	w := newWorld(t, rpmostree.Control{})
	w.fails("No pending staged deployment found", "finalize-deployment", "--allow-missing-checksum")
	commit := w.PullCommit()
	w.does("rebase", "--lock-finalization", ":"+commit)
	w.fails("Missing expected checksum", "finalize-deployment")
	w.fails("Expected staged base checksum x, but found "+commit, "finalize-deployment", "x")
	w.does("finalize-deployment", commit)
	if inState, file := w.lock(); inState || file || w.Reboots != 1 {
		t.Errorf("locked %v %v, %d reboots", inState, file, w.Reboots)
	}
	w.fails("Staged deployment already unlocked", "finalize-deployment", commit)
	w.does("finalize-deployment", "--allow-unlocked", commit)
}

func TestDriver(t *testing.T) { // rpmostree-clientlib.cxx: error_if_driver_registered
	w := newWorld(t, rpmostree.Control{Driver: &rpmostree.Driver{Name: "Zincati", Unit: "zincati.service", Active: true}})
	target := ":" + w.PullCommit()
	w.fails("Updates and deployments are driven by Zincati (zincati.service)", "rebase", target)
	w.does("kargs", "--append=a") // no check there
	w.does("rebase", "--bypass-driver", target)
}

func TestTransactionInTheWay(t *testing.T) { // rpmostreed-sysroot.cxx, rpmostreed-transaction.cxx
	w := newWorld(t, rpmostree.Control{Transaction: []string{"upgrade", "cli", "/"}, BusyCalls: 2})
	if tr := w.status()["transaction"]; tr == nil {
		t.Error("status names no transaction")
	}
	w.fails("Transaction in progress: upgrade\n You can cancel the current transaction with `rpm-ostree cancel`", "kargs", "--append=a")
	w.does("kargs", "--append=a")

	unlock := w.Lock()
	defer unlock()
	w.fails("System transaction in progress", "kargs", "--append=b")
}

func TestIdleDaemon(t *testing.T) { // rust/src/client.rs: client_start_daemon
	w := newWorld(t, rpmostree.Control{DaemonFails: 1})
	w.fails("exit status: 1", "status", "--json")
	w.does("status", "--json")
}

func TestCollectsImages(t *testing.T) { // rpmostree-sysroot-core.cxx: syscore_cleanup
	w := newWorld(t, rpmostree.Control{})
	image := "ostree-unverified-registry:example.com/os_a@sha256:" + strings.Repeat("1", 64)
	ref := w.ImageRef(image, w.PullCommit())
	if want := "ostree/container/image/docker_3A__2F__2F_example_2E_com/os__a_40_sha256_3A_" + strings.Repeat("1", 64); ref != want {
		t.Errorf("ref %s, want %s", ref, want)
	}
	w.does("kargs", "--append=a")
	if _, err := os.Stat(w.Sysroot().RepoPath() + "/refs/heads/" + ref); err == nil {
		t.Error("the image is kept, though no origin names it")
	}
}

func TestLayers(t *testing.T) { // rust/src/daemon.rs: deployment_layeredmeta; types: the origin's packages stay
	w := newWorld(t, rpmostree.Control{})
	w.Layer("strace;")
	commit := w.PullCommit()
	w.does("rebase", ":"+commit)
	d := w.deployments()[0]
	if d["base-checksum"] != commit || d["checksum"] == commit || d["origin"] != commit {
		t.Errorf("staged %v", d)
	}
	if p, _ := d["requested-packages"].([]any); !slices.Equal(p, []any{"strace"}) {
		t.Errorf("packages %v", d["requested-packages"])
	}
}

// TestNoRepository: packages layered by name need an enabled repository for another image and for more packages, even
// from the cache. Other arguments, fewer packages and local ones need none. Verified with the real rpm-ostree.
func TestNoRepository(t *testing.T) {
	w := newWorld(t, rpmostree.Control{})
	w.repository("gpgcheck=0\n", "rt", "extra")
	w.does("install", "rt", "extra")
	w.Write("/etc/yum.repos.d/a.repo", []byte("[a]\nbaseurl=file:///var/cache/repository\nenabled=0\n"))
	w.does("kargs", "--append=a")
	w.fails("No enabled repositories", "rebase", ":"+w.PullCommit())
	w.fails("No enabled repositories", "override", "remove", "kernel-core", "--install=other")
	w.does("uninstall", "extra")

	w = newWorld(t, rpmostree.Control{})
	w.Layer("strace;")
	w.Write("/etc/yum.repos.d/site.repo", nil)
	booted, err := w.Sysroot().Booted()
	if err != nil {
		t.Fatal(err)
	}
	w.SetOrigin(strings.Replace(string(booted.Origin.Bytes()), "requested=strace", "requested-local=0123:strace-1-1.x86_64", 1))
	w.does("rebase", ":"+w.PullCommit())
}

func TestFaults(t *testing.T) {
	for _, at := range []string{"start", "locked", "staged", "end"} {
		w := newWorld(t, rpmostree.Control{Faults: []rpmostree.Fault{
			{Verb: "kargs", Nth: 1, At: at, Do: "fail", Message: "Bus owner changed"},
			{Verb: "kargs", Nth: 2, At: at, Do: "die"},
			{Verb: "kargs", Nth: 3, At: at, Do: "hang"},
		}})
		w.fails("Bus owner changed", "kargs", "--append=a1")
		if r := w.call("kargs", "--append=a2"); !errors.Is(r.err, rpmostree.ErrDied) {
			t.Errorf("%s: %+v", at, r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := w.RpmOstree().Main(ctx, []string{"kargs", "--append=a3"}, &bytes.Buffer{}, &bytes.Buffer{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", at, err)
		}
		w.does("kargs", "--append=a4")
		calls, err := rpmostree.Calls(w.Root)
		if err != nil || len(calls) != 4 {
			t.Errorf("calls %q, %v", calls, err)
		}
	}
}

// repository configures a package repository with the named packages as the host's only one.
func (w *world) repository(config string, names ...string) {
	w.t.Helper()
	need.Program(w.t, "createrepo_c")
	dir := w.Path("/var/cache/repository")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	var packages []oscontainer.RPM
	for _, name := range names {
		packages = append(packages, oscontainer.RPM{Name: name, Version: "1", Files: map[string][]byte{"/usr/share/" + name: []byte(name)}})
	}
	if err := oscontainer.Repository(dir, packages); err != nil {
		w.t.Fatal(err)
	}
	w.Write("/etc/yum.repos.d/a.repo", []byte("[a]\nbaseurl=file:///var/cache/repository\n"+config))
}

// TestPackageChanges: each call starts from the pending deployment and stages one with the same
// base, arguments and image. The origin lists the layers (types: deploy_transaction_execute;
// rust/src/origin.rs). Verified with a chain of locked calls of the real rpm-ostree.
func TestPackageChanges(t *testing.T) {
	w := newWorld(t, rpmostree.Control{})
	w.repository("gpgcheck=0\n", "rt", "extra")
	base := w.PullCommit()
	w.does("rebase", "--lock-finalization", ":"+base)
	w.does("kargs", "--append=staged", "--lock-finalization")
	w.does("override", "remove", "--lock-finalization", "kernel-core", "--install=rt")
	w.does("install", "--lock-finalization", "extra")
	first := w.deployments()[0]
	if first["base-checksum"] != base || first["origin"] != base || !strings.HasSuffix(w.does("kargs"), " staged\n") {
		t.Errorf("staged %v", first)
	}
	if got := fmt.Sprint(first["requested-packages"], first["requested-base-removals"]); got != "[rt extra] [kernel-core]" {
		t.Errorf("packages %s", got)
	}
	if inState, file := w.lock(); !inState && !file {
		t.Error("it is not locked")
	}
	list := w.does("db", "list", first["checksum"].(string))
	if !strings.Contains(list, "\n rt-1-1.x86_64\n") || strings.Contains(list, "kernel-core") || !strings.HasPrefix(list, "ostree commit: ") {
		t.Errorf("packages %q", list)
	}
	w.does("override", "reset", "kernel-core", "--uninstall=rt")
	w.does("uninstall", "extra")
	if first = w.deployments()[0]; first["checksum"] != base || first["base-checksum"] != nil {
		t.Errorf("with nothing on top: %v", first)
	}
}

// TestPackageFailures: the messages are those of the real rpm-ostree (types:
// deploy_transaction_execute; rpmostree-origin.cxx; rpmostree-core.cxx).
func TestPackageFailures(t *testing.T) {
	w := newWorld(t, rpmostree.Control{})
	w.fails("No enabled repositories", "install", "rt")
	w.repository("gpgcheck=0\n", "other")
	w.fails("Packages not found: rt", "install", "rt")
	w.repository("gpgcheck=0\n", "rt")
	w.fails(`"kernel-core" is already provided by: kernel-core-6.1-1.x86_64. Use --allow-inactive to explicitly require it.`, "install", "kernel-core")
	w.fails(`Package "rt" not found`, "override", "remove", "rt")
	w.fails("No overrides for package 'kernel-core'", "override", "reset", "kernel-core")
	w.fails("Package/capability 'rt' is not currently requested", "uninstall", "rt")
	w.does("install", "rt")
	w.fails("Package/capability 'rt' is already requested", "install", "rt")
	w = newWorld(t, rpmostree.Control{})
	w.repository("", "rt")
	w.fails("package rt cannot be verified and repo", "install", "rt")
	w.Write("/etc/yum.repos.d/b.repo", []byte("[b]\nbaseurl=file:///nowhere\n"))
	w.fails("Updating rpm-md repo 'b': cannot update repo 'b'", "install", "rt")
}
