#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Many at work on one volume, for long: rounds of stress-ng's filesystem stressors, some at a time and others in each round,
# of the separation of deltas, of the races, and of fsyncs ahead.  After each the volume is unmounted and checked.  In the
# machine, also with --debug:
#	make guest-programs
#	vm/run --cpus 8 --timeout 4000 --disk 2G --disk 64M -- tests/vm/guest/soak.sh [MINUTES [SEED]]
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
MINUTES=${1:-2}
SEED=${2:-1}
STRESS_SECONDS=40
AT_A_TIME=10
# Left out: what looks for other filesystems or devices, or uses up memory; and io-uring, of which stress-ng 0.15 fails on any
# filesystem (statx of a name that it has removed).
STRESSORS=(access aio aiol chattr chdir chmod chown close copy-file dentry dir dirdeep dirmany dup fallocate fanotify
	fcntl fd-race fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags inotify io iomix
	lease link locka lockf lockofd metamix mknod mmapcopy msync msyncmany open pseek readahead rename revio seal seek
	sendfile splice statmount symlink sync-file touch truncate unlink utime verity xattr)
VERDICT=$(mktemp)

# Those that this stress-ng has, in an order that the seed gives.
known() {
	local name help
	help=$(stress-ng --help)
	for name in "${STRESSORS[@]}"; do
		grep -q -- "--$name N" <<<"$help" && echo "$name"
	done | shuf --random-source=<(yes "$SEED")
}

# NAME...: all at once.  What one of them cannot do here it says, and skips.
stress() {
	local name output status words=()
	for name in "$@"; do
		words+=("--$name" 1)
	done
	# As much again, and more, for a machine that is slow to stop.
	output=$(timeout -k 5 $((STRESS_SECONDS * 5 + 300)) stress-ng "${words[@]}" --temp-path "$MNT" --timeout $STRESS_SECONDS \
		--verify --oomable 2>&1)
	status=$?
	case $status in
	0 | 3 | 4) return 0 ;;		# 3, 4: one had nothing to work with, or is not implemented
	esac
	grep -v "info:" <<<"$output" | tail -n 20
	return $status
}

# COMMAND...: a script beside this one, with what it counts.
script() {
	local passed failed
	tests/vm/guest/"$@" | tee "$VERDICT"
	read -r passed failed < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$VERDICT")
	PASSED=$((PASSED + ${passed:-0}))
	FAILED=$((FAILED + ${failed:-1}))
}

mapfile -t order < <(known)
[ ${#order[@]} -gt $AT_A_TIME ] || { failed "stress-ng" "it knows ${#order[@]} stressors only"; summary; }
at=0
for ((round = SEED; round == SEED || SECONDS < MINUTES * 60; round++)); do
	these=()
	while [ ${#these[@]} -lt $AT_A_TIME ]; do
		these+=("${order[at++ % ${#order[@]}]}")
	done
	# Deltas as they are by default, in quick succession, and overtaken by each fsync.
	case $((round % 3)) in
	0) MOUNT_OPTIONS=age=0.05,dirty=4M,fsync=ahead ;;
	1) MOUNT_OPTIONS= ;;
	2) MOUNT_OPTIONS=fsync=ahead ;;
	esac
	fresh || { failed fresh "no volume"; break; }
	check "round $round, $((SECONDS / 60)) min: ${these[*]}" stress "${these[@]}"
	checked_umount "round $round: clean after it"
	mount_it && check "round $round: what is left can be removed" find "$MNT" -mindepth 1 -delete
	checked_umount "round $round: clean after that"
	case $((round % 4)) in
	1) script separation.sh 1 "$round" ;;
	2) script races.sh 5 ;;
	3) script ahead.sh 5 ;;
	esac
done
rm "$VERDICT"
summary
