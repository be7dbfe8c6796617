#!/bin/bash
# Turns a Debian root file system into the tree of an ostree commit: tree.sh DIR POLICIES [VARIANT].
# VARIANT is selinux, or selinux-any-label: then services may store labels that the policy does not
# know. A's policy and those that B may have instead go into the directory POLICIES.
# What a boot test needs stays, the rest goes: each file costs time at every build and boot.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
cd "$1"
policies=$2
variant=${3-}
kver=$(ls usr/lib/modules)
modules=usr/lib/modules/$kver

identity() {
	echo pivot >etc/hostname
	: >etc/machine-id
	: >etc/fstab
	rm -f etc/resolv.conf
	echo 'nameserver 10.0.2.3' >etc/resolv.conf
	sed "s/@VERSION@/0/g" "$here/os-release" >usr/lib/os-release
	chroot . passwd -q -d root
}

units() {
	install -D -m 0644 "$here/guest.network" etc/systemd/network/10-guest.network
	install -D -m 0644 "$here/tmpfiles.conf" usr/lib/tmpfiles.d/guest.conf
	install -D -m 0644 -t usr/lib/systemd/system "$here"/*.service
	install -D -m 0755 "$here/boot-report" usr/libexec/boot-report
	install -D -m 0644 "$here/udev-trigger.conf" usr/lib/systemd/system/systemd-udev-trigger.service.d/guest.conf
	rm -f etc/systemd/system/*.wants/*.timer etc/systemd/system/getty.target.wants/*
	cp -r "$here/dracut/." usr/lib/dracut/modules.d
	chroot . systemctl -q set-default multi-user.target
	chroot . systemctl -q enable systemd-networkd.service systemd-networkd-wait-online.service \
		ostree-remount.service boot-report.service kubelet.service
	# Newer releases of libostree start the service themselves.
	[ ! -e usr/lib/systemd/system/ostree-finalize-staged.path ] ||
		chroot . systemctl -q enable ostree-finalize-staged.path
	while read -r unit; do
		ln -sf /dev/null "etc/systemd/system/$unit"
	done <"$here/masked"
}

# selinux keeps the policy, enforcing, with what the guest's own programs need of it,
# and writes those that B may have, made from it as a container build does: by semodule.
# The pinning files get labels that nothing gives them by chance: of A's policy one, of
# B's another.
selinux() {
	if [[ $variant != selinux* ]]; then
		rm -rf etc/selinux usr/share/selinux
		return
	fi
	sed -i 's/^SELINUX=.*/SELINUX=enforcing/' etc/selinux/config
	# Where image-based hosts have it: libostree looks at the modules of a deployment, which has no /var.
	mv var/lib/selinux/default/* etc/selinux/default
	echo 'store-root=/etc/selinux' >>etc/selinux/semanage.conf
	prune_policy
	load_module guest
	[ "$variant" != selinux-any-label ] || load_module any-label
	label_pinning etc_runtime_t
	mkdir -p "$policies/a/etc"
	cp -a etc/selinux "$policies/a/etc"
	load_module other-labels
	label_pinning cert_t
	keep_policy other-labels
	load_module new-type
	label_pinning guest_new_t
	keep_policy new-type
}

# prune_policy keeps the modules for what a guest runs, with all that they need. Each of the 330 others costs time at
# every compilation of the policy, boot and relabelling. Older releases lack some.
prune_policy() {
	local module remove=()
	local keep=" base bubblewrap cgroup clock container crio getty hostname iptables kubernetes loadkeys lvm podman raid setrans shutdown ssh su sudo unconfined xdg xserver "
	for module in etc/selinux/default/active/modules/100/*; do
		module=${module##*/}
		[[ $keep = *" $module "* ]] || remove+=("$module")
	done
	chroot . semodule -N -X 100 -r "${remove[@]}"
}

# The administrator's lines, which go before those of the policy. What semodule has
# compiled of earlier ones would go before these: in a commit all files are of one time.
overrides=etc/selinux/default/contexts/files/file_contexts.local

# label_pinning says which type the pinning files are to have.
label_pinning() {
	printf "%s(/.*)?\tsystem_u:object_r:$1:s0\n" /etc/crio /etc/kubernetes >$overrides
	rm -f $overrides.bin
	cp $overrides etc/selinux/default/active
}

load_module() {
	cp "$here/selinux/$1.cil" tmp
	chroot . semodule -N -i "/tmp/$1.cil"
	rm "tmp/$1.cil"
}

# keep_policy takes the policy as one that B may have, and A's back.
keep_policy() {
	mkdir -p "$policies/$1/etc"
	mv etc/selinux "$policies/$1/etc"
	cp -a "$policies/a/etc/selinux" etc
}

# prune_modules keeps what a virtual machine has, or can have, with all that depends on. Older kernels lack some.
prune_modules() {
	local keep module
	keep=$(mktemp)
	for module in virtio_net virtio_blk virtio_pci virtio_rng qemu_fw_cfg overlay erofs loop af_packet xfs ext4 vfat nls_cp437 nls_ascii nls_iso8859-1 nls_utf8 efivarfs i6300esb; do
		# Fails for what is built in.
		chroot . modprobe -S "$kver" --show-depends $module 2>/dev/null || true
	done | awk '$1 == "insmod" { sub(".*/lib/modules/", "usr/lib/modules/", $2); print $2 }' | sort -u >"$keep"
	find "$modules/kernel" -name '*.ko*' | grep -vxF -f "$keep" | xargs rm -f
	rm -f "$keep"
	chroot . depmod "$kver"
}

prune_files() {
	rm -rf usr/share/{perl,perl5,zoneinfo,bash-completion,zsh,gnupg,common-licenses,man,doc,info,locale,lintian,bug,debconf,initramfs-tools,selinux} \
		usr/include usr/lib/klibc \
		usr/lib/x86_64-linux-gnu/{perl*,gconv,libapt*} usr/bin/{perl*,apt*} usr/lib/apt usr/lib/dpkg/methods etc/apt \
		usr/lib/udev/hwdb.*
}

kernel() {
	[ -e "$modules/vmlinuz" ] || cp "boot/vmlinuz-$kver" "$modules/vmlinuz" # newer packages have it there
}

# layout makes the mutable places links into /var and keeps /etc as ostree's default. Debian's
# policy lets no early service read a link at /usr/local.
layout() {
	local dir
	rm -rf boot var run tmp dev home root srv opt mnt media initrd.img* vmlinuz*
	mkdir boot var run dev sysroot
	for dir in home srv opt mnt; do ln -s "var/$dir" $dir; done
	ln -s var/roothome root
	if [[ $variant != selinux* ]]; then
		rm -rf usr/local
		ln -s ../var/usrlocal usr/local
	fi
	ln -s run/media media
	ln -s sysroot/tmp tmp
	ln -s sysroot/ostree ostree
	mv etc usr/etc
}

identity
units
selinux
prune_modules
prune_files
kernel
layout
