# Says what runs after a start, and changes the system: soft.sh IMAGE.
image=$1
n=$(systemctl show -P SoftRebootsCount)
status() { pivot status -o json | tr -d ' \n' | grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d'"' -f4; }

. /etc/os-release
say $n.version "$VERSION_ID"
say $n.start "$(status start | sed "s/^$(cat /proc/sys/kernel/random/boot_id)/BOOT/")"
say $n.phase "$(status phase)"
say $n.verify "$(pivot verify >/dev/null && echo same || echo differs)"
say $n.libostree "$(ostree admin status | head -c 1)"
say $n.left "$(find /run/nextroot /run/ostree/nextroot-booted ! -path /run/nextroot 2>/dev/null | head -n 1)"
say $n.own "$(cat /usr/share/soft 2>/dev/null)"
say $n.file "$(cat /etc/soft/file 2>/dev/null)"
say $n.var "$(cat /var/lib/soft.file 2>/dev/null)"
say $n.karg "$(tr ' ' '\n' </proc/cmdline | grep ^soft)"
# A soft reboot keeps the state of units: the guest's report was stopped before it, and runs again later.
say $n.failed "$(systemctl --failed --no-legend --plain | cut -d' ' -f1 | grep -v boot-report | paste -sd' ')"
say $n.drawn "$(pivot plot | grep -q 'soft reboot' && echo soft || echo not)"
while [ -e /var/lib/pivot/slot ]; do sleep 1; done
say $n.slot free

case $n in
1)
	pivot rebase "$image"
	say $n.then "$(status phase)"
	pivot rebase "$image" -r
	;;
2) pivot apply -r /var/lib/day2/two.json ;;
3) pivot rollback -r ;;
4) pivot rebase --append-karg soft.not -r ;;
esac
