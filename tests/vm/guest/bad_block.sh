#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A leaf of the tree cannot be read: its file is cut off, removed, replaced while others read it, store to it through a mapping and
# sync other files, in a container with little memory; the volume goes on, is remounted and unmounted.  When the leaf can be read
# again, what was put off is done.  See bad_block.py.
#
#	vm/run --disk 512M -- tests/vm/guest/bad_block.sh
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=tests/vm/guest/bad_block.py
DISK=$DEVICE
DEVICE=/dev/mapper/bad
SECTORS=$(blockdev --getsz "$DISK")
CONTAINER=/sys/fs/cgroup/small

table() {	# [BLOCK that cannot be read]
	if [ -z "$1" ]; then
		echo "0 $SECTORS linear $DISK 0"
	else
		echo "0 $(($1 * 8)) linear $DISK 0"
		echo "$(($1 * 8)) 8 error"
		echo "$(($1 * 8 + 8)) $((SECTORS - $1 * 8 - 8)) linear $DISK $(($1 * 8 + 8))"
	fi
}

become() {
	dmsetup suspend bad && table "$1" | dmsetup reload bad && dmsetup resume bad
}

limited() {	# COMMAND...
	mkdir -p $CONTAINER && echo 48M >$CONTAINER/memory.max || return
	(echo $BASHPID >$CONTAINER/cgroup.procs && exec "$@")
}

told() {
	dmesg | grep "cannot be freed" || { dmesg | tail; return 1; }
}

no_complaint() {
	! dmesg | grep -E "WARNING|BUG:|kernel BUG|Oops|nothing more is written"
}

[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup
echo "+memory" >/sys/fs/cgroup/cgroup.subtree_control || exit 2
echo 4 >/proc/sys/vm/drop_caches	# and tell of none
modprobe dm-mod
table | dmsetup create bad || { failed setup "dmsetup"; summary; }
MOUNT_OPTIONS=age=0.1,fsync=ahead
for what in cut nameless removed; do
	dmesg --clear
	fresh || { failed fresh "no volume"; summary; }
	ino=$(python3 $PROGRAM make "$MNT") && umount "$MNT" && build/tux3 show $DEVICE tree --json >/tmp/tree &&
		place=$(python3 $PROGRAM leaf /tmp/tree "$ino" 25000) && become "$place" && mount_it || { failed "$what: begin" "no bad leaf"; continue; }
	check "$what, beside others" limited python3 $PROGRAM $what "$MNT"
	check "$what: it is told" told
	check "$what: read-only" mount -o remount,ro "$MNT"
	check "$what: and back" mount -o remount,rw "$MNT"
	check "$what: others can be written" python3 $PROGRAM goes_on "$MNT"
	check "$what: frozen" bash -c "fsfreeze -f $MNT && fsfreeze -u $MNT"
	check "$what: unmounted" umount "$MNT"
	check "$what: mounted" mount_it
	check "$what: others still can" python3 $PROGRAM goes_on "$MNT"
	check "$what: unmounted again" umount "$MNT"
	become
	check "$what: the leaf can be read" mount_it
	checked_umount "$what: clean"
	check "$what: the kernel has nothing to say" no_complaint
done
dmsetup remove bad
summary
