# Prints the description of a directory for mkfs.xfs: oldxfs.sh DIR. Not every kernel can mount version 4 of XFS to fill it.
list() {
	for file in "$1"/*; do
		if [ -L "$file" ]; then
			echo "${file##*/} l--777 0 0 $(readlink "$file")"
		elif [ -d "$file" ]; then
			echo "${file##*/} d--755 0 0"
			list "$file"
		else
			echo "${file##*/} ---$(stat -c %a "$file") 0 0 $file"
		fi
	done
	echo '$'
}
shopt -s nullglob
printf '/dev/null\n0 0\nd--755 0 0\n'
list "$1"
