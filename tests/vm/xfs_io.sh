#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/vm/xfs_io.sh: newer xfsprogs than the guest has ask the module by XFS's ioctls.
cd "$(dirname "$0")/../.." || exit 1
vm/fetch xfsprogs || exit
folder=$(mktemp -d -p /dev/shm tux3-xfs-io-XXXXXX) || exit 1
trap 'rm -rf "$folder"' EXIT
# --disk opens what it gets for writing.
cp "${TUX3_CACHE:-cache/vm}/xfsprogs/root.img" "$folder/xfsprogs.img" && mkdir -p build/tests &&
	gcc -shared -fPIC -Wall -Werror -O1 tests/vm/as_xfs.c -o build/tests/as_xfs.so &&
	vm/run --disk 256M --disk "$folder/xfsprogs.img" -- tests/vm/guest/xfs_io.sh
