#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A volume that is full, again and again; and writing much more than there is memory.  In the machine:
#	vm/run --disk 256M -- tests/vm/guest/space.sh full
#	vm/run --disk 6G --memory 480 -- tests/vm/guest/space.sh memory
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh

fill() {	# until it is full: names file1, file2 ... of size $1; prints how many
	local n=0
	while n=$((n + 1)); head -c "$1" /dev/urandom >"$MNT/$2$n" 2>/tmp/fill-error; do
		[ $n -lt 100000 ] || return 1
	done
	grep -q "No space left" /tmp/fill-error || { cat /tmp/fill-error; return 1; }
	echo $n
}

full() {
	local round files
	fresh || { failed fresh "no volume"; summary; }
	for round in 1 2 3; do
		fallocate -l 16M "$MNT/promised"
		# Its ACL has blocks of its own, and changes with its mode.
		touch "$MNT/shared" && seq 8000 | sed 's/.*/u:&:r/' | setfacl -M - "$MNT/shared"
		files=$(fill $((round * 700000)) big) && ok "round $round: full after $files files" ||
			failed "round $round" "it is not full: $files"
		check "round $round: what is there is there" bash -c "cat $MNT/big* >/dev/null"
		check "round $round: sync of a full volume" sync
		check "round $round: small files until there is no room" bash -c \
			"n=0; while echo text >$MNT/small\$n; do n=\$((n + 1)); [ \$n -lt 200000 ] || exit 1; done 2>/tmp/error;
			 grep -q 'No space left' /tmp/error"
		check "round $round: a rename in a full volume" mv "$MNT/big1" "$MNT/renamed"
		check "round $round: chmod in a full volume" chmod 600 "$MNT/renamed"
		check "round $round: chmod of a file with a large ACL" bash -c \
			"for n in {1..100}; do chmod \$((600 + n % 2 * 40)) $MNT/shared || exit 1; done; [ \$(getfacl -c $MNT/shared | wc -l) -gt 8000 ]"
		check "round $round: what was preallocated can be written" python3 -c "import os
fd = os.open('$MNT/promised', os.O_RDWR)
for n in range(4096):
    os.pwrite(fd, n.to_bytes(8, 'little') * 512, n * 1531 % 4096 * 4096)
    if n % 500 == 0: os.fsync(fd)
os.fsync(fd)"
		check "round $round: truncating works" truncate -s 0 "$MNT/big2"
		check "round $round: removing works" bash -c "rm $MNT/*"
		check "round $round: and gives the room back" bash -c \
			"sync; [ \$(stat -f -c %a $MNT) -gt \$((\$(stat -f -c %b $MNT) * 8 / 10)) ]"
	done
	check "a mapping beyond what there is: SIGBUS, and what went in is there" python3 tests/vm/guest/map_full.py "$MNT"
	rm -f "$MNT"/*
	checked_umount "clean after being full"
}

memory() {
	fresh || { failed fresh "no volume"; summary; }
	check "4 GB through little memory" bash -c \
		"for n in 1 2 3 4; do
			python3 -c 'import sys
block = bytes(range(256)) * 4096
for n in range(1024): sys.stdout.buffer.write(n.to_bytes(8, \"little\") + block[8:])' >$MNT/file\$n & done; wait"
	check "all four are what was written" python3 -c "rest = (bytes(range(256)) * 4096)[8:]
for n in 1, 2, 3, 4:
    with open(f'$MNT/file{n}', 'rb', 0) as file:
        for i in range(1024):
            assert file.read(8) == i.to_bytes(8, 'little') and file.read(len(rest)) == rest, (n, i)"
	check "each has its size" bash -c "[ \$(stat -c %s $MNT/file* | sort -u) = $((1024 * 1048576)) ]"
	check "50,000 small files with little memory" bash -c \
		"mkdir $MNT/many; cd $MNT/many && seq 50000 | xargs -n 1000 touch && [ \$(ls | wc -l) = 50000 ]"
	checked_umount "clean after memory pressure"
}

case ${1:-full} in
full) full ;;
memory) memory ;;
*) echo "space.sh: \"$1\" is neither full nor memory" >&2; exit 2 ;;
esac
summary
