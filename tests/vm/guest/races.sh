#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Races of races.c, which is compiled before the machine starts:
#
#	make guest-programs
#	vm/run --disk 256M --disk 64M -- tests/vm/guest/races.sh [SECONDS]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=${PROGRAM:-build/tests/races}
SOURCE=/dev/vdb
SECONDS_EACH=${1:-8}

# The flusher looks at everything, always.
echo 1 >/proc/sys/vm/dirty_writeback_centisecs
echo 1 >/proc/sys/vm/dirty_expire_centisecs

no_complaint() {
	! dmesg | grep -E "WARNING|BUG:|kernel BUG|Oops"
}

dmesg --clear
MOUNT_OPTIONS=age=0.02,dirty=1M
fresh || exit 1
check "pages of dying inodes are dirtied by a device" "$PROGRAM" dying "$MNT" $SOURCE "$SECONDS_EACH"
check "files are opened by handle while they go" "$PROGRAM" handles "$MNT" "$SECONDS_EACH"
checked_umount "clean after it"

# Unmounted while references wait for the workers, and inodes without a name for a commit.
unmount_at_once() {
	local i
	for i in 1 2 3 4 5 6; do
		mount_it && mkdir -p "$MNT/d" && (cd "$MNT/d" && seq 200 | xargs touch && head -c 1M /dev/zero | tee 1 2 3 4 5 >6 && rm ./*) &&
			umount "$MNT" || return 1
	done
	mount_it
}
MOUNT_OPTIONS=age=0.02
check "unmounted while inodes go" unmount_at_once
check "nothing is left" test "$(ls -A "$MNT/d")" = ""
checked_umount "clean after these"

# Objects that cannot be had, if the kernel can be told to refuse them.
FAIL=/sys/kernel/debug/failslab
if [ -e $FAIL/cache-filter ]; then
	MOUNT_OPTIONS=age=0.02,dirty=1M
	mount_it || exit 1
	for cache in tux3_node tux3_folio_state; do
		[ -e /sys/kernel/slab/$cache/failslab ] && echo 1 >/sys/kernel/slab/$cache/failslab
	done
	echo Y >$FAIL/cache-filter
	echo N >$FAIL/ignore-gfp-wait
	echo 0 >$FAIL/verbose
	echo -1 >$FAIL/times
	echo 5 >$FAIL/probability
	check "files are opened by handle, without memory" env RACES_NO_MEMORY=1 "$PROGRAM" handles "$MNT" "$SECONDS_EACH"
	check "pages of dying inodes, without memory" env RACES_NO_MEMORY=1 "$PROGRAM" dying "$MNT" $SOURCE "$SECONDS_EACH"
	echo 0 >$FAIL/probability
	checked_umount "clean after it, too"
fi
MOUNT_OPTIONS=
fresh || exit 1
check "stores beside punches" "$PROGRAM" punch "$MNT" "$SECONDS_EACH"
checked_umount "clean after that"
check "the kernel has nothing to say" no_complaint
summary
