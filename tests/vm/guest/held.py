#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""
Pages of mapped files are held by /dev/holder (tests/vm/module/holder.c), and written to after a commit has taken them.

	held.py CASE DIR		what is done, up to the crash or the umount
	held.py CASE DIR --check	what must be there after it
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys

BLOCK = 4096
GET, FILL, PUT = (ord("H") << 8 | number for number in (1, 2, 3))
PAGEOUT = 21		# madvise
LATE, OTHER = 4, 9	# blocks of one folio
LATE_BLOCKS = 16


class Held:
    """A page of a mapping, as a device has it."""

    def __init__(self, memory, block):
        self.fd = os.open("/dev/holder", os.O_RDWR)
        start = ctypes.c_char.from_buffer(memory, block * BLOCK)
        self.pages = fcntl.ioctl(self.fd, GET, bytearray(struct.pack("Q", ctypes.addressof(start))))

    def fill(self, byte):
        fcntl.ioctl(self.fd, FILL, byte)

    def put(self):
        fcntl.ioctl(self.fd, PUT)
        os.close(self.fd)


def old_file(path, blocks):
    """With old contents, durable, and mapped."""
    file = open(path, "wb+", buffering=0)
    assert file.write(b"o" * (blocks * BLOCK)) == blocks * BLOCK
    os.fsync(file.fileno())
    return file, mmap.mmap(file.fileno(), blocks * BLOCK)


def store(file, memory):
    memory[OTHER * BLOCK:OTHER * BLOCK + 5] = b"other"


def write(file, memory):
    os.pwrite(file.fileno(), b"other", OTHER * BLOCK)


def late(change, between=lambda file, memory: None):
    """The page is committed, another block of its folio becomes dirty, then comes what the holder has for the page."""
    def act(path):
        file, memory = old_file(path, LATE_BLOCKS)
        held = Held(memory, LATE)
        assert held.pages >= LATE_BLOCKS, f"a folio of {held.pages} pages"
        os.fsync(file.fileno())
        between(file, memory)
        change(file, memory)
        held.fill(ord("n"))
        held.put()
        os.fsync(file.fileno())

    def check(path):
        with open(path, "rb") as file:
            data = file.read()
        assert data[OTHER * BLOCK:].startswith(b"other"), "the other block is old"
        assert data[LATE * BLOCK:(LATE + 1) * BLOCK] == b"n" * BLOCK, f"the held page has {data[LATE * BLOCK:][:8]}"
        for block in set(range(LATE_BLOCKS)) - {LATE, OTHER}:
            assert data[block * BLOCK:(block + 1) * BLOCK] == b"o" * BLOCK, f"block {block}"

    return act, check


def page_out(file, memory):
    """What reclaim does to a folio that cannot go."""
    memory.madvise(PAGEOUT)


CASES = {
    "late-write": late(write),
    "late-store": late(store),
    "late-unmapped": late(write, lambda file, memory: memory.close()),
    "late-paged-out": late(write, page_out),
}

if __name__ == "__main__":
    act, check = CASES[sys.argv[1]]
    (check if sys.argv[3:] else act)(f"{sys.argv[2]}/{sys.argv[1]}")
