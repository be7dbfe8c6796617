#!/bin/bash
# Makes the Debian root file system that a guest is cut from: rootfs.sh SUITE TARBALL.
set -euo pipefail

suite=$1
packages=(
	systemd systemd-sysv dbus udev kmod iproute2 zstd
	linux-image-cloud-amd64 dracut-core dracut-network
	# ostree-boot has the dracut module, ostree-prepare-root and ostree-finalize-staged.
	ostree ostree-boot
	# Only guests with SELinux keep the policy. libostree runs semodule in bubblewrap.
	selinux-policy-default policycoreutils selinux-utils bubblewrap
)

# This machine's own Debian sources, if it is Debian, else mmdebstrap's default.
own=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
# shellcheck disable=SC2016 # apt expands the variables
mapfile -t sources < <(
	apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		sed -nE "s/ $own(-updates|-security)? main\$/ $suite\1 main/p" | sort -u
)
[[ " ${sources[*]-} " == *" $suite main "* ]] || sources=()

# A mirror that does not follow is good enough if it is for this machine.
valid=$(apt-config shell valid Acquire::Check-Valid-Until/b 2>/dev/null) && eval "$valid"

options=(--quiet --mode=root --variant=minbase --components=main --aptopt='APT::Install-Recommends "false"')
options+=(--aptopt="Acquire::Check-Valid-Until \"${valid:-true}\"")
for dir in man doc locale info; do
	options+=(--dpkgopt="path-exclude=/usr/share/$dir/*")
done
include=$(IFS=,; echo "${packages[*]}")
mmdebstrap "${options[@]}" --include="$include" "$suite" "$2" ${sources[@]+"${sources[@]}"}
