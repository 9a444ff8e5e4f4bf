#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A file of which a leaf of the tree cannot be read, and what goes on beside it: see bad_block.sh.

    bad_block.py make FOLDER
    bad_block.py leaf OBJECTS INODE BLOCK   OBJECTS: of tux3 show tree --json; prints where the leaf with this file's block is
    bad_block.py cut|nameless|removed FOLDER
"""
import errno
import json
import mmap
import os
import random
import signal
import sys
import time

BLOCK, MIB = 4096, 1 << 20
BYTES = 136 * MIB       # more than goes at once when it is cut off
PIECE = 16 * BLOCK      # each begins with a block that is written, and the rest of it is preallocated
KEPT = 32 * MIB         # where it is cut off; the bad leaf is behind it
BAD = 25000 * BLOCK     # and this in it


def make(folder):
    file = os.open(f"{folder}/long", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, BYTES)
    for offset in range(0, BYTES, PIECE):
        os.pwrite(file, offset.to_bytes(8, "little") * (BLOCK // 8), offset)
    os.fsync(file)
    for name in ("other", "synced"):
        with open(f"{folder}/{name}", "wb") as other:
            other.write(bytes(BLOCK))
    print(os.fstat(file).st_ino)


def leaf(objects, ino, block):
    at = None
    with open(objects) as file:
        for found in json.load(file):
            if found.get("object") == "leaf":
                at = found["addr"]
            elif found.get("type") == "extent" and found.get("ino") == int(ino) and found["offset"] >= int(block):
                print(at)
                return
    sys.exit("there is no such leaf")


# ---- what goes on beside ----

class Beside:
    """Processes that do something again and again until they are ended, each of which must not have failed."""

    def __init__(self):
        self.pids = []

    def start(self, function, *arguments):
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            try:
                while True:
                    function(*arguments)
            except BaseException as error:      # pylint: disable=broad-except
                print(f"{function.__name__}: {error!r}", flush=True)
            os._exit(1)
        self.pids.append(pid)

    def end(self, allowed=()):
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        for pid in self.pids:
            status = os.waitpid(pid, 0)[1]
            assert not status or os.WTERMSIG(status) in allowed, status


def read_bad(file):
    """Of what the bad leaf has: each is told, as far as there is room in the kernel's log, which other news need, too."""
    try:
        os.pread(file, BLOCK, BAD)
    except OSError as error:
        assert error.errno == errno.EIO, error


def read_some(file):
    offset = random.randrange(KEPT // PIECE) * PIECE
    found = os.pread(file, BLOCK, offset)
    assert found == offset.to_bytes(8, "little") * (BLOCK // 8), (offset, found[:16])


def read_directly(file, memory):
    offset = random.randrange(KEPT // PIECE) * PIECE
    assert os.preadv(file, [memory], offset) == BLOCK
    assert memory[:8] == offset.to_bytes(8, "little"), (offset, memory[:16])


def store(memory):
    """To blocks that nobody reads; when the file takes no data any more that is SIGBUS."""
    memory[random.randrange(len(memory) // PIECE) * PIECE + BLOCK] = random.randrange(256)


def sync_other(file):
    os.pwrite(file, random.randbytes(BLOCK), 0)
    os.fsync(file)


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
    time.sleep(0.05)


def begin(folder):
    path = f"{folder}/long"
    file, direct = os.open(path, os.O_RDWR), os.open(path, os.O_RDONLY | os.O_DIRECT)
    beside = Beside()
    beside.start(read_bad, file)
    beside.start(read_some, file)
    beside.start(read_directly, direct, mmap.mmap(-1, BLOCK))
    beside.start(store, mmap.mmap(file, 8 * MIB))
    beside.start(sync_other, os.open(f"{folder}/synced", os.O_RDWR))
    beside.start(drop_caches)
    time.sleep(1)
    os.close(direct)
    return file, beside


def fails(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        assert error.errno == errno.EIO, error
        return
    raise AssertionError(f"{function.__name__} does not fail")


def goes_on(folder):
    for name in ("other", "synced"):
        file = os.open(f"{folder}/{name}", os.O_RDWR)
        os.pwrite(file, b"more", 0)
        os.fsync(file)
        os.close(file)
    os.sync()


# ---- what is done ----

def cut(folder):
    """The end is cut off, but cannot be freed: data of the file cannot be changed.  Then it is removed."""
    file, beside = begin(folder)
    fails(os.ftruncate, file, KEPT)
    assert os.fstat(file).st_size == KEPT
    fails(os.pwrite, file, b"data", 0)
    fails(os.ftruncate, file, BYTES)
    fails(os.posix_fallocate, file, 0, BYTES)
    os.fchmod(file, 0o600)
    os.fsync(file)
    goes_on(folder)
    os.unlink(f"{folder}/long")
    goes_on(folder)
    time.sleep(1)
    beside.end((signal.SIGBUS,))
    os.close(file)
    goes_on(folder)


def nameless(folder):
    """It is removed while it is used, and then cut off."""
    file, beside = begin(folder)
    os.unlink(f"{folder}/long")
    goes_on(folder)
    fails(os.ftruncate, file, KEPT)
    goes_on(folder)
    os.pwrite(file, b"data", BLOCK)
    time.sleep(1)
    beside.end()
    os.close(file)
    goes_on(folder)


def removed(folder):
    """It is replaced while it is used."""
    file, beside = begin(folder)
    os.rename(f"{folder}/other", f"{folder}/long")
    os.rename(f"{folder}/long", f"{folder}/other")
    os.close(file)
    time.sleep(1)
    goes_on(folder)
    beside.end()
    goes_on(folder)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
