package update_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/author/update"
	"machine-pivot/internal/disruption"
)

func users(list string) string  { return config(`"passwd":{"users":[` + list + `]}`) }
func groups(list string) string { return config(`"passwd":{"groups":[` + list + `]}`) }

// storage returns a config with elements in a section of storage.
func storage(section, elements string) string {
	return config(`"storage":{"` + section + `":[` + elements + `]}`)
}

func units(list string) string { return config(`"systemd":{"units":[` + list + `]}`) }

func files(list ...string) string {
	for i, path := range list {
		list[i] = `{"path":"` + path + `"` + hello + `}`
	}
	return config(`"storage":{"files":[` + strings.Join(list, ",") + `]}`)
}

const (
	oneDisk   = `{"device":"/dev/vdb","wipeTable":true}`
	otherDisk = `{"device":"/dev/vdc","wipeTable":true}`
	ext4      = `{"device":"/dev/sda1","format":"ext4","path":"/foo/bar"}`
	array     = `{"name":"data","level":"stripe","devices":["/dev/vda","/dev/vdb"]}`
	volume    = `{"name":"data","device":"/dev/sdb"}`
	aDir      = `{"path":"/etc/d"}`
	bDir      = `{"path":"/etc/e"}`
	aLink     = `{"path":"/etc/l","target":"/a"}`
	bLink     = `{"path":"/etc/m","target":"/a"}`
	withKey   = `{"name":"core","sshAuthorizedKeys":["a"]}`
	noKey     = `{"name":"core","sshAuthorizedKeys":[]}`
	overrides = "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nspec:\n  irreconcilableValidationOverrides:\n    storage: [Disks, FileSystems, Raid]\n"
)

// TestReconcilable has each case that the machine-config operator's tests have for what is
// refused on a running machine (TestIsRenderedConfigReconcilable, TestReconcilableSSH,
// TestReconcilableDiff), and what its code decides besides. Each case is made in its own words.
func TestReconcilable(t *testing.T) {
	allowed, report := disruption.ReadCluster("policy.yaml", []byte(overrides))
	if report.Failed() {
		t.Fatal(report)
	}
	plain := disruption.DefaultCluster()
	for _, c := range []struct {
		name, old, new string
		policy         disruption.Cluster
		want           string
	}{
		{"nothing", ``, ``, plain, "nothing"},
		{"a section of ignition", ``, `"config":{"ignition":{"version":"3.4.0","timeouts":{"httpTotal":3}}}`, plain, "nothing live"},
		{"another version", `"config":{"ignition":{"version":"3.1.0"}}`, `"config":{"ignition":{"version":"3.5.0"}}`, plain, "nothing"},
		{"a disk goes", storage("disks", oneDisk), ``, plain, "refused"},
		{"a disk goes, allowed", storage("disks", oneDisk), ``, allowed, "nothing live"},
		{"a disk stays", storage("disks", oneDisk), storage("disks", oneDisk), plain, "nothing"},
		{"disks in another order", storage("disks", oneDisk+","+otherDisk), storage("disks", otherDisk+","+oneDisk), plain, "refused"},
		{"a file system goes", storage("filesystems", ext4), ``, plain, "refused"},
		{"a file system goes, allowed", storage("filesystems", ext4), ``, allowed, "nothing live"},
		{"a file system stays", storage("filesystems", ext4), storage("filesystems", ext4), plain, "nothing"},
		{"an array goes", storage("raid", array), ``, plain, "refused"},
		{"an array goes, allowed", storage("raid", array), ``, allowed, "nothing live"},
		{"an array stays", storage("raid", array), storage("raid", array), plain, "nothing"},
		{"an encrypted volume goes", storage("luks", volume), ``, plain, "nothing live"},
		{"an encrypted volume comes", ``, storage("luks", volume), plain, "nothing live"},
		{"a group comes", ``, groups(`{"name":"g"}`), plain, "refused"},
		{"a group goes", groups(`{"name":"g"}`), ``, plain, "refused"},
		{"a group stays", groups(`{"name":"g"}`), groups(`{"name":"g"}`), plain, "nothing"},
		{"Ignition's kernel arguments", ``, config(`"kernelArguments":{"shouldExist":["foo=bar"],"shouldNotExist":["baz=foo"]}`), plain, "refused"},
		{"FIPS", ``, `"fips":true`, plain, "refused"},
		{"FIPS goes", `"fips":true`, ``, plain, "refused"},
		{"a file with append stays", file("/etc/a", `,"append":[{"source":"data:,x"}]`), file("/etc/a", `,"append":[{"source":"data:,x"}]`), plain, "refused"},
		{"a file with append goes", file("/etc/a", `,"append":[{"source":"data:,x"}]`), ``, plain, "reboot"},

		{"a directory goes", storage("directories", aDir), ``, plain, "refused"},
		{"an explicit owner of a directory", storage("directories", aDir), storage("directories", `{"path":"/etc/d","user":{"name":"root"}}`), plain, "refused"},
		{"directories in another order", storage("directories", aDir+","+bDir), storage("directories", bDir+","+aDir), plain, "refused"},
		{"a directory stays", storage("directories", aDir), storage("directories", aDir), plain, "nothing"},
		{"all links go", storage("links", aLink+","+bLink), ``, plain, "nothing live"},
		{"one link goes", storage("links", aLink+","+bLink), storage("links", aLink), plain, "refused"},
		{"a link comes", ``, storage("links", aLink), plain, "refused"},

		{"keys of core come", ``, users(`{"name":"core","sshAuthorizedKeys":["5678","abc"]}`), plain, "nothing live"},
		{"core becomes another user", users(withKey), users(`{"name":"another","sshAuthorizedKeys":["a"]}`), plain, "refused"},
		{"core has a home directory", users(withKey), users(`{"name":"core","sshAuthorizedKeys":["5678"],"homeDir":"somedir"}`), plain, "refused"},
		{"core's key beside a home directory that stays", users(`{"name":"core","sshAuthorizedKeys":["a"],"homeDir":"d"}`), users(`{"name":"core","sshAuthorizedKeys":["b"],"homeDir":"d"}`), plain, "refused"},
		{"a home directory that stays", users(`{"name":"core","homeDir":"d"}`), users(`{"name":"core","homeDir":"d"}`), plain, "nothing"},
		{"another user beside core", users(withKey), users(withKey + `,{"name":"some","sshAuthorizedKeys":["a"]}`), plain, "refused"},
		{"the last key of core goes", users(withKey), users(noKey), plain, "refused"},
		{"the last key of core goes, a password stays", users(`{"name":"core","sshAuthorizedKeys":["a"],"passwordHash":"x"}`), users(`{"name":"core","passwordHash":"x"}`), plain, "nothing live"},
		{"all users go", users(withKey), ``, plain, "nothing live"},
		{"all users go, others too", users(withKey + `,{"name":"some"}`), ``, plain, "nothing live"},
		{"another user goes, core stays", users(`{"name":"some"},` + withKey), users(withKey), plain, "nothing live"},
		{"keys in another order", users(`{"name":"core","sshAuthorizedKeys":["a","b"]}`), users(`{"name":"core","sshAuthorizedKeys":["b","a"]}`), plain, "nothing live"},
		{"a password comes", ``, users(`{"name":"core","passwordHash":"x"}`), plain, "nothing live"},
		{"a password changes", users(`{"name":"core","passwordHash":"x"}`), users(`{"name":"core","passwordHash":"y"}`), plain, "nothing live"},

		{"a file comes", files("/etc/config0"), files("/etc/config0", "/etc/config1"), plain, "reboot"},
		{"all files go", files("/etc/config0", "/etc/config1"), ``, plain, "reboot"},
		{"files in another order", files("/etc/config0", "/etc/config1"), files("/etc/config1", "/etc/config0"), plain, "nothing"},
		{"units in another order", units(`{"name":"a.service"},{"name":"b.service"}`), units(`{"name":"b.service"},{"name":"a.service"}`), plain, "nothing"},
		{"an image", ``, `"osImageURL":"example.com/rhel-coreos@sha256:1111111111111111111111111111111111111111111111111111111111111111"`, plain, "reboot"},
		{"the image of extensions", ``, `"baseOSExtensionsContainerImage":"example.com/e@sha256:1111111111111111111111111111111111111111111111111111111111111111"`, plain, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) { predicts(t, c.old, c.new, c.policy, c.want) })
	}
}

// predicts checks what an update means.
func predicts(t *testing.T, old, new string, policy disruption.Cluster, want string) update.Update {
	t.Helper()
	u, err := update.Between(of(t, old), of(t, new), policy)
	if err != nil {
		t.Fatal(err)
	}
	if got := verdict(u); got != want {
		t.Errorf("it means %q, want %q: %v", got, want, u.Changes)
	}
	return u
}

// TestForms: what the operator compares by its form makes a machine reboot also if the
// content is the same.
func TestForms(t *testing.T) {
	dropin := func(more string) string { return units(`{"name":"a.service"` + more + `}`) }
	for _, c := range []struct{ name, old, new, want string }{
		{"another encoding", file("/etc/a", hello), file("/etc/a", encoded), "reboot"},
		{"compression", file("/etc/a", `,"contents":{"source":"data:,"}`), file("/etc/a", `,"contents":{"source":"data:,","compression":""}`), "reboot"},
		{"a verification hash", file("/etc/a", hello), file("/etc/a", `,"contents":{"source":"data:,hello","verification":{"hash":"sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}}`), "reboot"},
		{"an explicit mode", file("/etc/a", hello), file("/etc/a", hello+`,"mode":420`), "reboot"},
		{"an explicit owner", file("/etc/a", hello), file("/etc/a", hello+`,"user":{"name":"root"}`), "reboot"},
		{"an owner by number", file("/etc/a", hello+`,"user":{"name":"root"}`), file("/etc/a", hello+`,"user":{"id":0}`), "reboot"},
		{"overwrite", file("/etc/a", hello), file("/etc/a", hello+`,"overwrite":true`), "reboot"},
		{"another encoding of the pull secret", file("/var/lib/kubelet/config.json", hello), file("/var/lib/kubelet/config.json", encoded), "nothing live"},
		{"an empty drop-in", dropin(``), dropin(`,"dropins":[{"name":"x.conf"}]`), "reboot"},
		{"drop-ins in another order", dropin(`,"dropins":[{"name":"x.conf"},{"name":"y.conf"}]`), dropin(`,"dropins":[{"name":"y.conf"},{"name":"x.conf"}]`), "reboot"},
		{"no mask", dropin(``), dropin(`,"mask":false`), "reboot"},
		{"empty contents", dropin(``), dropin(`,"contents":""`), "reboot"},
		{"disabled", dropin(``), dropin(`,"enabled":false`), "reboot"},
		{"kernel arguments in another order", `"kernelArguments":["a","b"]`, `"kernelArguments":["b","a"]`, "reboot"},
		{"kernel arguments in one entry", `"kernelArguments":["a","b"]`, `"kernelArguments":["a b"]`, "reboot"},
		{"no kernel arguments", ``, `"kernelArguments":[]`, "nothing"},
		{"extensions in another order", `"extensions":["ipsec","usbguard"]`, `"extensions":["usbguard","ipsec"]`, "reboot"},
		{"an extension twice", `"extensions":["ipsec"]`, `"extensions":["ipsec","ipsec"]`, "reboot"},
		{"no extensions", ``, `"extensions":[]`, "nothing"},
		{"the default kernel", `"kernelType":""`, `"kernelType":"default"`, "nothing"},
		{"empty lists", ``, config(`"storage":{"directories":[],"files":[]},"passwd":{"users":[]}`), "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) { predicts(t, c.old, c.new, disruption.DefaultCluster(), c.want) })
	}
}

// TestActions has each case of the operator's tests: what follows a change by its default node disruption policy, and
// how it finds the policy of a path.
func TestActions(t *testing.T) {
	const (
		secret, registries = "/var/lib/kubelet/config.json", "/etc/containers/registries.conf"
		random, policy     = "/etc/random-reboot-file", "/etc/containers/policy.json"
		gpg                = "/etc/machine-config-daemon/no-reboot/containers-gpg.pub"
		trust              = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
		crio               = "systemctl reload crio.service"
		special            = "systemctl reload crio, after a drain unless only mirrors by digest are added"
		restart            = "systemctl restart coreos-update-ca-trust.service; systemctl restart crio.service"
	)
	with := func(more string, list ...string) string {
		if more != "" {
			more += ","
		}
		return more + files(list...)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"a file without a policy", file(random, hello), file(random, ""), "reboot"},
		{"the pull secret", file(secret, hello), file(secret, ""), "nothing live"},
		{"a key", users(withKey), users(`{"name":"core","sshAuthorizedKeys":["b"]}`), "nothing live"},
		{"registries", file(registries, hello), file(registries, ""), special},
		{"registries, and the pull secret", file(registries, hello), files(registries+".d", secret), "reboot"},
		{"registries, and the pull secret, which needs nothing", file(registries, hello), file(secret, ""), special},
		{"registries go, another file stays", files(random, registries), files(random), special},
		{"the pull secret comes", files(registries), files(registries, secret), "nothing live"},
		{"arguments beside files", files(registries), with(`"kernelArguments":["a"]`, secret), "reboot"},
		{"an image beside files", files(registries), with(`"osImageURL":"r.example/a@sha256:1111111111111111111111111111111111111111111111111111111111111111"`, secret), "reboot"},
		{"the policy of signatures", file(policy, hello), file(policy, ""), crio},
		{"a key for signatures", file(gpg, hello), file(gpg, ""), crio},
		{"the bundle of certificates", file(trust, hello), file(trust, ""), restart},
		{"the bundle, and a key for signatures", file(trust, hello), file(gpg, ""), crio + "; " + restart},
		{"the registry of an internal release image", ``, file("/etc/iri-registry/config.yaml", hello), "systemctl restart iri-registry.service"},
		{"its script", ``, file("/usr/local/bin/load-registry-image.sh", hello), "systemctl restart iri-registry.service"},
		{"its certificate", ``, file("/etc/pki/ca-trust/source/anchors/iri-root-ca.crt", hello), "systemctl restart coreos-update-ca-trust.service"},
		{"its service", ``, units(`{"name":"iri-registry.service","enabled":true}`), "systemctl daemon-reload; systemctl restart iri-registry.service"},
		{"a drop-in as a file", ``, file("/etc/systemd/system/iri-registry.service.d/x.conf", hello), "reboot"},
	} {
		t.Run(c.name, func(t *testing.T) { predicts(t, c.old, c.new, disruption.DefaultCluster(), c.want) })
	}
}
