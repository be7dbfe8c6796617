#!/bin/bash
# Makes an initramfs with the dracut of a guest's tree: initramfs.sh TREE IMAGE [MODULE]...
# The modules come on top of those that every guest has.
# Runs in a mount namespace of its own; what it mounts below TREE nobody else sees.
set -euo pipefail
tree=$1 image=$2
shift 2
kver=$(ls "$tree/usr/lib/modules")

# Read-only: its files are links into a repository.
mkdir -p "$tree/etc"
mount --bind "$tree" "$tree"
mount --bind "$tree/usr/etc" "$tree/etc"
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount -t tmpfs -o mode=0755 tmpfs "$tree/run"
mount -t tmpfs -o mode=0755 tmpfs "$tree/var"
mkdir "$tree/var/tmp"
mount -o remount,bind,ro "$tree"
mount -o remount,bind,ro "$tree/etc"

drivers="overlay xfs"
# Debian has the driver of this watchdog since kernel 6.12. systemd can use it in the initramfs already.
[ -z "$(find "$tree/usr/lib/modules/$kver" -name 'i6300esb.ko*')" ] || drivers+=" i6300esb"

trigger=/usr/lib/systemd/system/systemd-udev-trigger.service.d
chroot "$tree" dracut --quiet --force --no-hostonly --no-hostonly-cmdline --reproducible --no-compress --kver "$kver" \
	-m "ostree systemd systemd-initrd dracut-systemd base rootfs-block udev-rules guest-network $*" \
	--include $trigger $trigger --force-drivers "virtio_blk virtio_pci" --add-drivers "$drivers" /run/initramfs.img
cp "$tree/run/initramfs.img" "$image"
chmod 0644 "$image"
