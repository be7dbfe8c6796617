# Adds to a guest's tree what a root on LVM, md, LUKS or btrfs needs, and writes what is new also to a directory:
# storage.sh TREE FILES ROOTFS SUITE. The kernel modules are of the kernel that the guest has.
set -euo pipefail
tree=$1 files=$2 rootfs=$3 suite=$4
kver=$(ls "$tree/usr/lib/modules")
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT

# As in packages.sh.
own=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
# shellcheck disable=SC2016 # apt expands the variables
mapfile -t sources < <(
	apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		sed -nE "s/ $own(-updates|-security)? main\$/ $suite\1 main/p" | sort -u
)
[[ " ${sources[*]-} " == *" $suite main "* ]] || sources=()
valid=$(apt-config shell valid Acquire::Check-Valid-Until/b 2>/dev/null) && eval "$valid"
mmdebstrap --quiet --mode=root --variant=extract --components=main --aptopt='APT::Install-Recommends "false"' \
	--aptopt="Acquire::Check-Valid-Until \"${valid:-true}\"" --include=lvm2,mdadm,cryptsetup-bin,systemd-cryptsetup,btrfs-progs \
	"$suite" "$packages" ${sources[@]+"${sources[@]}"}

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
