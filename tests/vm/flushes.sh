#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/vm/flushes.sh: record a workload in a virtual machine, replay it here, fsck at every flush.
cd "$(dirname "$0")/../.." || exit 1
folder=$(mktemp -d -p /dev/shm tux3-flushes-XXXXXX) || exit 1
trap 'rm -rf "$folder"' EXIT
build/mkfs.tux3 --quiet "$folder/volume.img" 256M && cp --sparse=always "$folder/volume.img" "$folder/start.img" &&
	truncate -s 2G "$folder/log.img" || exit 1
vm/run --disk "$folder/volume.img" --disk "$folder/log.img" -- tests/vm/guest/recorded.sh || exit 1
tests/vm/log_writes.py "$folder/start.img" "$folder/log.img" --fsck build/fsck.tux3 || exit 1
cmp "$folder/start.img" "$folder/volume.img" || { echo "the replay differs from the volume"; exit 1; }
