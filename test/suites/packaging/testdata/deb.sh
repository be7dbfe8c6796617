# In the sandbox: deb.sh OLD NEW, two versions of the packages of Debian.
fail() {
	echo "FAIL: $*"
	exit 1
}
# dracut, which this system may lack, is all that --force-depends is for.
install() {
	dpkg --force-depends -i /packages/pivot_"$1"_*.deb /packages/pivot-dracut_"$1"_*.deb /packages/pivotctl_"$1"_*.deb /packages/pivot-agent_"$1"_*.deb
	for program in pivot pivotctl pivot-agent; do
		[ "$($program --version)" = "$program version $1" ] || fail "$program of $1 says $($program --version)"
	done
}
state() {
	for unit in pivot-firstboot.service pivot-trial.service; do
		[ "$(systemctl is-enabled $unit 2>&1)" = "$1" ] || fail "$2: $unit is $(systemctl is-enabled $unit 2>&1)"
	done
}

# What journalctl -x says of a message that has an ID: the first and the last of the catalog.
catalog() {
	found=$(journalctl --list-catalog 2b68def496e64f3b9f03786aa647be3f 396b7123bc044cbebf01c8fdc9ac3f14 2>/dev/null | wc -l)
	[ "$found" = "$1" ] || fail "$2: journalctl explains $found of pivot's messages, want $1"
}

echo "@@ install"
install "$1"
state enabled "installed"
catalog 2 "installed"
dpkg -L pivot pivot-dracut pivotctl pivot-agent | while read -r path; do [ -d "$path" ] || echo "$path"; done >/tmp/files
[ -s /tmp/files ] || fail "the packages are empty"
systemd-analyze verify --man=no pivot-firstboot.service pivot-trial.service || fail "systemd refuses the unit"
[ -z "$(dpkg --verify pivot pivotctl pivot-agent pivot-dracut)" ] || fail "dpkg --verify finds differences"

for page in pivot-status.8 pivot-image-inspect.8 pivotctl-config-validate.1 pivot-agent-node.8; do
	zcat "/usr/share/man/man${page##*.}/$page.gz" | grep -q "^\.Os pivot $1$" || fail "$page has no footer with the version"
done
[ -s /usr/share/doc/pivot/docs/schema/Status.json ] || fail "the schemas are not there, or compressed"
mkdir -p /var/lib/pivot/found && echo '{}' >/var/lib/pivot/journal.json

echo "@@ upgrade, while the administrator has it disabled"
systemctl disable pivot-firstboot.service pivot-trial.service
state disabled "disabled"
install "$2"
state disabled "upgraded"

echo "@@ upgrade, enabled"
systemctl enable pivot-firstboot.service pivot-trial.service
dpkg --force-downgrade --force-depends -i /packages/pivot_"$1"_*.deb
state enabled "installed over it"

echo "@@ remove"
dpkg --remove --force-depends pivot
[ -e /var/lib/pivot/journal.json ] || fail "removing, not purging, took the journal"
dpkg --purge --force-depends pivot pivotctl pivot-agent pivot-dracut
while read -r path; do
	[ ! -e "$path" ] && [ ! -L "$path" ] || fail "$path is still there"
done </tmp/files
[ ! -e /var/lib/pivot ] || fail "/var/lib/pivot is still there"
catalog 0 "removed"
left=$(find /etc/systemd /var/lib/systemd /usr/lib/systemd /usr/lib/dracut -name '*pivot*' 2>/dev/null || :)
[ -z "$left" ] || fail "left behind: $left"
echo "@@ done"
