#!/bin/bash
# Makes the Debian root file system that the guest is cut from: rootfs.sh TARBALL.
set -euo pipefail

suite=bookworm
packages=(
	systemd systemd-sysv dbus udev kmod iproute2 zstd
	linux-image-cloud-amd64 dracut-core
	# ostree-boot has the dracut module, ostree-prepare-root and ostree-finalize-staged.
	ostree ostree-boot
)

# This machine's own Debian sources if it has this release, else mmdebstrap's default.
# shellcheck disable=SC2016 # apt expands the variables
mapfile -t sources < <(
	apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		grep -E " $suite(-updates|-security)? main$" | sort -u
)
[[ " ${sources[*]-} " == *" $suite main "* ]] || sources=()

options=(--quiet --mode=root --variant=minbase --components=main --aptopt='APT::Install-Recommends "false"')
for dir in man doc locale info; do
	options+=(--dpkgopt="path-exclude=/usr/share/$dir/*")
done
include=$(IFS=,; echo "${packages[*]}")
mmdebstrap "${options[@]}" --include="$include" "$suite" "$1" ${sources[@]+"${sources[@]}"}
