#!/bin/sh
# Installs the missing Debian packages that the tests and the demonstration need; with the argument "demo", those
# that "make demo" needs, and no others.
# If it cannot install them, it lists them and exits with 0, so that the tests
# that need them are skipped; with CI=true it fails instead.
set -u
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive
whom=${1:-test}

# Each line has who needs it (test: only the tests), a command or file that must exist, its package, and what it is
# needed for.
needs() {
	cat <<-'EOF'
	demo git                                git              the version in the binary
	demo /etc/ssl/certs/ca-certificates.crt ca-certificates  downloads over TLS
	demo ostree                             ostree           the tests against a real ostree
	demo /usr/lib/dracut/modules.d/30ignition/ignition ignition the boot tests, and the test that lets it apply what pivot makes for it
	demo systemd-analyze                    systemd          the check of the systemd units
	test ip                                 iproute2         the test of the network in the initramfs
	test dbus-daemon                        dbus-daemon      the test of what delays a reboot
	test mandoc                             mandoc           the check of the manual pages
	test man                                man-db           the headers and footers of the manual pages
	demo mmdebstrap                         mmdebstrap       the guest of the boot tests
	demo mkfs.ext4                          e2fsprogs        the disks of the boot tests
	demo chattr                             e2fsprogs        the disks of the boot tests
	test sfdisk                             fdisk            the disks of the boot tests
	test mkfs.vfat                          dosfstools       the boot loader that follows its kernel
	test mcopy                              mtools           the boot loader that follows its kernel
	test mkfs.xfs                           xfsprogs         the disks of the boot tests
	test mkfs.btrfs                         btrfs-progs      the test of where GRUB cannot write
	test qemu-system-x86_64                 qemu-system-x86  the boot tests
	demo qemu-storage-daemon                qemu-system-common the power cuts
	test grub-mkimage                       grub-common      the disk that starts by itself, for the test of make test-host
	test /usr/lib/grub/i386-pc/boot.img     grub-pc-bin      the disk that starts by itself, for the test of make test-host
	test podman                             podman           the benchmark, to compare with
	test skopeo                             skopeo           the benchmark, to compare with
	test umoci                              umoci            images of a container tool, and the benchmark, to compare with
	test strace                             strace           the test of what an import makes durable, and when
	test matchpathcon                       selinux-utils    the tests against the real libselinux
	test sefcontext_compile                 selinux-utils    the tests against the real libselinux
	test dpkg-buildpackage                  dpkg-dev         the packages
	test dh                                 debhelper        the packages
	test pkg-config                         pkgconf          the packages
	test lintian                            lintian          the packages
	test rpmbuild                           rpm              the packages
	test rpmlint                            rpmlint          the packages
	test createrepo_c                       createrepo-c     the tests of kernel types and extensions
	test ansible-playbook                   ansible-core     the test of the Ansible module
	test curl                               curl             the documents
	test jq                                 jq               the documents
	test zsh                                zsh              the completions
	test fish                               fish             the completions
	test /usr/share/bash-completion/bash_completion bash-completion the completions
	EOF
}

# lacking prints "package reason" for each command or file that does not exist.
lacking() {
	needs | while read -r who thing package reason; do
		[ "$who" = demo ] || [ "$whom" = test ] || continue
		case $thing in
		/*) test -e "$thing" ;;
		*) command -v "$thing" >/dev/null ;;
		esac || echo "$package $reason"
	done | sort -u -k1,1
}

# report prints $1, the name and the reason for each missing package.
report() {
	lacking | while read -r package reason; do
		echo "$1 $package (needed for $reason)"
	done
}

give_up() {
	[ "$whom" = demo ] && echo "$1" || echo "$1: some tests will be skipped"
	report "  lacking:"
	[ "${CI:-}" != true ]
	exit
}

# unpack $1, of which the tests only read files or run a program. It is not installed, because installed it would
# change this host: a policy would be that of the host, and a server would be started.
unpack() {
	dir="${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/machine-pivot/$1"
	[ ! -d "$dir" ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 0
	tmp=$(mktemp -d)
	echo "unpacking $1 (needed for $2)"
	(cd "$tmp" && { apt-get -q download "$1" || { apt-get -q update && apt-get -q download "$1"; }; }) >/dev/null 2>&1 &&
		dpkg-deb -x "$tmp"/*.deb "$tmp/x" && mkdir -p "$(dirname "$dir")" && mv "$tmp/x" "$dir" ||
		echo "cannot get $1: some tests will be skipped"
	rm -rf "$tmp"
}
if [ "$whom" = test ]; then
	unpack selinux-policy-default "the tests against the real libselinux"
	unpack prometheus "the tests of the alert rules"
	unpack ovmf "the boots with Secure Boot"
	unpack shim-signed "the boots with Secure Boot"
	unpack grub-efi-amd64-signed "the boots with Secure Boot"
fi

[ -n "$(lacking)" ] || exit 0
command -v apt-get >/dev/null || give_up "this is not Debian, nothing can be installed"
[ "$(id -u)" = 0 ] || give_up "not running as root, nothing can be installed"

report installing
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The first try is without apt-get update, in case the package lists are up to date.
for try in 1 2 3 4; do
	[ $try = 1 ] || apt-get -q update >>"$log" 2>&1
	# shellcheck disable=SC2046 # one word for each package
	apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 \
		install $(lacking | cut -d' ' -f1) >>"$log" 2>&1
	[ -n "$(lacking)" ] || exit 0
done
tail -n 20 "$log"
give_up "cannot install packages"
