#!/bin/bash
# Stands in for Ignition's units of Fedora CoreOS in the initramfs, as far as they own mounts.

check() { return 255; }

install() {
	inst_multiple mount umount
	for unit in ignition-complete.target ignition-ostree-mount-var.service guest-foreign-mount.service; do
		inst_simple "$moddir/$unit" "$systemdsystemunitdir/$unit"
	done
	$SYSTEMCTL -q --root "$initdir" add-requires initrd.target ignition-complete.target
	$SYSTEMCTL -q --root "$initdir" add-requires ignition-complete.target ignition-ostree-mount-var.service
	$SYSTEMCTL -q --root "$initdir" add-wants ignition-complete.target guest-foreign-mount.service
}
