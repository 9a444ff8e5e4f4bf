#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Replay what dm-log-writes recorded, and check the volume at every flush.

    log_writes.py IMAGE LOG --fsck PROGRAM [--every N]

IMAGE is what the device held before the recording; it is changed.  LOG is the log device.  At each flush (or FUA write) that
ends the N-th such step, PROGRAM -n IMAGE must find nothing: what was on the disk then is what a power cut just after
it would have left, with all later writes lost.

The log, as the kernel's documentation has it (admin-guide/device-mapper/log-writes): a superblock, then entries, each
one sector that says where, how much and what for, followed by the data.  Addresses and lengths count sectors of the size that the
superblock gives; all numbers are little-endian.
"""
import argparse
import struct
import subprocess
import sys
from typing import NamedTuple

MAGIC, VERSION = 0x6A736677736872, 1
SUPER = struct.Struct("<QQQI")		# magic, version, entries, sector size
ENTRY = struct.Struct("<QQQQ")		# sector, sectors, flags, bytes of data that are part of the entry
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


class Entry(NamedTuple):
    """Where on the device, in bytes; where in the log its data is; a mark's text."""
    number: int
    offset: int
    size: int
    flags: int
    at: int
    text: str


def index(log):
    """All entries, without their data."""
    magic, version, count, sector_size = SUPER.unpack(log.read(SUPER.size))
    if magic != MAGIC or version != VERSION:
        sys.exit(f"log_writes.py: {log.name} is not a dm-log-writes log")
    at = sector_size
    for number in range(count):
        log.seek(at)
        sector, sectors, flags, text_bytes = ENTRY.unpack(log.read(ENTRY.size))
        # A mark's text fills up the entry's own sector.
        text = log.read(text_bytes).decode(errors="replace").rstrip("\0") if flags & MARK else ""
        at += sector_size
        yield Entry(number, sector * sector_size, sectors * sector_size, flags, at, text)
        if not flags & (MARK | DISCARD):
            at += sectors * sector_size


def read_data(log, entry):
    if entry.flags & (MARK | DISCARD):
        return b""
    log.seek(entry.at)
    return log.read(entry.size)


def check(program, image):
    done = subprocess.run([program, "-n", image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image")
    parser.add_argument("log")
    parser.add_argument("--fsck", required=True)
    parser.add_argument("--every", type=int, default=1, help="check at every N-th flush only")
    args = parser.parse_args()
    writes = flushes = checks = failed = 0
    with open(args.log, "rb") as log, open(args.image, "r+b", buffering=0) as image:
        for entry in index(log):
            if data := read_data(log, entry):
                image.seek(entry.offset)
                image.write(data)
                writes += 1
            # A flush covers what was completed before it; the recorder puts that in front of it.
            if not entry.flags & (FLUSH | FUA):
                continue
            flushes += 1
            if flushes % args.every:
                continue
            checks += 1
            status, text = check(args.fsck, args.image)
            if status:
                failed += 1
                print(f"entry {entry.number}: after flush {flushes} the check ends with status {status}:\n{text[-2000:]}")
                if failed > 3:
                    break
    print(f"{writes} writes, {flushes} flushes, {checks} checked")
    if not checks:
        sys.exit("log_writes.py: there was no flush to check")
    print(f"{checks - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
