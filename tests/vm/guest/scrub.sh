#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tux3 scrub of a volume that the module has mounted: damage made under it, and load beside it; and what writes to what is damaged
# come to.  In the machine:
#	vm/run --disk 64M -- tests/vm/guest/scrub.sh [NAME of a group ...]
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
BACKING=/tmp/backing.img

# The volume is on a loop device, so that what is under it can be changed.
loop_fresh() {
	rm -f $BACKING && truncate -s 256M $BACKING
	DEVICE=$(losetup --show --find --direct-io=off $BACKING) && fresh "$@"
}

loop_gone() {
	umount "$MNT" 2>/dev/null
	losetup -d "$DEVICE"
	rm -f $BACKING
}

# A file of blocks that are nowhere else.
make_file() {	# PATH BLOCKS
	python3 -c '
import hashlib, os, sys
with open(sys.argv[1], "wb") as f:
    for i in range(int(sys.argv[2])):
        f.write(hashlib.sha256(f"{sys.argv[1]} {i}".encode()).digest() * 128)
' "$1" "$2"
}

# Prints where the block lies, and changes a bit there; again: the bit is as it was.
damage_file() {	# PATH BLOCK
	python3 -c '
import hashlib, sys
block = hashlib.sha256(f"{sys.argv[1]} {sys.argv[2]}".encode()).digest() * 128
with open(sys.argv[3], "r+b", buffering=0) as f:
    data = f.read()
    at = data.find(block[:100])
    f.seek(at + 200)
    f.write(bytes([data[at + 200] ^ 1]))
print(at // 4096)
' "$1" "$2" $BACKING
}

# All blocks that look like tree nodes; prints how many.
damage_nodes() {
	python3 -c '
import struct, sys
with open(sys.argv[1], "r+b", buffering=0) as f:
    data = f.read()
    magic = bytes.fromhex(sys.argv[2])
    found = [at for at in range(0, len(data), 4096) if data[at:at + 4] == magic]
    for at in found:
        f.seek(at + 60)
        f.write(bytes([data[at + 60] ^ 1]))
print(len(found))
' $BACKING "$NODE_MAGIC"
}
NODE_MAGIC=$(sed -n 's/^#define TUX3_NODE_MAGIC.*0x\(..\)\(..\)\(..\)\(..\).*/\4\3\2\1/p' core/format/format.h)

scrub() {	# EXPECTED-STATUS [ARGUMENT...]; the output is in $said
	local expect=$1
	shift
	said=$(build/tux3 scrub "$MNT" "$@" 2>&1)
	[ $? = "$expect" ]
}

scrubbed() {	# NAME EXPECTED-STATUS [ARGUMENT...]
	local name=$1
	shift
	scrub "$@" && ok "$name" || failed "$name" "not exit status $1: $said"
}

told() {	# NAME TEXT
	grep -qF -- "$2" <<<"$said" && ok "$1" || failed "$1" "nothing says '$2': $said"
}

# ---- groups ----

group_damage() {
	local at before nodes
	loop_fresh || { failed damage "no volume"; return; }
	mkdir -p "$MNT/a/deep directory"
	make_file "$MNT/a/deep directory/file" 100
	make_file "$MNT/other" 20
	cp -r core "$MNT/"
	sync -f "$MNT"
	scrubbed "a volume that is whole" 0
	at=$(damage_file "$MNT/a/deep directory/file" 42)
	scrubbed "damage under the module" 4
	told "the path" "file data of \"/a/deep directory/file\" (inode $(stat -c %i "$MNT/a/deep directory/file")) at byte $((42 * 4096)), 1 block at block $at: checksum"
	told "and nothing else" " 1 problem"
	[ "$(cat /sys/fs/tux3/"${DEVICE##*/}"/scrub_problems)" = 1 ] && ok "counted" || failed "counted" "$(cat /sys/fs/tux3/"${DEVICE##*/}"/scrub_problems)"
	echo 3 >/proc/sys/vm/drop_caches
	refused "a read of it fails" "(/a/deep directory/file), offset $((42 * 4096)): block $at has checksum" dd if="$MNT/a/deep directory/file" of=/dev/null
	damage_file "$MNT/a/deep directory/file" 42 >/dev/null
	scrubbed "whole again" 0
	# A remount makes an anchor, so no node is dirty.
	mount -o remount,ro "$MNT"
	scrubbed "of a read-only mount" 0
	nodes=$(damage_nodes)
	scrubbed "nodes" 4
	told "are told" "a tree node"
	before=$(grep -c "a tree node" <<<"$said")
	[ "$before" -gt 2 ] && [ "$before" -le "$nodes" ] && ok "one by one" || failed "one by one" "$before of $nodes"
	damage_nodes >/dev/null
	scrubbed "read-only and whole" 0
	mount -o remount,rw "$MNT"
	checked_umount "umount after damage"
	loop_gone
}

load() {	# NUMBER, until /tmp/stop is there
	local n=0
	mkdir -p "$MNT/load$1"
	until [ -e /tmp/stop ]; do
		cp -r core "$MNT/load$1/$((n % 3))"
		dd if=/dev/urandom of="$MNT/load$1/large" bs=64k count=$((n % 50)) conv=notrunc status=none
		[ $((n % 4)) = 0 ] && sync -f "$MNT"
		dd if=/dev/zero of="$MNT/load$1/small" bs=5000 count=3 conv=fsync status=none
		rm -rf "$MNT/load$1/$(((n + 1) % 3))"
		n=$((n + 1))
	done
}

group_load() {
	local i pids="" bad=0
	MOUNT_OPTIONS=age=1
	loop_fresh || { failed load "no volume"; return; }
	MOUNT_OPTIONS=
	rm -f /tmp/stop
	for i in 1 2 3; do
		load $i &
		pids="$pids $!"
	done
	for i in $(seq 8); do
		scrub 0 || bad=$((bad + 1))
		scrub 0 --rate 20M || bad=$((bad + 1))
		[ $bad = 0 ] || break
	done
	touch /tmp/stop
	wait $pids
	told "names were compared" " inodes compared with "
	[ $bad = 0 ] && ok "nothing is told beside load" || failed "nothing is told beside load" "$said"
	scrubbed "nor after it" 0
	checked_umount "umount after load"
	loop_gone
}

# A volume on which names and counts do not fit together.
group_compare() {
	local i pid bad=0
	BACKING=/tmp/backing.img
	python3 -c '
import sys
from pathlib import Path
sys.path[:0] = ["tests/golden", "tests/cli"]
import golden
packed = golden.Packed(sorted(Path(".").glob("tests/golden/[0-9]*/damaged.xz"))[-1])
packed.unpack(next(name for name in packed.images if name.startswith("links-")), Path(sys.argv[1]))
' $BACKING || { failed compare "no image"; return; }
	DEVICE=$(losetup --show --find --direct-io=off $BACKING)
	mount_it || { failed compare "no mount"; return; }
	scrubbed "a wrong link count" 4
	told "is told" ": links ("
	told "with its path" " Path: \"/"
	told "and nothing else" " 1 problem"
	scrubbed "but not without the comparison" 0 --no-check
	rm -f /tmp/stop
	until [ -e /tmp/stop ]; do
		mkdir -p "$MNT/beside" && touch "$MNT/beside/"{1..50} && rm -rf "$MNT/beside"
		sync -f "$MNT"
	done &
	pid=$!
	for i in $(seq 10); do
		scrub 4 && grep -q " 1 problem" <<<"$said" || bad=1
		[ $bad = 0 ] || break
	done
	touch /tmp/stop
	wait $pid
	[ $bad = 0 ] && ok "beside load as well" || failed "beside load as well" "$said"
	fsfreeze --freeze "$MNT"
	scrubbed "frozen as well" 4
	fsfreeze --unfreeze "$MNT"
	umount "$MNT"
	loop_gone
}

group_life() {
	local pid
	loop_fresh || { failed life "no volume"; return; }
	make_file "$MNT/file" 5000
	sync -f "$MNT"
	fsfreeze --freeze "$MNT"
	scrubbed "of a frozen volume" 0
	fsfreeze --unfreeze "$MNT"
	build/tux3 scrub "$MNT" --rate 1M --state /tmp/state >/dev/null &
	pid=$!
	sleep 2
	refused "it keeps the volume mounted" "busy" umount "$MNT"
	kill -INT $pid
	wait $pid
	[ $? = 32 ] && [ -s /tmp/state ] && ok "interrupted" || failed "interrupted" "$(cat /tmp/state)"
	scrubbed "and goes on" 0 --state /tmp/state --json
	told "from there" '"resumed": true'
	build/tux3 scrub "$MNT" --rate 1M >/dev/null &
	pid=$!
	sleep 1
	kill -KILL $pid
	wait $pid
	refused "for root only" "only root" setpriv --reuid 1000 --clear-groups build/tux3 scrub "$MNT"
	checked_umount "umount after a kill"
	mount_it
	build/tux3 scrub "$MNT" --rate 1M >/dev/null &
	pid=$!
	sleep 1
	umount --lazy "$MNT"
	kill -INT $pid
	wait $pid
	for _ in $(seq 50); do
		build/fsck.tux3 -n "$DEVICE" >/dev/null 2>&1 && break
		sleep 0.2
	done
	check "after a lazy umount" build/fsck.tux3 -n --data "$DEVICE"
	loop_gone
}

# A leaf with extents of this inode, but not its attributes: its block, and the first file block in it.  Of an unmounted volume.
leaf_of() {	# INODE
	build/tux3 show $BACKING tree | awk -v ino="$1" '
		function leave() { if (extents > most && !attr) { most = extents; best = at " " first }; extents = attr = 0 }
		$1 == "object" { leave(); at = $4 }
		$1 == "ino" && $2 == ino && $4 == "attr" { attr = 1 }
		$1 == "ino" && $2 == ino && $4 == "extent" && !extents++ { first = $6 }
		END { leave(); print best }'
}

flip() {	# BLOCK: again, and it is as it was
	python3 -c '
import sys
with open(sys.argv[1], "r+b", buffering=0) as f:
    f.seek(int(sys.argv[2]) * 4096 + 60)
    byte = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([byte[0] ^ 1]))
' $BACKING "$1"
}

expect_fsync() {	# NAME FD ok|MESSAGE
	local got
	got=$(python3 -c 'import os, sys
try:
	os.fsync(int(sys.argv[1]))
	print("ok")
except OSError as error:
	print(error.strerror)' "$2")
	[ "$got" = "$3" ] && ok "$1" || failed "$1" "'$got' instead of '$3'"
}

# What is written where the tree cannot be read is lost, which each hears who has the file open; all else goes on.
group_lost() {
	local ino leaf first
	loop_fresh || { failed lost "no volume"; return; }
	python3 -c '
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for i in range(1500):
    os.pwrite(fd, b"x" * 4096, i * 8192)
' "$MNT/pieces"
	make_file "$MNT/other" 20
	ino=$(stat -c %i "$MNT/pieces")
	umount "$MNT"
	read -r leaf first <<<"$(leaf_of "$ino")"
	[ -n "$first" ] && ok "a leaf of extents" || { failed "a leaf of extents" "there is none"; loop_gone; return; }
	flip "$leaf"
	mount_it || { failed lost "no mount"; loop_gone; return; }
	exec 5<>"$MNT/pieces" 6<"$MNT/pieces" 7<>"$MNT/other"
	dmesg --clear
	python3 -c '
import mmap, os, sys
block = int(sys.argv[1]) + 4
for fd, at in ((5, 0), (5, block), (5, block + 1), (7, 3)):
    os.pwrite(fd, b"n" * 4096, at * 4096)
with mmap.mmap(5, (block + 1) * 4096) as mapped:	# a page that is in memory
    mapped[block * 4096 + 5] = 77
' "$first"
	expect_fsync "who wrote hears of it" 5 "Input/output error"
	dmesg | grep -q "inode $ino (/pieces).*is lost" && ok "a message names the file" ||
		failed "a message names the file" "$(dmesg | tail -n 3)"
	expect_fsync "once" 5 ok
	expect_fsync "another who has it open as well" 6 "Input/output error"
	expect_fsync "once, too" 6 ok
	expect_fsync "nothing is lost of another file" 7 ok
	exec 4<"$MNT/pieces"
	expect_fsync "nor for who opens it later" 4 ok
	echo more >&7
	sync -f "$MNT" 2>/dev/null && failed "syncfs hears of it as well" "it says that all is well" || ok "syncfs hears of it as well"
	check "once; all else goes on" sync -f "$MNT"
	check "new files" make_file "$MNT/new" 10
	check "and names" sync "$MNT/new"
	dd if="$MNT/pieces" bs=4k skip=$((first + 4)) count=1 status=none | head -c 4 | grep -q nnnn && ok "what was lost is cached" ||
		failed "what was lost is cached" "it is not"
	python3 -c '
import mmap, sys
with mmap.mmap(5, int(sys.argv[1]) * 4096 + 4096) as mapped:
    mapped[int(sys.argv[1]) * 4096 + 6] = 78
' $((first + 4))
	expect_fsync "stored to again: lost again" 5 "Input/output error"
	exec 4<&- 5>&- 6<&- 7>&-
	echo 3 >/proc/sys/vm/drop_caches
	refused "and then it cannot be read" "rror" dd if="$MNT/pieces" of=/dev/null bs=4k skip=$((first + 4)) count=1
	check "it can be unmounted" umount "$MNT"
	check "and mounted" mount_it
	check "and written to" make_file "$MNT/newer" 10
	umount "$MNT"
	flip "$leaf"
	mount_it
	dd if="$MNT/pieces" bs=4k count=1 status=none | head -c 4 | grep -q nnnn && ok "what lay elsewhere is there" ||
		failed "what lay elsewhere is there" "it is not"
	checked_umount "umount after losses"
	loop_gone
}

all="damage load compare life lost"
for group in ${*:-$all}; do
	group_$group
done
summary
