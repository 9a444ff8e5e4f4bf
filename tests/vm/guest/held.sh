#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Somebody in the kernel holds pages of a mapped file, not pinned, and writes to them when he likes: what he has told of before an
# fsync is durable, and what he does during a commit makes no block of it wrong.  Needs the module holder: tests/vm/held.sh.
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
HELD=tests/vm/guest/held.py

crash() {
	xfs_io -r -x -c shutdown "$MNT" && umount "$MNT" && mount_it
}

remount() {
	umount "$MNT" && mount_it
}

# $1: crash or remount
held() {
	local name=$1 end=$2
	check "$name, $end" python3 $HELD "$name" "$MNT"
	check "$name, $end: it ends" "$end"
	check "$name, $end: is there" python3 $HELD "$name" "$MNT" --check
}

insmod /tmp/holder.ko || { failed setup "no module"; summary; }
for options in fsync=full,age=600 fsync=ahead,age=600 fsync=full,age=600,snapshot=4K; do
	MOUNT_OPTIONS=$options
	fresh || { failed fresh "no volume"; summary; }
	echo "$options:"
	for name in late-write late-store late-unmapped late-paged-out; do
		held $name crash
	done
	held late-write remount
	check "blocks of a file that is held are taken out of it" python3 $HELD moved "$MNT"
	if [ "$options" != fsync=ahead,age=600 ]; then
		held meanwhile crash
		held meanwhile-told crash
		held cut-off-soon crash
		held cut-off crash
		held cut-off-late crash
	fi
	case $options in
	*snapshot=4K) check "what nobody holds is not copied" python3 $HELD nobody "$MNT" ;;
	esac
	checked_umount "$options: clean"
done
rmmod holder
summary
