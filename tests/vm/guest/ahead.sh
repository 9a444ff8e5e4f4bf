#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Many fsyncs ahead of the delta beside all that may go on with the same files (ahead.c and pinned.c, compiled before the machine
# starts): the volume is frozen now and then, and stopped in the middle of it.
#
#	make guest-programs
#	vm/run --cpus 4 --disk 256M -- tests/vm/guest/ahead.sh [SECONDS [ROUNDS]]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=${PROGRAM:-build/tests/ahead}
PINNED=${PINNED:-build/tests/pinned}
SECONDS_EACH=${1:-4}
ROUNDS=${2:-3}
NOTES=/tmp/ahead.notes

freeze_now_and_then() {
	while sleep 0.7; do
		fsfreeze -f "$MNT" && sleep 0.05
		fsfreeze -u "$MNT"
	done
}

no_complaint() {
	! dmesg | grep -E "WARNING|BUG:|kernel BUG|Oops"
}

round() {	# $1: which; the rest: options of mkfs
	local number=$1 freezer
	shift
	fresh "$@" || return 1
	if [ $((number % 2)) = 0 ]; then
		freeze_now_and_then 2>/dev/null &
		freezer=$!
	fi
	check "round $number: many fsync at a time ($MOUNT_OPTIONS $*)" "$PROGRAM" run "$MNT" "$SECONDS_EACH" $NOTES
	if [ -n "$freezer" ]; then
		kill $freezer
		wait $freezer 2>/dev/null
		fsfreeze -u "$MNT" 2>/dev/null
	fi
	went=$(($(cat /sys/fs/tux3/*/fsyncs_ahead) + 0))
	check "round $number: some of them went ahead" test "$went" -gt 0
	stayed=$((stayed + $(cat /sys/fs/tux3/*/early_blocks)))
	umount "$MNT" && mount_it || return 1
	check "round $number: what was synced is there" "$PROGRAM" check "$MNT" $NOTES
	checked_umount "round $number: clean"
}

# A block is written and fsynced, just when the commit of the delta before lets go of it.
again() {
	fresh && "$PROGRAM" again "$MNT" "$1" /sys/fs/tux3/*
}

# Stores that come late into a delta, behind an fsync that has gone ahead of the next one.
late() {
	local tries
	for ((tries = 0; tries < 5; tries++)); do
		fresh || return 1
		"$PROGRAM" late "$MNT" /sys/fs/tux3/*
		case $? in
		0) umount "$MNT" && mount_it && "$PROGRAM" kept "$MNT"; return ;;
		3) umount "$MNT" || return 1 ;;
		*) return 1 ;;
		esac
	done
	echo "the moment was missed $tries times"
	return 1
}

# What is brought into pages that were pinned when an fsync went ahead, or a commit took them, and whose mapping has gone.
pinned() {	# $1: how; $2: a delay
	local went
	fresh && "$PINNED" "$1" "$MNT" $2 || return 1
	went=$(cat /sys/fs/tux3/*/fsyncs_ahead)
	umount "$MNT" && mount_it && "$PINNED" check "$MNT" || return 1
	umount "$MNT" && { [ "$1" = beside ] || [ "$went" -gt 0 ]; }
}

# Not each fsync finds room to go ahead, and the moment that matters is short.
pinned_often() {	# $1: how; the rest: delays
	local how=$1 delay
	shift
	for delay; do
		pinned "$how" $delay || return 1
	done
}

stayed=0
dmesg --clear
for ((i = 1; i <= ROUNDS; i++)); do
	case $((i % 3)) in
	0) MOUNT_OPTIONS=fsync=ahead,age=5 round $i --block-size 32K ;;
	1) MOUNT_OPTIONS=fsync=ahead,age=0.05,dirty=1M round $i ;;
	2) MOUNT_OPTIONS=fsync=ahead,age=0.3,snapshot=4k round $i ;;
	esac
done
check "data stayed where an fsync had put it" test "$stayed" -gt 0
MOUNT_OPTIONS=fsync=ahead,age=0.01
check "each fsync has what was written before it" again "$SECONDS_EACH"
checked_umount "again: clean"
MOUNT_OPTIONS=fsync=ahead,age=60,dirty=256M
check "stores into a delta that is being committed" late
checked_umount "late: clean"
check "what is brought into pinned pages after an fsync stays" pinned_often ahead "" "" "" ""
check "another fsync has it" pinned_often twice "" "" "" ""
MOUNT_OPTIONS=fsync=full,age=60
check "each of two fsyncs at a time has what was brought before" pinned_often beside 0 50 100 200 400 0 50 100 200 400
check "the kernel has nothing to say" no_complaint
summary
