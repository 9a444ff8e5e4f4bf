#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/conformance.sh fuse|vm [SEED]: two known test programs, on tux3-fuse here or on the module in a virtual machine.
#
#	pjdfstest	what POSIX says of chmod, link, open, rename, unlink and others, error by error
#	fsx		random reads and writes, by calls and by mappings, truncates, holes, copies: each read is compared;
#			three at a time, beside sync and drop_caches
#
# Both are built from crates.io, into the cache, which takes cargo 1.85 or later and some minutes.  SEED replays fsx's operations.
# Exit status 126: no such cargo.
set -u
cd "$(dirname "$0")/.." || exit 1
where=${1:-} seed=${2:-$RANDOM}
case $where in
fuse | vm) ;;
*) echo "usage: tests/conformance.sh fuse|vm [SEED]" >&2; exit 2 ;;
esac
FSX=0.3.2 PJDFSTEST=0.2.2
programs=${TUX3_CACHE:-cache/vm}/conformance-$FSX-$PJDFSTEST

if [ ! -x "$programs/bin/pjdfstest" ]; then
	version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
	if ! printf '%s\n' 1.85.0 "${version:-0}" | sort -C -V; then
		echo "tests/conformance.sh: cargo 1.85 or later is needed to build fsx and pjdfstest; here is ${version:-none}." >&2
		exit 126
	fi
	cargo install --quiet --root "$programs" "fsx@$FSX" && cargo install --quiet --root "$programs" "pjdfstest@$PJDFSTEST" || exit 1
fi
echo "fsx's operations again: tests/conformance.sh $where $seed"
# In build, which the machine sees.
mkdir -p build/conformance && cp "$programs"/bin/* build/conformance || exit 1

if [ "$where" = vm ]; then
	exec vm/run --disk 512M --timeout 1500 -- tests/vm/guest/conformance.sh "$seed"
fi

folder=$(mktemp -d -p /dev/shm tux3-conformance-XXXXXX) || exit 1
chmod 711 "$folder" && mkdir "$folder/mnt"	# other users are part of pjdfstest
cleanup() {
	mountpoint -q "$folder/mnt" && umount "$folder/mnt"
	rm -rf "$folder"
}
trap cleanup EXIT
. tests/vm/guest/conformance_lib.sh
MNT=$folder/mnt
volume() {	# OPTIONS: mounts a new one
	build/mkfs.tux3 -q -f "$folder/image" 512M && build/tux3-fuse -o "$1" "$folder/image" "$MNT"
}
unmounted() {	# nobody has it any more, and it is clean
	umount "$MNT" && for _ in {1..100}; do
		build/fsck.tux3 -n "$folder/image" >"$folder/fsck" 2>&1 && return
		sleep 0.1
	done
	cat "$folder/fsck"
	return 1
}
conformance "$folder" "$seed" defaults age=0.05 writeback,age=0.3
