#!/bin/bash
# dracut module with which pivot completes the first boot before the system starts.
# Include it with: dracut --add pivot. Unless OS images come from local media, the
# builder of the initramfs must also add a network module, such as systemd-networkd
# or network-manager.

# 255: include the module only on request. 1 would also refuse a request.
check() {
	require_binaries /usr/bin/pivot mount || return 1
	return 255
}

depends() {
	echo ostree systemd
}

# Without overlayfs pivot works on a copy of /etc.
installkernel() {
	hostonly='' instmods overlay
}

install() {
	inst_multiple /usr/bin/pivot mount
	# dracut sets moddir and systemdsystemunitdir
	# shellcheck disable=SC2154
	for unit in pivot-initramfs.service pivot-enter.service; do
		inst_simple "$moddir/$unit" "$systemdsystemunitdir/$unit"
	done
	# shellcheck disable=SC2154
	$SYSTEMCTL -q --root "$initdir" add-requires initrd.target pivot-initramfs.service
	$SYSTEMCTL -q --root "$initdir" add-wants initrd.target pivot-enter.service
}
