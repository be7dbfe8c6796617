#!/bin/bash
# A network for the initramfs that nobody needs to start: with rd.neednet=1 on the
# kernel command line, or when another unit starts systemd-networkd.

check() { return 255; }

depends() { echo systemd-networkd; }

installkernel() { instmods virtio_net af_packet; }

install() {
	inst_simple /etc/systemd/network/10-guest.network
	for unit in guest-neednet.service coreos-teardown-initramfs.service; do
		inst_simple "$moddir/$unit" "$systemdsystemunitdir/$unit"
	done
	# The socket would start the daemon with the first link, and the others wait for it.
	rm -f "$initdir$systemdsystemconfdir"/*.wants/systemd-networkd* "$initdir$systemdsystemunitdir"/*.wants/systemd-networkd*
	$SYSTEMCTL -q --root "$initdir" enable guest-neednet.service coreos-teardown-initramfs.service
}
