package settings_test

import (
	"reflect"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
)

// with returns the settings of a machine without any configuration, changed.
func with(change func(s *settings.Settings)) settings.Settings {
	s := settings.Default()
	change(&s)
	return s
}

// TestSettings (P45): the kernel command line overrides the file.
func TestSettings(t *testing.T) {
	defaults := settings.Default()
	for _, c := range []struct {
		name, cmdline, file string
		want                settings.Settings
	}{
		{"nobody chose", "root=/dev/vda", "", defaults},
		{"file", "", "# a comment\n\nmode=system\non-failure = system\nreboot-method=kexec\n",
			with(func(s *settings.Settings) { s.Mode, s.OnFailure, s.RebootMethod = "system", "system", "kexec" })},
		{"no newline at the end", "", "mode=off", with(func(s *settings.Settings) { s.Mode = "off" })},
		{"kernel command line", "quiet pivot.mode=off pivot.on-failure=system pivot.reboot-method=kexec",
			"", with(func(s *settings.Settings) { s.Mode, s.OnFailure, s.RebootMethod = "off", "system", "kexec" })},
		{"dash or underscore", "pivot.on_failure=system", "reboot_method=kexec",
			with(func(s *settings.Settings) { s.OnFailure, s.RebootMethod = "system", "kexec" })},
		{"the kernel command line wins", "pivot.mode=initramfs", "mode=off\nreboot-method=kexec",
			with(func(s *settings.Settings) { s.RebootMethod = "kexec" })},
		{"its last word wins", "pivot.mode=off pivot.mode=\"system\"", "",
			with(func(s *settings.Settings) { s.Mode = "system" })},
		{"what becomes of an image's kernel arguments", "", "image-kargs=apply",
			with(func(s *settings.Settings) { s.ImageKargs = "apply" })},
		{"the same on the kernel command line", "pivot.image_kargs=print", "image-kargs=apply",
			with(func(s *settings.Settings) { s.ImageKargs = "print" })},
		{"without the application images that an image binds", "pivot.bound_images=ignore", "bound-images=require",
			with(func(s *settings.Settings) { s.BoundImages = "ignore" })},
		{"a system that is entered once", "pivot.fallback=none", "fallback=auto", defaults},
		{"the same in the file", "", "fallback=auto", with(func(s *settings.Settings) { s.Fallback = "auto" })},
		{"a lost name is only said", "pivot.identity=warn", "identity=hold", with(func(s *settings.Settings) { s.Identity = settings.IdentityWarn })},
		{"an image's boot loader is never installed", "pivot.boot-loader=never", "boot-loader=always", with(func(s *settings.Settings) { s.BootLoader = settings.BootLoaderNever })},
		{"metrics", "", "metrics=/var/lib/node_exporter//pivot.prom",
			with(func(s *settings.Settings) { s.Metrics = "/var/lib/node_exporter/pivot.prom" })},
		{"verdicts that do not refuse", "pivot.accept=drivers", "accept=processor,programs", with(func(s *settings.Settings) { s.Accept = []verdict.Name{verdict.Drivers} })},
		{"none, for one boot", "pivot.accept=none", "accept=drivers", defaults},
		{"units of a system on trial", "pivot.health=a.service,b@x.socket", "health=c.service",
			with(func(s *settings.Settings) { s.Health = []string{"a.service", "b@x.socket"} })},
		{"a window, and a fleet's lock", "pivot.window=\"Sat,Sun 02:00-05:00\" pivot.fleetlock_group=a.b", "window=02:00-04:00\nfleetlock=https://fleetlock.example\nfleetlock-id=this",
			with(func(s *settings.Settings) {
				s.Window = "Sat,Sun 02:00-05:00"
				s.FleetLock = settings.FleetLock{URL: "https://fleetlock.example", Group: "a.b", ID: "this"}
			})},
		{"none of both, for one boot", "pivot.window=none pivot.fleetlock=none", "window=02:00-04:00\nfleetlock=https://fleetlock.example",
			defaults},
		{"what is for init", "-- pivot.mode=off", "", defaults},
		{"others' arguments", "pivotal.mode=off mode=off", "", defaults},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(t, c.cmdline, c.file)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	if got, err := settings.Read(t.TempDir(), kargs.Split("quiet")); err != nil || !reflect.DeepEqual(got, defaults) {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	// An invalid mode does not keep the one before it.
	if got, err := read(t, "pivot.mode=systm", "mode=off"); err == nil || !reflect.DeepEqual(got, defaults) {
		t.Errorf("with a misspelt mode: %+v, %v", got, err)
	}
	// A file that cannot be read is an error, but the kernel command line still applies.
	unread := withFiles(t, map[string]string{settings.Path + "/x": ""})
	if got, err := settings.Read(unread, kargs.Split("pivot.mode=off")); err == nil || got.Mode != settings.ModeOff {
		t.Errorf("with a file that cannot be read: %+v, %v", got, err)
	}
}

// read reads the settings of a machine with a kernel command line and a file.
func read(t *testing.T, cmdline, file string) (settings.Settings, error) {
	t.Helper()
	return settings.Read(withFiles(t, map[string]string{settings.Path: file}), kargs.Split(cmdline))
}

// TestWrongSettings (P45) expects one report with all problems, and all valid values.
func TestWrongSettings(t *testing.T) {
	got, err := read(t, "pivot.mode=never pivot.moed=off pivot.on-failure=system pivot.mode",
		"mode system\n\n# \nmode=initrd\nreboot_method=kexec\nreboot-method=reboot\nkey=\nMODE=off\nimage-kargs=yes\nmetrics=pivot.prom\nwindow=Sat\nfleetlock=https://a:secret@b\nfleetlock-group=a b\nfleetlock-id=\naccept=drivers,tpm2\n")
	if fault.KindOf(err) != fault.BadInput || fault.HintOf(err) == "" {
		t.Fatalf("error %v", err)
	}
	if want := with(func(s *settings.Settings) { s.OnFailure, s.RebootMethod = "system", "kexec" }); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	const file = "/etc/pivot/firstboot.conf, line "
	want := []string{
		"cannot use the settings of the first boot:",
		file + `1: "mode system" is no KEY=VALUE`,
		file + `4: "initrd" is not allowed; it is one of [initramfs system off]`,
		file + `6: reboot-method is set on line 5 already`,
		file + `7: there is no setting "key"; there are mode, on-failure, reboot-method, image-kargs, bound-images, fallback, identity, boot-loader, health, accept, metrics, window, fleetlock, fleetlock-group and fleetlock-id`,
		file + `8: there is no setting "MODE"; there are mode, on-failure, reboot-method, image-kargs, bound-images, fallback, identity, boot-loader, health, accept, metrics, window, fleetlock, fleetlock-group and fleetlock-id`,
		file + `9: "yes" is not allowed; it is one of [auto print apply]`,
		file + `10: "pivot.prom" is not allowed; it is an absolute path that ends in .prom`,
		file + `11: "Sat" is not allowed: it is [DAYS] HH:MM-HH:MM [ZONE], as "Sat,Sun 22:00-04:00" or "Mon..Fri 01:00-03:30 Europe/Berlin", and perhaps more of them with semicolons between`,
		file + `12: a user, a query or a fragment is not allowed in the URL of the fleet's lock`,
		file + `13: "a b" is not allowed; a group has letters, digits, points and dashes`,
		file + `14: "" is not allowed; an ID has no white space`,
		file + `15: "tpm2" is no verdict; there are ` + verdictNames(),
		`kernel command line, pivot.mode: "never" is not allowed; it is one of [initramfs system off]`,
		`kernel command line, pivot.moed: there is no setting "moed"; there are mode, on-failure, reboot-method, image-kargs, bound-images, fallback, identity, boot-loader, health, accept, metrics, window, fleetlock, fleetlock-group and fleetlock-id`,
		`kernel command line, pivot.mode: "" is not allowed; it is one of [initramfs system off]`,
	}
	if err.Error() != strings.Join(want, "\n") {
		t.Errorf("error\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

// FuzzSettings: for any input, the settings have valid values.
func FuzzSettings(f *testing.F) {
	f.Add("pivot.mode=off", "mode=system\n")
	f.Add("pivot.on_failure=\"stop\" --", "# x\nreboot-method = kexec")
	f.Add("pivot.=", "=\r\n")
	f.Add("pivot.metrics=/a.prom", "metrics=/b/../c.prom")
	f.Fuzz(func(t *testing.T, cmdline, file string) {
		s, err := read(t, cmdline, file)
		if err != nil && fault.KindOf(err) != fault.BadInput {
			t.Errorf("error %v", err)
		}
		metrics := ""
		if s.Metrics != "" {
			metrics = "\nmetrics=" + s.Metrics
		}
		again, err := read(t, "", "mode="+string(s.Mode)+"\non-failure="+string(s.OnFailure)+
			"\nreboot-method="+string(s.RebootMethod)+"\nimage-kargs="+string(s.ImageKargs)+metrics)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%+v read back: %+v, %v", s, again, err)
		}
	})
}

// verdictNames returns the names of all verdicts, as an error lists them.
func verdictNames() string {
	var names []string
	for _, name := range verdict.Names() {
		names = append(names, string(name))
	}
	return strings.Join(names, ", ")
}
