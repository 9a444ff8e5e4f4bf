#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Does each commit hold what its delta held?  See separation.c, which is compiled before the machine starts:
#
#	make guest-programs
#	vm/run --disk 1G -- tests/vm/guest/separation.sh [ROUNDS [SEED]]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=${PROGRAM:-build/tests/separation}
ROUNDS=${1:-3}
SEED=${2:-1}

# Whatever happens meanwhile, files hold what they should, now and after a remount.
model() {
	$PROGRAM model "$MNT" 15 "$1" /tmp/model.state
}

verify() {
	umount "$MNT" && build/fsck.tux3 -n --data "$DEVICE" && mount_it && $PROGRAM verify "$MNT" /tmp/model.state
}

# Cut off at any moment, files are in a state between two changes.
atomic() {
	$PROGRAM atomic "$MNT" "$1" "$2"
	umount "$MNT" && build/fsck.tux3 -n --data "$DEVICE" && mount_it && $PROGRAM check "$MNT"
}

for ((round = SEED; round < SEED + ROUNDS; round++)); do
	# In turn: what a commit takes is written from snapshots, and in place.
	MOUNT_OPTIONS=age=0.02,snapshot=$([ $((round % 2)) = 0 ] && echo 16M || echo 1)
	fresh || exit 1
	check "model, seed $round" model "$round"
	check "model after a remount, seed $round" verify
	umount "$MNT"
	fresh || exit 1
	for seconds in 0.3 1.1 2.7; do
		check "atomic, seed $round, $seconds s" atomic $seconds "$round"
	done
	checked_umount "clean at the end, seed $round"
done
summary
