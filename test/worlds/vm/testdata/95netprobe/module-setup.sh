#!/bin/bash
# A dracut module of an overlay: says in the initramfs what the network is.
install() {
	inst_multiple ip systemctl
	inst_simple "$moddir/netprobe" /usr/bin/netprobe
	inst_simple "$moddir/netprobe.service" "$systemdsystemunitdir/netprobe.service"
	$SYSTEMCTL -q --root "$initdir" enable netprobe.service
}
