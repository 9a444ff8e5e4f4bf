#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Contents that swap, parts of files that are taken out or put in: what is done and refused, beside stores through mappings and
# direct I/O, and at random beside a model.  See exchange.py.
#
#	vm/run --disk 512M -- tests/vm/guest/exchange.sh
#	vm/run --disk 2500M -- tests/vm/guest/exchange.sh pieces	a file in more pieces than one exchange can have
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=tests/vm/guest/exchange.py
MOUNT_OPTIONS=age=0.3,costs

overdrafts() {
	[ "$(cat /sys/fs/tux3/*/overdrafts)" = 0 ]
}

pieces() {
	build/tux3 defrag -n -v "$1" | sed -n 's/.*: \([0-9]*\) piece.*/\1/p' | head -n 1
}

# Blocks that are overwritten move: so a file of 8 MiB gets into hundreds of pieces.
defrag() {
	local file=$MNT/below/pieces i before
	mkdir "$MNT/below" && head -c 8M /dev/urandom >"$file" && truncate -s 8388000 "$file" && fallocate -n -o 12M -l 1M "$file" || return
	for i in $(seq 1 12); do
		python3 $PROGRAM scatter "$file" "$i" && sync || return
	done
	cp "$file" /tmp/pieces
	before=$(pieces "$file")
	[ "$before" -gt 100 ] || { echo "only $before pieces"; return 1; }
	build/tux3 defrag "$MNT" || return
	[ "$(pieces "$file")" -lt 10 ] || { echo "still $(pieces "$file") pieces of $before"; return 1; }
	cmp "$file" /tmp/pieces && build/tux3 defrag "$file" | grep ", 0 of them written anew"
}

# As large as a file can be, and nearly all of it a hole.
defrag_vast() {
	local file=$MNT/vast
	python3 $PROGRAM many_pieces "$file" 64 && truncate -s 9223372036854775807 "$file" &&
		printf end | dd of="$file" bs=1 seek=9223372036854775804 conv=notrunc status=none && head -c 1M "$file" >/tmp/vast || return
	timeout 60 build/tux3 defrag "$file" || return
	[ "$(pieces "$file")" -lt 10 ] || { echo "still $(pieces "$file") pieces"; return 1; }
	head -c 1M "$file" | cmp - /tmp/vast && [ "$(tail -c 3 "$file")" = end ]
}

# As a database that was written to for long.  8 MiB of log have room for fewer.
defrag_many() {
	local file=$MNT/pieces sum before
	python3 $PROGRAM many_pieces "$file" 170000 && sum=$(md5sum <"$file") && before=$(pieces "$file") || return
	[ "$before" -gt 165000 ] || { echo "only $before pieces"; return 1; }
	build/tux3 defrag "$file" || return
	[ "$(pieces "$file")" -lt 100 ] || { echo "still $(pieces "$file") pieces of $before"; return 1; }
	echo 3 >/proc/sys/vm/drop_caches
	[ "$(md5sum <"$file")" = "$sum" ]
}

# Reads take 0.1 s, and the last blocks of two files fail.
failing() {
	local places slow=/dev/mapper/failing disk=$DEVICE sectors
	sectors=$(blockdev --getsz "$disk")
	modprobe dm-delay
	delayed() {	# FROM TO
		echo "$1 $(($2 - $1)) delay $disk $1 100 $disk $1 0"
	}
	places=($(python3 $PROGRAM make_failing "$MNT")) && umount "$MNT" || return
	{
		delayed 0 ${places[0]} && echo "${places[0]} 8 error" && delayed $((places[0] + 8)) ${places[1]} &&
			echo "${places[1]} 8 error" && delayed $((places[1] + 8)) "$sectors"
	} | dmsetup create failing && mount -t tux3 $slow "$MNT" && python3 $PROGRAM failing "$MNT"
}

if [ "$1" = pieces ]; then
	fresh && check "defrag of a file in very many pieces" defrag_many
	checked_umount "clean after that"
	summary		# exits
fi
if fresh; then
	for name in rules refusals freshness stored_meanwhile; do
		check "$name" python3 $PROGRAM $name "$MNT"
	done
	mount -o remount,fsync=ahead "$MNT"
	check "freshness where an fsync goes ahead" python3 $PROGRAM freshness "$MNT"
	mount -o remount,fsync=auto "$MNT"
	check "stores beside exchanges" python3 $PROGRAM beside "$MNT" mmap
	check "direct I/O beside exchanges" python3 $PROGRAM beside "$MNT" direct
	for seed in 1 2 3 4; do
		check "a model, $seed" python3 $PROGRAM model "$MNT" $seed
	done
	check "defrag" defrag
	check "defrag of the largest file" defrag_vast
	check "nothing was charged too little" overdrafts
	checked_umount "clean afterwards"
fi
if fresh -O ^data-csum; then
	check "a model, without checksums" python3 $PROGRAM model "$MNT" 5
	checked_umount "clean without checksums"
fi
if fresh; then
	check "direct reads that fail beside an exchange" failing
	umount "$MNT" && dmsetup remove failing
	check "clean after that" build/fsck.tux3 -n "$DEVICE"
fi
summary
