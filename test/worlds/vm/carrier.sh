# Makes a volume group with one logical volume in a part of a disk, by the guest's own program, without the kernel's device
# mapper: carrier.sh TREE DISK OFFSET SIZE.
set -euo pipefail
tree=$1
loop=$(losetup --find --show --offset "$3" --sizelimit "$4" "$2")
trap 'losetup --detach "$loop"' EXIT
mount --rbind /dev "$tree/dev"
mount -t proc proc "$tree/proc"
mount -t tmpfs tmpfs "$tree/run"
config='global { activation=0 } devices { use_devicesfile=0 } backup { backup=0 archive=0 }'
chroot "$tree" lvm pvcreate --config "$config" "$loop"
chroot "$tree" lvm vgcreate --config "$config" vg "$loop"
chroot "$tree" lvm lvcreate --config "$config" --activate n --zero n --wipesignatures n --name root --extents 100%FREE vg
