#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""
Pages of mapped files are held by /dev/holder (tests/vm/module/holder.c), and written to after a commit has taken them, or while
it does.

	held.py CASE DIR		what is done, up to the crash or the umount
	held.py CASE DIR --check	what must be there after it
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys
import threading
import time

BLOCK = 4096
GET, FILL, PUT, CHANGE = (ord("H") << 8 | number for number in (1, 2, 3, 4))
PAGEOUT = 21		# madvise
COLLAPSE = 8		# fallocate
LATE, OTHER = 4, 9	# blocks of one folio
LATE_BLOCKS = 16
CHANGED = 300		# a block that is not written at once when it is taken
FILES, FILE_BLOCKS = 8, 512	# no more than a commit writes together with its log, which has the checksums
LARGE_BYTES = 48 << 20


class Held:
    """A page of a mapping, as a device has it."""

    def __init__(self, memory, block):
        self.fd = os.open("/dev/holder", os.O_RDWR)
        start = ctypes.c_char.from_buffer(memory, block * BLOCK)
        self.pages = fcntl.ioctl(self.fd, GET, bytearray(struct.pack("Q", ctypes.addressof(start))))

    def fill(self, byte):
        fcntl.ioctl(self.fd, FILL, byte)

    def change(self):
        """For some ms, all the time."""
        fcntl.ioctl(self.fd, CHANGE, 5)

    def put(self):
        fcntl.ioctl(self.fd, PUT)
        os.close(self.fd)


class Changing(threading.Thread):
    """Somebody who writes to the page all the time."""

    def __init__(self, held):
        super().__init__()
        self.held, self.over = held, False
        self.start()

    def run(self):
        while not self.over:
            self.held.change()

    def stop(self):
        self.over = True
        self.join()


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


def meanwhile(told):
    """The page changes while the commit writes all of the file.  Whether or not the holder tells of that in time, others are safe."""
    def act(path):
        for number in range(FILES):
            file, memory = old_file(f"{path}.{number}", FILE_BLOCKS)
            held = Held(memory, CHANGED)
            assert os.pwrite(file.fileno(), b"n" * (FILE_BLOCKS * BLOCK), 0) == FILE_BLOCKS * BLOCK
            changing = Changing(held)
            os.fsync(file.fileno())
            changing.stop()
            if told:
                held.fill(ord("l"))
                held.put()
                os.fsync(file.fileno())

    def check(path):
        for number in range(FILES):
            with open(f"{path}.{number}", "rb") as file:
                data = file.read()
            held = data[CHANGED * BLOCK:(CHANGED + 1) * BLOCK]
            rest = data[:CHANGED * BLOCK] + data[(CHANGED + 1) * BLOCK:]
            assert rest == b"n" * len(rest) and len(data) == FILE_BLOCKS * BLOCK, f"file {number} is old"
            assert not told or held == b"l" * BLOCK, f"the held page has {held[:8]}"
            os.unlink(file.name)

    return act, check


def cut_off(after_s):
    """The page has left its file, perhaps, when the commit of the delta before that comes to it: a larger file is before it."""
    def act(path):
        file, memory = old_file(path, LATE_BLOCKS)
        held = Held(memory, LATE)
        with open(f"{path}.large", "wb", buffering=0) as large:
            large.write(b"n" * LARGE_BYTES)
            os.pwrite(file.fileno(), b"n" * (LATE_BLOCKS * BLOCK), 0)
            changing = Changing(held)
            # Of what was written last: the other may be in an earlier delta, of which it is no part.
            syncing = threading.Thread(target=os.fsync, args=(file.fileno(),))
            syncing.start()
            time.sleep(after_s)
            os.ftruncate(file.fileno(), 0)
            syncing.join()
            changing.stop()

    def check(path):
        with open(f"{path}.large", "rb") as large:
            assert large.read() == b"n" * LARGE_BYTES, "what was synced is old"
        with open(path, "rb") as file:
            data = file.read()
        rest = data[:LATE * BLOCK] + data[(LATE + 1) * BLOCK:]
        assert rest in (b"", b"n" * len(rest)), f"neither what was synced nor what came then: {rest[:8]}"
        os.unlink(f"{path}.large")

    return act, check


def nobody(path):
    """Nothing is copied because somebody might hold what a program has stored to, as long as nobody does."""
    name = os.environ.get("DEVICE", "/dev/vda").rsplit("/", 1)[1]

    def copies():
        with open(f"/sys/fs/tux3/{name}/private_copies") as file:
            return int(file.read())

    file, memory = old_file(path, LARGE_BYTES // BLOCK)
    for turn in range(2):
        before = copies()
        for at in range(0, LARGE_BYTES, BLOCK):
            memory[at] = turn
        os.fsync(file.fileno())
        assert copies() - before < 128, f"{copies() - before} blocks were copied"
    held = Held(memory, LATE)
    os.pwrite(file.fileno(), b"n" * BLOCK * LATE_BLOCKS, 0)
    before = copies()
    os.fsync(file.fileno())
    assert copies() - before >= LATE_BLOCKS, "nothing was copied of what is held"
    held.put()
    os.unlink(path)


def moved(path):
    """Blocks before and behind a page that somebody holds can be taken out of the file, and the page, too."""
    file, memory = old_file(path, LATE_BLOCKS)
    memory[LATE * BLOCK] = memory[OTHER * BLOCK] = ord("n")
    held = Held(memory, LATE)
    os.fsync(file.fileno())
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    for block in LATE + 1, LATE - 1, LATE - 1:
        if fallocate(file.fileno(), COLLAPSE, ctypes.c_long(block * BLOCK), ctypes.c_long(BLOCK)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"collapse of block {block}")
    held.put()
    os.fsync(file.fileno())
    with open(path, "rb") as again:
        data = again.read()
    assert len(data) == (LATE_BLOCKS - 3) * BLOCK, f"{len(data)} bytes"
    changed = {at for at in range(len(data)) if data[at:at + 1] != b"o"}
    assert changed == {(OTHER - 3) * BLOCK}, f"other bytes at {sorted(changed)[:4]}"
    os.unlink(path)


CASES = {
    "late-write": late(write),
    "late-store": late(store),
    "late-unmapped": late(write, lambda file, memory: memory.close()),
    "late-paged-out": late(write, page_out),
    "meanwhile": meanwhile(False),
    "meanwhile-told": meanwhile(True),
    "nobody": (nobody, None),
    "moved": (moved, None),
    "cut-off-soon": cut_off(0.02),
    "cut-off": cut_off(0.1),
    "cut-off-late": cut_off(0.3),
}

if __name__ == "__main__":
    act, check = CASES[sys.argv[1]]
    (check if sys.argv[3:] else act)(f"{sys.argv[2]}/{sys.argv[1]}")
