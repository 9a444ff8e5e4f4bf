#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# xfs_io of newer xfsprogs, which are on the second disk, on the first one.  All but fcollapse and finsert it refuses where it does
# not find XFS: so it is told that it does (as_xfs.c).
#
#	tests/vm/xfs_io.sh
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

XFSPROGS=/tmp/xfsprogs
SHIM=$PWD/build/tests/as_xfs.so

io() {
	"$XFSPROGS/usr/sbin/xfs_io" "$@"
}

as_xfs() {
	LD_PRELOAD=$SHIM io "$@"
}

# The contents of $1 and $2 are those of the files $3 and $4.
are() {
	cmp "$1" "$3" && cmp "$2" "$4"
}

swapped() {	# $1...: options
	as_xfs -c "exchangerange $* b" a && are a b "$KEPT/b" "$KEPT/a" &&
		as_xfs -c "exchangerange $* b" a && are a b "$KEPT/a" "$KEPT/b"
}

swapped_part() {
	as_xfs -c "exchangerange -s 4096 -d 8192 -l 8192 b" a || return
	{ head -c 8192 "$KEPT/a"; tail -c +4097 "$KEPT/b" | head -c 8192; tail -c +16385 "$KEPT/a"; } | cmp - a || return
	as_xfs -c "exchangerange -s 4096 -d 8192 -l 8192 b" a && are a b "$KEPT/a" "$KEPT/b"
}

nothing_in_a_dry_run() {
	as_xfs -c "exchangerange -n b" a && are a b "$KEPT/a" "$KEPT/b"
}

# Not what was there before, which would take shared blocks.
updated() {
	as_xfs -c "startupdate -e" -c "pwrite -q -S 0x61 0 8k" -c "commitupdate -q" "$MNT/a" || return
	head -c 8192 /dev/zero | tr '\0' a | cmp - a && cp $KEPT/a a
}

# Somebody writes to the file between the two: it is left alone.
not_updated() {
	local tries=0
	{
		printf "%s\n" "startupdate -e" "pwrite -q -S 0x61 0 8k"
		until find /proc/[0-9]*/fd -lname "$MNT/*(deleted)" 2>/dev/null | grep -q . || [ $((++tries)) = 100 ]; do
			sleep 0.1
		done
		sleep 1
		cp $KEPT/b a
		printf "%s\n" "commitupdate -q" quit
	} | as_xfs "$MNT/a"
	cmp $KEPT/b a && cp $KEPT/a a
}

shifted() {
	io -c "fcollapse 4k 8k" -c "finsert 8k 4k" a || return
	{ head -c 4096 "$KEPT/a"; tail -c +12289 "$KEPT/a" | head -c 4096; head -c 4096 /dev/zero; tail -c +16385 "$KEPT/a"; } | cmp - a &&
		cp "$KEPT/a" a
}

generation() {
	python3 -c "import fcntl, os, struct, sys
print(*struct.unpack('I4x', fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x80087601, bytes(8))))" "$1"
}

parents() {
	local found must
	must=$(printf "%s\n" "$(stat -c %i .):$(generation .):1:a" "$(stat -c %i sub):$(generation sub):6:second" | sort)
	found=$(as_xfs -c "parent -s" a | sort) && [ "$found" = "$must" ] || { echo "$found"; return 1; }
	found=$(as_xfs -c "parent -s $(stat -c %i a) $(generation a)" . | sort) && [ "$found" = "$must" ] || { echo "$found"; return 1; }
}

paths() {
	local found
	found=$(as_xfs -c "parent -p" "$MNT/a" | sort)
	[ "$found" = "$MNT/a"$'\n'"$MNT/sub/second" ] || { echo "$found"; return 1; }
}

bulkstat() {
	as_xfs -c "bulkstat -n ${1:-64}" . | sed -n 's/^\s*bs_\(ino\|size\|mode\|nlink\) = //p' | paste - - - - | sort >/tmp/told
	find . -exec stat -c "%i %s %h %f" {} + | sort -u | while read -r ino size links mode; do
		printf "%s\t%s\t%s\t0%o\n" "$ino" "$size" "$links" "0x$mode"
	done | sort | diff - /tmp/told && [ "$(wc -l </tmp/told)" -gt 3 ]
}

mkdir -p $XFSPROGS && mount -t erofs -o ro "${DEVICE%a}b" $XFSPROGS || exit 2
if fresh; then
	KEPT=/tmp/kept
	mkdir $KEPT && cd "$MNT" && mkdir sub && head -c 40960 /dev/urandom >a && head -c 20000 /dev/urandom >b && cp a b $KEPT && ln a sub/second
	check "exchangerange" swapped
	check "exchangerange of a file that has not changed" swapped -c
	check "exchangerange of what was written" swapped -w
	check "exchangerange of a part" swapped_part
	check "exchangerange in a dry run" nothing_in_a_dry_run
	check "startupdate, commitupdate" updated
	check "commitupdate of a file that has changed" not_updated
	check "fcollapse, finsert" shifted
	check "parent" parents
	check "parent -p" paths
	check "bulkstat" bulkstat
	check "bulkstat, one with each call" bulkstat 1
	cd /project || exit 2
	checked_umount "clean afterwards"
fi
summary
