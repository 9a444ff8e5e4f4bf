#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Containers with little memory: nothing that fits on the volume fails for the limit, nobody is killed.  And such with little time.
#
#	vm/run --disk 1G -- tests/vm/guest/cgroup.sh
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

GROUPS_AT=/sys/fs/cgroup
CONTAINER=$GROUPS_AT/small

[ -e $GROUPS_AT/cgroup.controllers ] || mount -t cgroup2 none $GROUPS_AT || exit 2
echo "+memory +io +cpu" >$GROUPS_AT/cgroup.subtree_control || exit 2

# limited LIMIT COMMAND...: in a container of so much memory.  written: the bytes that were written at its account.
limited() {
	local limit=$1 status
	shift
	mkdir -p $CONTAINER
	echo "$limit" >$CONTAINER/memory.max
	echo 0 >$CONTAINER/memory.swap.max 2>/dev/null
	(echo $BASHPID >$CONTAINER/cgroup.procs && exec "$@")
	status=$?
	written=$(awk -v dev="$(lsblk -dno MAJ:MIN "$DEVICE" | tr -d ' '):" '$1 ":" == dev && sub(/.*wbytes=/, "") { sum += $1 } END { print sum + 0 }' $CONTAINER/io.stat)
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
# What the kernel knows of a group's dirty pages may be as old as the group: each time a new one, of a file that has no pages yet.
for again in 1 2 3; do
	check "stores through a mapping in 40M, $again" limited 40M bash -c "map_stores $MNT/map 120"
	rm -f "$MNT/map"
done
rm -r "$MNT"/*
# Writeback counts the pages of a file for the cgroup that began it.
head -c 100M /dev/zero >"$MNT/foreign"
check "a file that others have begun in 24M" limited 24M dd if=/dev/zero of="$MNT/foreign" bs=4k count=25600 conv=notrunc status=none
rm "$MNT/foreign"

# A commit is everybody's: if it ran at the account of who waits for it, his limit of I/O would hold up all.
charged_to_nobody() {
	limited 64M dd if=/dev/zero of="$MNT/dd" bs=1M count=32 conv=fsync status=none || return 1
	[ "$written" = 0 ] || { echo "$written bytes were written at the account of who called fsync"; return 1; }
}
check "who waits for a commit does not pay for it" charged_to_nobody

# Others wait for a commit, too: who makes it must not have to wait for a CPU in the middle of it.
TRACING=/sys/kernel/tracing
SLOW=$GROUPS_AT/slow

sync_changes() {
	local n
	for n in 1 2 3 4 5; do
		echo $n >"$MNT/small$n" && sync -f "$MNT" || return 1
	done
}

in_slow_container() {
	mkdir -p $SLOW && echo "50000 100000" >$SLOW/cpu.max
	(echo $BASHPID >$SLOW/cgroup.procs && "$@")
	local status=$?
	rmdir $SLOW
	return $status
}

commits_are_left_to_the_thread() {	# COMMAND...
	local makers
	[ -d $TRACING/events ] || mount -t tracefs none $TRACING || return 1
	echo >$TRACING/trace && echo 1 >$TRACING/events/tux3/tux3_commit/enable
	"$@" || return 1
	echo 0 >$TRACING/events/tux3/tux3_commit/enable
	makers=$(awk '/: tux3_commit: / { sub(/-[0-9]+$/, "", $1); print $1 }' $TRACING/trace | sort -u)
	[ "$makers" = tux3-back ] || { echo "commits were made by '$makers'"; return 1; }
}
export -f sync_changes
export MNT
check "who has little time leaves commits to the thread: in a container" commits_are_left_to_the_thread in_slow_container sync_changes
check "nice" commits_are_left_to_the_thread nice -n 5 bash -c sync_changes
check "idle" commits_are_left_to_the_thread chrt -i 0 bash -c sync_changes

# The same of fsyncs that go ahead of commits: who writes them writes for others, too.
fsync_changes() {
	local n
	for n in 1 2 3 4 5; do
		dd if=/dev/zero of="$MNT/ahead$n" bs=4k count=1 conv=fsync status=none || return 1
	done
}

fsyncs_are_left_to_a_worker() {	# COMMAND...
	local ahead own
	mount -o remount,fsync=ahead "$MNT" && fsync_changes || return 1
	ahead=$(cat /sys/fs/tux3/*/fsyncs_ahead)
	echo >$TRACING/trace && echo 1 >$TRACING/events/block/block_bio_queue/enable
	"$@" || return 1
	echo 0 >$TRACING/events/block/block_bio_queue/enable
	mount -o remount,fsync=auto "$MNT"
	own=$(grep -c "^ *dd-.*: block_bio_queue: .* W" $TRACING/trace)
	ahead=$(($(cat /sys/fs/tux3/*/fsyncs_ahead) - ahead))
	[ "$own" = 0 ] && [ $ahead -ge 5 ] || { echo "$ahead went ahead, $own writes by who called fsync"; return 1; }
}
export -f fsync_changes
check "and fsyncs to a worker: in a container" fsyncs_are_left_to_a_worker in_slow_container fsync_changes
check "nice" fsyncs_are_left_to_a_worker nice -n 5 bash -c fsync_changes
check "idle" fsyncs_are_left_to_a_worker chrt -i 0 bash -c fsync_changes

# Programs that commit often, or map what they have written; and what they do is what they do on another filesystem.
database() {
	python3 - "$1" <<-'END'
		import sqlite3, sys
		base = sqlite3.connect(sys.argv[1])
		base.execute("PRAGMA mmap_size = 268435456")
		base.execute("CREATE TABLE pieces (number INTEGER PRIMARY KEY, data BLOB)")
		for first in range(0, 8000, 1000):
		    with base:
		        base.executemany("INSERT INTO pieces VALUES (?, ?)",
		                         ((number, number.to_bytes(4, "little") * 1000) for number in range(first, first + 1000)))
		for number, data in base.execute("SELECT number, data FROM pieces"):
		    assert data == number.to_bytes(4, "little") * 1000, number
		assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
	END
}
repository() {
	cd "$1" && git init -q . && git config user.name x && git config user.email x && git config gc.auto 0 &&
		cp -r "$SOURCES" . && head -c 8M /dev/urandom >data && git add . && git commit -qm first && git repack -qad &&
		git fsck --no-progress && rm -r core && git checkout -q . && diff -r "$SOURCES" core
}
export SOURCES=$PWD/core
export -f database repository
for limit in ${LIMITS:-24M}; do
	check "a database of 32M in $limit" limited $limit bash -c "database $MNT/base"
	rm -f "$MNT"/base*
	command -v git >/dev/null || continue
	mkdir "$MNT/git"
	check "git in $limit" limited $limit bash -c "repository $MNT/git"
	rm -r "$MNT/git"
done
checked_umount "clean"
summary
