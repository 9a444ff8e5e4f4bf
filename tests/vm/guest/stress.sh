#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# stress-ng's filesystem stressors for a few seconds each, and two processes hammering one directory.  In the machine:
#	vm/run --disk 2G -- tests/vm/guest/stress.sh [SECONDS for each stressor]
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
SECONDS_EACH=${1:-5}
# Those that need what we do not have (a swap file, DAX), or that test the kernel and not the filesystem, are left out.
STRESSORS=(access chdir chmod chown copy-file dentry dir dirdeep dirmany dup eventfd fallocate fcntl fiemap file-ioctl filename
	   flock fpunch fstat getdent hdd inode-flags io iomix lease link locka lockf lockofd metamix mknod mmapfork msync open
	   readahead rename seek sendfile splice symlink sync-file touch truncate unlink utime xattr mmap-file:mmap)

hammer() {	# $1: who
	local n i
	for ((n = 0; n < 1500; n++)); do
		i=$((RANDOM % 40))
		case $((RANDOM % 6)) in
		0) echo "$1 $n" >"$MNT/hammer/n$i" ;;
		1) rm -f "$MNT/hammer/n$i" ;;
		2) mv -f "$MNT/hammer/n$i" "$MNT/hammer/n$((RANDOM % 40))" ;;
		3) ln -f "$MNT/hammer/n$i" "$MNT/hammer/n$((RANDOM % 40))" ;;
		4) mkdir "$MNT/hammer/d$i" ;;
		5) rmdir "$MNT/hammer/d$i" ;;
		esac 2>/dev/null
	done
	return 0
}

fresh || { failed fresh "no volume"; summary; }
for stressor in "${STRESSORS[@]}"; do
	name=${stressor%%:*} kind=${stressor##*:}
	more=
	[ $name != mmap-file ] || more=--mmap-file
	stress-ng --help | grep -q -- "--$kind N" || { echo "skipped stress-ng $name: this stress-ng has none"; continue; }
	output=$(timeout -k 5 $((SECONDS_EACH * 6 + 60)) stress-ng --$kind 2 $more --temp-path "$MNT" --timeout $SECONDS_EACH \
		--verify --oomable 2>&1)
	status=$?
	# 3: it has no resources to run with; 4: not implemented on this system.
	case $status in
	0) ok "stress-ng $name" ;;
	3 | 4) echo "skipped stress-ng $name: $(echo "$output" | tail -n 1)" ;;
	*) failed "stress-ng $name" "exit status $status: $(echo "$output" | grep -v info: | tail -n 5)" ;;
	esac
done
check "nothing is left by stress-ng" bash -c "! ls $MNT | grep -v hammer | grep ."

mkdir "$MNT/hammer"
hammer one & hammer two &
wait
check "the hammered directory can be listed" ls -l "$MNT/hammer"
for name in "$MNT"/hammer/n*; do
	[ -s "$name" ] || failed "hammered directory" "$name is not there or empty, though it is listed"
done
checked_umount "clean after stress"
mount_it && check "it can be removed" rm -r "$MNT/hammer"
checked_umount "clean after removal"
summary
