# Adds to a guest's tree what a root on LVM, md, LUKS or btrfs needs, and writes what is new also to a directory:
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
	cp -a -n --parents -t "$tree/usr" sbin/{lvm,dmsetup,mdadm,mdmon,cryptsetup,fsck.btrfs} bin/{btrfs,systemd-cryptsetup} \
		lib/x86_64-linux-gnu/{libdevmapper,libcryptsetup,libaio,libreadline,libtinfo,libedit,libjson-c,liblzo2,libpopt}* \
		lib/systemd/systemd-cryptsetup lib/systemd/system-generators/systemd-cryptsetup-generator \
		lib/systemd/system/{*cryptsetup*,*.wants/*cryptsetup*,mdmon@*,mdadm-*} lib/udev/rules.d/*{-dm,-lvm,-md-raid}*.rules
)
tar -xf "$rootfs" -C "$tree" --skip-old-files --wildcards \
	"./usr/lib/modules/*/kernel/"{drivers/md,fs/btrfs,crypto,arch/x86/crypto,lib}"/*.ko.xz"
tar -xOf "$rootfs" --wildcards './boot/config-*' >"$tree/usr/lib/modules/$kver/config"
chroot "$tree" depmod "$kver"

# All other files are links into a repository.
cd "$tree"
mkdir -p "$files"
find usr -links 1 ! -type d -print0 | xargs -0 cp -a --parents -t "$files"
