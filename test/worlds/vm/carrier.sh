# Makes what the root is on in a part of a disk, by the guest's own programs, without the kernel's device mapper:
# carrier.sh CARRIER TREE DISK OFFSET SIZE KEY UUID. LVM: a volume group with one logical volume. thin: one
# that is a thin volume, with all its blocks in their order, and the pool's metadata in the last 8 MiB. LUKS: the part is encrypted,
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
thin)
	# What lvm would have written. It asks the kernel to make a pool.
	all=$((($5 - 1048576) / 4194304)) data=$((($5 - 1048576) / 4194304 - 2))
	volume() { # NAME ID STATUS EXTENTS SEGMENT
		echo "$1 { id = \"AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAA$2\" status = [\"READ\", \"WRITE\"$3] flags = [] segment_count = 1"
		echo "segment1 { start_extent = 0 extent_count = $4 $5 } }"
	}
	{
		echo 'contents = "Text Format Volume Group" version = 1'
		echo 'vg { id = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAA0" seqno = 1 format = "lvm2" status = ["RESIZEABLE", "READ", "WRITE"]'
		echo "flags = [] extent_size = 8192 max_lv = 0 max_pv = 0 metadata_copies = 0"
		echo "physical_volumes { pv0 { id = \"AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAA9\" status = [\"ALLOCATABLE\"] flags = [] pe_start = 2048 pe_count = $all } }"
		echo "logical_volumes {"
		volume root 1 ', "VISIBLE"' $data 'type = "thin" thin_pool = "pool" transaction_id = 0 device_id = 1'
		volume pool 2 ', "VISIBLE"' $data 'type = "thin-pool" metadata = "pool_tmeta" pool = "pool_tdata" transaction_id = 1 chunk_size = 128 discards = "passdown" zero_new_blocks = 1'
		volume pool_tmeta 3 '' 2 "type = \"striped\" stripe_count = 1 stripes = [\"pv0\", $data]"
		volume pool_tdata 4 '' $data 'type = "striped" stripe_count = 1 stripes = ["pv0", 0]'
		echo "} }"
	} >"$tree/run/vg"
	config='global { activation=0 } devices { use_devicesfile=0 } backup { backup=0 archive=0 }'
	chroot "$tree" lvm pvcreate --config "$config" --uuid AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAA9 --restorefile /run/vg "$loop"
	chroot "$tree" lvm vgcfgrestore --config "$config" --force --yes --file /run/vg vg
	blocks=$((data * 64))
	cat >"$tree/run/pool" <<-END
		<superblock uuid="" time="0" transaction="1" version="2" data_block_size="128" nr_data_blocks="$blocks">
		<device dev_id="1" mapped_blocks="$blocks" transaction="0" creation_time="0" snap_time="0">
		<range_mapping origin_begin="0" data_begin="0" length="$blocks" time="0"/>
		</device>
		</superblock>
	END
	metadata=$(losetup --find --show --offset $(($4 + 1048576 + data * 4194304)) --sizelimit 8388608 "$3")
	trap 'losetup --detach "$loop"; losetup --detach "$metadata"' EXIT
	chroot "$tree" thin_restore --input /run/pool --output "$metadata"
	;;
LUKS)
	printf %s "$key" | chroot "$tree" cryptsetup reencrypt --encrypt --batch-mode --type luks2 --resilience none --uuid "$uuid" \
		--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --reduce-device-size 32M --key-file - "$loop"
	;;
esac
