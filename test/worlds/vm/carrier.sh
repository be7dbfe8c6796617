# Makes what the root is on in a part of a disk, by the guest's own programs, without the kernel's device mapper:
# carrier.sh CARRIER TREE DISK OFFSET SIZE KEY UUID. LVM: a volume group with one logical volume. LUKS: the part is encrypted,
# with a file system in it that leaves 32 MiB.
set -euo pipefail
carrier=$1 tree=$2 key=$6 uuid=$7
loop=$(losetup --find --show --offset "$4" --sizelimit "$5" "$3")
trap 'losetup --detach "$loop"' EXIT
mount --rbind /dev "$tree/dev"
mount -t proc proc "$tree/proc"
mount -t tmpfs tmpfs "$tree/run"
case $carrier in
LVM)
	config='global { activation=0 } devices { use_devicesfile=0 } backup { backup=0 archive=0 }'
	chroot "$tree" lvm pvcreate --config "$config" "$loop"
	chroot "$tree" lvm vgcreate --config "$config" vg "$loop"
	chroot "$tree" lvm lvcreate --config "$config" --activate n --zero n --wipesignatures n --name root --extents 100%FREE vg
	;;
LUKS)
	printf %s "$key" | chroot "$tree" cryptsetup reencrypt --encrypt --batch-mode --type luks2 --resilience none --uuid "$uuid" \
		--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --reduce-device-size 32M --key-file - "$loop"
	;;
esac
