#!/bin/bash
# Says on the second serial port what this boot came to: one line "NAME BASE64" for each
# of the things that are named below. On the system that the first boot leads to it then
# goes back to the old one, and powers that off.
set -u
exec 3>/dev/ttyS1
say() { printf '%s %s\n' "$1" "$(base64 -w0)" >&3; }

# leaving: the machine is on its way down by someone else's wish.
leaving() {
	[ "$(systemctl is-system-running)" = stopping ] ||
		systemctl list-jobs --no-legend | grep -qE ' (reboot|poweroff|halt|kexec|shutdown)\.target +start'
}
while :; do
	leaving && exit 0
	case $(systemctl show -P ActiveState pivot-firstboot.service) in
	activating | deactivating | reloading) sleep 1 ;;
	*) break ;;
	esac
done

pivot=/usr/local/bin/pivot
link=$(grep -o ' ostree=[^ ]*' /proc/cmdline)
deployment=$(readlink -f "${link#*=}")
encapsulated=/etc/ignition-machine-config-encapsulated.json
say system < <(. /etc/os-release && echo "$PRETTY_NAME, ${OSTREE_VERSION:-$VERSION}, $(uname -r)")
say cmdline </proc/cmdline
say deployment <<<"${deployment##*/}"
say origin <"$deployment.origin"
say open < <(ls $encapsulated $encapsulated.committed 2>/dev/null)
say closed < <(ls $encapsulated.bak 2>/dev/null)
say stamp < <(ls /boot/ignition.firstboot 2>/dev/null)
say ids < <(sort -u "${deployment%/*}"/*/etc/machine-id)
say unit < <(systemctl show -P Result pivot-firstboot.service)
say status < <($pivot status -o json 2>&1)
say verify < <($pivot verify 2>&1 && echo yes)
say failed < <(systemctl --failed --no-legend --plain | cut -d' ' -f1)
say journal < <(journalctl -b -u pivot-firstboot.service -o cat --no-pager | tail -n 40)
for file in @FILES@; do
	[ ! -e "$file" ] || say "$file" <"$file"
done
leaving && exit 0
if grep -qw @MARKER@ /proc/cmdline; then
	said=$($pivot rollback -r 2>&1) && exit 0
	say rollback <<<"$said"
fi
say end </dev/null
systemctl --no-block poweroff
