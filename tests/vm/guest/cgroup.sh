#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Containers with little memory: nothing that fits on the volume fails for the limit, nobody is killed.
#
#	vm/run --disk 1G -- tests/vm/guest/cgroup.sh
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

GROUPS_AT=/sys/fs/cgroup
CONTAINER=$GROUPS_AT/small

[ -e $GROUPS_AT/cgroup.controllers ] || mount -t cgroup2 none $GROUPS_AT || exit 2
echo "+memory +io" >$GROUPS_AT/cgroup.subtree_control || exit 2

# limited LIMIT COMMAND...: in a container of so much memory
limited() {
	local limit=$1 status
	shift
	mkdir -p $CONTAINER
	echo "$limit" >$CONTAINER/memory.max
	echo 0 >$CONTAINER/memory.swap.max 2>/dev/null
	(echo $BASHPID >$CONTAINER/cgroup.procs && exec "$@")
	status=$?
	killed=$(awk '$1 == "oom_kill" {print $2}' $CONTAINER/memory.events)
	rmdir $CONTAINER
	[ $status = 0 ] && [ "$killed" = 0 ] || { echo "status $status, $killed killed"; return 1; }
}

map_stores() {
	python3 - "$1" "$2" <<-'END'
		import mmap, sys
		size = int(sys.argv[2]) << 20
		with open(sys.argv[1], "w+b") as file:
		    file.truncate(size)
		    memory = mmap.mmap(file.fileno(), size)
		    for at in range(0, size, 4096):
		        memory[at:at + 8] = at.to_bytes(8, "little")
		    memory.flush()
		    for at in range(0, size, 4096):
		        assert memory[at:at + 8] == at.to_bytes(8, "little"), at
	END
}
export -f map_stores

fresh || exit 1
for limit in ${LIMITS:-24M 128M}; do
	for bs in 1M 4k; do
		check "dd bs=$bs in $limit" limited $limit dd if=/dev/zero of="$MNT/dd" bs=$bs count=$([ $bs = 1M ] && echo 200 || echo 51200) status=none
		rm -f "$MNT/dd"
	done
done
check "a tree is packed and unpacked in 32M" limited 32M bash -c "cd / && tar cf - usr/include | tar xf - -C $MNT"
check "the tree is what it was" diff -r --no-dereference /usr/include "$MNT/usr/include"
check "stores through a mapping in 40M" limited 40M bash -c "map_stores $MNT/map 200"
rm -r "$MNT"/*
checked_umount "clean"
summary
