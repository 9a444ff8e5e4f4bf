#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Writes that are not torn: what is told and refused, and what a power cut leaves.  See untorn.c, which is compiled before the
# machine starts:
#
#	make guest-programs
#	vm/run --disk 512M -- tests/vm/guest/untorn.sh [ROUNDS]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=${PROGRAM:-build/tests/untorn}
ROUNDS=${1:-2}

# Cut off at any moment.
cut() {
	$PROGRAM run "$MNT" "$1" >/tmp/acked || return 1
	umount "$MNT" && build/fsck.tux3 -n --data "$DEVICE" && mount_it && $PROGRAM check "$MNT" /tmp/acked
}

cuts() {
	local round milliseconds
	for ((round = 1; round <= ROUNDS; round++)); do
		# In turn: what a commit takes is written from snapshots, and in place; fsyncs go ahead, or commit.
		MOUNT_OPTIONS=age=0.03,snapshot=$([ $((round % 2)) = 0 ] && echo 16M || echo 1),fsync=$([ $((round % 2)) = 0 ] &&
			echo full || echo auto)
		for milliseconds in 700 1900; do
			fresh "$@" || return
			check "cut $* round $round, $milliseconds ms" cut $milliseconds
			checked_umount "clean after it"
		done
	done
}

for size in 4096 65536; do
	if fresh --block-size $size; then
		check "rules, blocks of $size" $PROGRAM rules "$MNT"
		checked_umount "clean after the rules"
	fi
done
if fresh -s 48M; then
	check "full volume" $PROGRAM full "$MNT"
	checked_umount "clean when it is full"
fi
cuts
ROUNDS=1
cuts --block-size 16384
summary
