#!/bin/bash
# Sets the SELinux labels of those files of a sysroot that are not part of a commit, with the
# deployment's own policy and programs: label.sh SYSROOT DEPLOYMENT VAR. It must run in its own
# mount namespace.
set -euo pipefail
sysroot=$1 deployment=$2 var=$3
. "$deployment/etc/selinux/config"

# Kernel and initramfs are hard links to objects, also in the repository that the disk is made
# from. Copy them, so that the objects keep their labels.
for file in "$sysroot"/boot/ostree/*/*; do
	cp -a "$file" "$file.copy"
	mv "$file.copy" "$file"
done

mount --bind "$deployment" "$deployment"
mount -t proc proc "$deployment/proc"
mount --bind "$var" "$deployment/var"
mount --bind "$sysroot" "$deployment/sysroot"
mount --bind "$sysroot/boot" "$deployment/boot"
chroot "$deployment" setfiles -F "/etc/selinux/$SELINUXTYPE/contexts/files/file_contexts" /etc /var /boot

# The policy does not cover the rest. Objects and deployed files have their labels already.
chroot "$deployment" chcon -h system_u:object_r:root_t:s0 /sysroot
chroot "$deployment" find /sysroot/ostree \
	\( -path '/sysroot/ostree/repo/objects/??/*' -o -path '/sysroot/ostree/deploy/*/deploy/*[0-9]' -o -path '/sysroot/ostree/deploy/*/var' \) -prune -o -print0 |
	chroot "$deployment" xargs -0 chcon -h system_u:object_r:usr_t:s0
chroot "$deployment" chcon -h system_u:object_r:tmp_t:s0 /sysroot/tmp
