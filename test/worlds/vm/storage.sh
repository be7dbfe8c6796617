# Adds to a guest's tree what a root on LVM, md, LUKS, multipath or btrfs needs, and writes what is new also to a directory:
# storage.sh TREE FILES ROOTFS PACKAGES. PACKAGES has the files of Debian packages. The kernel modules are of the kernel that
# the guest has.
set -euo pipefail
tree=$1 files=$2 rootfs=$3 packages=$4
kver=$(ls "$tree/usr/lib/modules")

mkdir -p "$tree/usr/etc/lvm"
cp -a -n -t "$tree/usr/etc/lvm" "$packages/etc/lvm/lvm.conf"
(
	cd "$packages/usr"
	shopt -s nullglob
	cp -a -n --parents -t "$tree/usr" sbin/{lvm,dmsetup,mdadm,mdmon,cryptsetup,fsck.btrfs,multipath,multipathd,kpartx,pdata_tools,thin_*} bin/{btrfs,systemd-cryptsetup,pgrep,pkill} \
		lib/x86_64-linux-gnu/{libdevmapper,libcryptsetup,libaio,libreadline,libtinfo,libedit,libjson-c,liblzo2,libpopt,liburcu,libproc2}* \
		lib/libm{ultipath,path}*.so* lib/multipath lib/udev/kpartx_id lib/systemd/system/multipathd.* \
		lib/systemd/systemd-cryptsetup lib/systemd/system-generators/systemd-cryptsetup-generator \
		lib/systemd/system/{*cryptsetup*,*.wants/*cryptsetup*,mdmon@*,mdadm-*} lib/udev/rules.d/*{-dm,-lvm,-md-raid,-multipath,-kpartx,-del-part}*.rules
)
tar -xf "$rootfs" -C "$tree" --skip-old-files --wildcards \
	"./usr/lib/modules/*/kernel/"{drivers/md,drivers/scsi,fs/btrfs,crypto,arch/x86/crypto,lib}"/*.ko.xz"
tar -xOf "$rootfs" --wildcards './boot/config-*' >"$tree/usr/lib/modules/$kver/config"
chroot "$tree" depmod "$kver"

# Without this, multipath waits whether a second path comes.
printf '%s\n' 'defaults {' 'user_friendly_names yes' 'find_multipaths no' '}' >"$tree/usr/etc/multipath.conf"
# Modules of dracut: the drivers of a SCSI disk, and the rules that Debian has under other names than dracut knows.
module() {
	mkdir "$tree/usr/lib/dracut/modules.d/90$1"
	printf '%s\n' 'check() { return 255; }' "${@:2}" >"$tree/usr/lib/dracut/modules.d/90$1/module-setup.sh"
	chmod 0755 "$tree/usr/lib/dracut/modules.d/90$1/module-setup.sh"
}
module guest-scsi 'installkernel() { instmods virtio_scsi sd_mod; }'
module guest-multipath 'depends() { echo multipath; }' 'install() { inst_rules 56-dm-mpath.rules 56-dm-parts.rules 60-multipath.rules 60-kpartx.rules 68-del-part-nodes.rules 99-z-dm-mpath-late.rules; }'

# All other files are links into a repository.
cd "$tree"
mkdir -p "$files"
find usr -links 1 ! -type d -print0 | xargs -0 cp -a --parents -t "$files"
