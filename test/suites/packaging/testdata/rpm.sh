# In the sandbox: rpm.sh OLD NEW, two versions of the packages for rpm. What they require is
# not in rpm's database here: --nodeps.
fail() {
	echo "FAIL: $*"
	exit 1
}
packages="pivot pivotctl pivot-agent pivot-dracut"
files() {
	for package in $packages; do echo /packages/$package-"$1"-1.*.rpm; done
}
rpm() { command rpm --force-debian "$@"; }
state() {
	for unit in pivot-firstboot.service pivot-trial.service; do
		[ "$(systemctl is-enabled $unit 2>&1)" = "$1" ] || fail "$2: $unit is $(systemctl is-enabled $unit 2>&1)"
	done
}
says() {
	for program in pivot pivotctl pivot-agent; do
		[ "$($program --version)" = "$program version $1" ] || fail "$program of $1 says $($program --version)"
	done
}

# What journalctl -x says of a message that has an ID: the first and the last of the catalog.
catalog() {
	found=$(journalctl --list-catalog 2b68def496e64f3b9f03786aa647be3f 396b7123bc044cbebf01c8fdc9ac3f14 2>/dev/null | wc -l)
	[ "$found" = "$1" ] || fail "$2: journalctl explains $found of pivot's messages, want $1"
}

echo "@@ install"
rpm -i --nodeps $(files "$1")
says "$1"
state enabled "installed"
catalog 2 "installed"
rpm -ql $packages | while read -r path; do [ -d "$path" ] || echo "$path"; done >/tmp/files
[ -s /tmp/files ] || fail "the packages are empty"
systemd-analyze verify --man=no pivot-firstboot.service pivot-trial.service || fail "systemd refuses the unit"
rpm -V --nodeps $packages || fail "rpm -V finds differences"

echo "@@ upgrade, while the administrator has it disabled"
systemctl disable pivot-firstboot.service pivot-trial.service
rpm -U --nodeps $(files "$2")
says "$2"
state disabled "upgraded"

echo "@@ upgrade, enabled"
systemctl enable pivot-firstboot.service pivot-trial.service
rpm -U --oldpackage --nodeps $(files "$1")
state enabled "installed over it"

echo "@@ remove"
rpm -e --nodeps $packages
while read -r path; do
	[ ! -e "$path" ] && [ ! -L "$path" ] || fail "$path is still there"
done </tmp/files
catalog 0 "removed"
left=$(find /etc/systemd /usr/lib/systemd /usr/lib/dracut -name '*pivot*' 2>/dev/null || :)
[ -z "$left" ] || fail "left behind: $left"
echo "@@ done"
