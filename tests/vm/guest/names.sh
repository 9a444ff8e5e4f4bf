#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Names, links, renames, files without a name, ACLs, extended attributes, large directories, file handles, and that nothing
# is left behind: inodes, space, the module.  In the machine:
#	vm/run --disk 512M -- tests/vm/guest/names.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
LIST_SHORT=${LIST_SHORT:-build/tests/list_short}

# Each function below is a test, run as a script of its own that ends at the first command that fails.
function_test() {
	check "$1" bash -e tests/vm/guest/names.sh "$2"
}

# A test of names.py in a folder of its own.
system_calls() {
	check "$1" python3 tests/vm/guest/names.py "$1" "$MNT/$1"
}

refused() {
	if "$@" 2>/dev/null; then
		echo "allowed: $*"
		return 1
	fi
}

mode_of() {
	stat -c %a "$1"
}

acls() {
	mkdir "$MNT/acls"
	cd "$MNT/acls"
	touch file
	chmod 640 file
	setfacl -m u:user1:rw,g:user2:r file
	[ "$(mode_of file)" = 660 ]
	chmod 640 file
	getfacl -c file >/tmp/acl
	grep -q '^user:user1:rw-.*#effective:r--$' /tmp/acl
	runuser -u user1 -- cat file
	refused runuser -u user1 -- sh -c 'echo >>file'
	mkdir dir
	setfacl -d -m u:user1:rwx,o::- dir
	umask 022
	mkdir dir/sub
	touch dir/file
	[ "$(mode_of dir/file)" = 660 ]
	[ "$(mode_of dir/sub)" = 770 ]
	getfacl -c dir/sub | grep -q '^default:user:user1:rwx$'
	getfacl -R -c . >/tmp/acls-before
	cd /
	umount "$MNT"
	mount_it
	cd "$MNT/acls"
	getfacl -R -c . >/tmp/acls-after
	cmp /tmp/acls-before /tmp/acls-after
	setfacl -b file
	[ "$(mode_of file)" = 640 ]
	[ "$(getfattr -m - file)" = "" ]
	setfacl -k dir
	touch dir/plain
	[ "$(mode_of dir/plain)" = 644 ]
}

inherited_group() {
	mkdir "$MNT/group"
	chgrp user2 "$MNT/group"
	chmod 2775 "$MNT/group"
	mkdir "$MNT/group/dir"
	touch "$MNT/group/file"
	[ "$(stat -c %a,%G "$MNT/group/dir")" = 2755,user2 ]
	[ "$(stat -c %a,%G "$MNT/group/file")" = 644,user2 ]
}

attributes() {
	cd "$MNT"
	echo x >fixed
	chattr +i fixed
	refused sh -c 'echo y >>fixed'
	refused rm -f fixed
	chattr -i +a fixed
	echo y >>fixed
	refused sh -c 'echo z >fixed'
	chattr -a fixed
	rm fixed
}

remount_after_rm() {
	cp build/mkfs.tux3 "$MNT/file"
	sync
	rm "$MNT/file"
	mount -o remount,ro "$MNT"
	refused touch "$MNT/new"
	mount -o remount,rw "$MNT"
	touch "$MNT/new"
}

# As programs of 32 bits do; a kernel that runs none has nothing to be tested.
short_positions() {
	local status=0 n
	mkdir "$MNT/short"
	for ((n = 0; n < 3000; n++)); do : >"$MNT/short/a file with the number $n"; done
	"$LIST_SHORT" "$MNT/short" || status=$?
	[ $status = 0 ] || [ $status = 77 ]
	rm -r "$MNT/short"
}

after_crash() {
	umount "$MNT"
	mount_it
	rm -f "$MNT/crash/late"			# not synced, but it may have been committed
	ls "$MNT/crash"
	[ "$(ls "$MNT/crash")" = kept ]
	[ "$(cat "$MNT/crash/kept")" = kept ]
	sync
}

after_dirsync() {
	umount "$MNT"
	mount_it
	[ "$(ls -1 "$MNT/dirsync" | tr '\n' ' ')" = "c d s " ]
}

everything_free() {
	rm -rf "${MNT:?}"/*
	sync
	[ "$(ls -A "$MNT")" = "" ]
	for ((i = 0; i < 50; i++)); do
		[ "$(df --output=iused "$MNT" | tail -n 1)" -gt 1 ] || return 0
		sleep 0.1
	done
	echo "$(df --output=iused "$MNT" | tail -n 1) inodes are left"
	return 1
}

nothing_busy() {
	refused sh -c "dmesg | grep -i 'busy inodes'"
}

module_goes() {
	modprobe -r tux3 2>/dev/null || rmmod tux3
	refused grep -qw tux3 /proc/filesystems
}

if [ $# = 1 ]; then
	"$1"
	exit
fi
fresh || exit 1
for test in kinds leases volume_ioctls links renames tmpfile removed_cwd times times_beside_finer_ones positions xattrs idmapped \
	    handles unlinked; do
	system_calls $test
done
function_test acls acls
function_test "the group is inherited" inherited_group
function_test "immutable and append-only" attributes
function_test "positions of 31 bits" short_positions
function_test "read-only right after rm" remount_after_rm
checked_umount "clean after the simple ones"

mount_it || exit 1
system_calls crash
function_test "what was open without a name is gone after the crash" after_crash
umount "$MNT" && mount -t tux3 -o dirsync "$DEVICE" "$MNT" || exit 1
system_calls dirsync
function_test "with dirsync all names are there after the crash" after_dirsync
checked_umount "clean after the crashes"

mount_it || exit 1
system_calls handle_race
system_calls hammer
system_calls churn
system_calls full
system_calls many
check "rm -rf of 100000 files" rm -rf "$MNT/many"
function_test "everything is free again" everything_free
checked_umount "clean in the end"
function_test "no inode is left busy" nothing_busy
function_test "the module can be removed" module_goes
summary
