#!/bin/bash
# dracut module: pivot completes the first boot before the system starts.
# To include it: dracut --add pivot. What it may need beside it, the image's builder
# chooses: a network (the modules systemd-networkd or network-manager) unless OS
# images come from local media.

# Never by itself: a host gets it on request. Status 1 refuses a request, too.
check() {
	require_binaries /usr/bin/pivot mount || return 1
	return 255
}

depends() {
	echo ostree systemd
}

# Without overlayfs pivot does with a copy of /etc.
installkernel() {
	hostonly='' instmods overlay
}

install() {
	inst_multiple /usr/bin/pivot mount
	# moddir and systemdsystemunitdir are dracut's
	# shellcheck disable=SC2154
	inst_simple "$moddir/pivot-initramfs.service" "$systemdsystemunitdir/pivot-initramfs.service"
	# shellcheck disable=SC2154
	$SYSTEMCTL -q --root "$initdir" add-requires initrd.target pivot-initramfs.service
}
