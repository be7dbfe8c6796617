#!/bin/bash
# dracut module that measures the memory of a machine in the initramfs.

check() { return 0; }

depends() { echo systemd; }

install() {
	inst_multiple /usr/libexec/boot-gauge
	# dracut sets moddir and systemdsystemunitdir
	# shellcheck disable=SC2154
	inst_simple "$moddir/boot-gauge.service" "$systemdsystemunitdir/boot-gauge.service"
	# shellcheck disable=SC2154
	$SYSTEMCTL -q --root "$initdir" add-wants sysinit.target boot-gauge.service
}
