#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Flags of preadv2(2) and pwritev2(2): RWF_NOWAIT, RWF_DONTCACHE.

	data_rwf.py CHECK FOLDER
"""
import ctypes
import errno
import mmap
import os
import random
import signal
import sys
import time

BLOCK = 4096
MOST = 1 << 20
RWF_DONTCACHE = 0x80
KEEP_SIZE = 1

libc = ctypes.CDLL(None, use_errno=True)


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def try_write(fd, data, offset, flags=os.RWF_NOWAIT):
    """How many bytes were written; -1: it would have had to wait."""
    try:
        return os.pwritev(fd, [data], offset, flags)
    except BlockingIOError:
        return -1


def beside(function):
    """A process that does this again and again, until it is killed."""
    child = os.fork()
    if not child:
        while os.getppid() != 1:
            function()
        os._exit(0)
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def sync_and_drop():
    os.sync()
    drop_caches()
    time.sleep(0.02)


def write_at_random(fd, flags, steps):
    """
    Writes with these flags, and ordinary ones; the file gets what a model says, while commits go on.  Returns how many of
    the first kind were made.
    """
    rng = random.Random(5)
    model, done = bytearray(os.pread(fd, MOST, 0)), 0
    child = beside(sync_and_drop)
    try:
        for step in range(steps):
            special = step % 3
            offset = rng.randrange(MOST - (80 << 10)) & ~(BLOCK - 1 if step % 2 else 0)
            data = rng.randbytes(rng.choice([1, 100, BLOCK, 5 * BLOCK, 64 << 10]))
            wrote = try_write(fd, data, offset, flags) if special else os.pwrite(fd, data, offset)
            if step % 97 == 0:
                os.ftruncate(fd, offset)
                model[offset:] = bytes(max(offset - len(model), 0))
                continue
            if wrote <= 0:
                continue
            done += bool(special)
            model[len(model):] = bytes(max(offset + wrote - len(model), 0))
            model[offset:offset + wrote] = data[:wrote]
            if step % 50 == 0:
                assert os.pread(fd, MOST, 0) == bytes(model), step
    finally:
        end(child)
    os.fsync(fd)
    drop_caches()
    assert os.pread(fd, MOST, 0) == bytes(model)
    return done


def nowait(folder):
    """What needs no waiting is done, anything else is refused and nothing of it done."""
    path = f"{folder}/nowait"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"x" * BLOCK)                              # finds out that there are no privileges to be taken away
    os.fsync(fd)                                            # nobody commits for the next seconds
    assert try_write(fd, b"y" * BLOCK, BLOCK) == BLOCK      # as a whole: nothing to be read
    assert try_write(fd, b"z" * 100, 50) == 100             # in the cache
    assert try_write(fd, b"a" * 10, 2 * BLOCK) == 10        # the file grows
    assert try_write(fd, b"a" * (3 << 20), 2 * BLOCK) > 0   # several deltas at most
    os.ftruncate(fd, 2 * BLOCK + 10)
    os.fsync(fd)
    drop_caches()
    assert try_write(fd, b"z", 3) == -1                     # the rest of the block would have to be read
    assert os.pread(fd, 200, 0) == b"x" * 50 + b"z" * 100 + b"x" * 50
    assert try_write(fd, b"z", 3) == 1
    assert try_write(fd, b"w" * BLOCK, 8 * BLOCK) == -1     # the block with the old end, too
    os.ftruncate(fd, 3 * BLOCK)
    assert try_write(fd, b"w" * (2 * BLOCK), 8 * BLOCK) == 2 * BLOCK
    assert libc.fallocate(fd, KEEP_SIZE, ctypes.c_long(10 * BLOCK), ctypes.c_long(20 * BLOCK)) == 0
    assert try_write(fd, b"p" * (2 * BLOCK), 10 * BLOCK) == 2 * BLOCK
    # Memory that is not there.
    with mmap.mmap(-1, 2 * BLOCK) as area:
        assert try_write(fd, area, 12 * BLOCK) == -1
        assert os.pwrite(fd, area, 12 * BLOCK) == 2 * BLOCK
    dsync = os.open(path, os.O_RDWR | os.O_DSYNC)
    assert try_write(dsync, b"s" * BLOCK, 0) == -1          # that waits for the disk
    os.close(dsync)
    done = write_at_random(fd, os.RWF_NOWAIT, 1500)
    print(f"{done} of 1,000 writes without waiting")
    assert done > 50, done
    os.close(fd)
    os.unlink(path)


def resident(fd):
    """How many pages of the file are in the page cache."""
    size = os.fstat(fd).st_size
    pages = (size + BLOCK - 1) // BLOCK
    vector = ctypes.create_string_buffer(pages)
    with mmap.mmap(fd, size) as area:
        at = ctypes.c_char.from_buffer(area)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(size), vector) == 0
        del at
    return sum(byte & 1 for byte in vector.raw)


def becomes_resident(fd, pages):
    """Folios are dropped at the end of the commit, when who waited for it may go on already."""
    for _ in range(600):
        if resident(fd) == pages:
            return True
        time.sleep(0.05)
    return False


def dontcache(folder):
    """What was written or read so is in the page cache no longer than it must be; and nothing is lost."""
    path = f"{folder}/dontcache"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split("+")[0].split(".")[:2])
    try:
        os.pwritev(fd, [b"x"], 0, RWF_DONTCACHE)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP and version < (6, 18), error
        print("this kernel has no RWF_DONTCACHE")
        return
    rng = random.Random(6)
    pages = 75
    data = rng.randbytes(pages * BLOCK)
    for at in range(0, len(data), 25 * BLOCK):
        assert os.pwritev(fd, [data[at:at + 25 * BLOCK]], at, RWF_DONTCACHE) == 25 * BLOCK
    assert resident(fd) == pages
    os.sync()		# a commit: pages that an fsync put ahead of it stay until it comes
    assert becomes_resident(fd, 0), resident(fd)
    assert os.preadv(fd, [found := bytearray(len(data))], 0, RWF_DONTCACHE) == len(data)
    assert found == data
    assert becomes_resident(fd, 0), resident(fd)
    # What others have brought in, or written to since, stays.
    assert os.pread(fd, len(data), 0) == data
    assert os.pwritev(fd, [b"y" * BLOCK], 5 * BLOCK, RWF_DONTCACHE) == BLOCK
    os.sync()
    assert resident(fd) == pages
    drop_caches()
    assert os.pwritev(fd, [b"n" * BLOCK], 9 * BLOCK, RWF_DONTCACHE) == BLOCK
    os.pwrite(fd, b"o" * BLOCK, 9 * BLOCK)
    os.sync()
    assert becomes_resident(fd, 1), resident(fd)
    data = bytearray(data)
    data[5 * BLOCK:6 * BLOCK], data[9 * BLOCK:10 * BLOCK] = b"y" * BLOCK, b"o" * BLOCK
    assert os.pread(fd, len(data), 0) == bytes(data)
    # Mapped pages stay as long as they are.
    reader = beside(lambda: os.preadv(fd, [bytearray(MOST)], 0, RWF_DONTCACHE))
    try:
        done = write_at_random(fd, RWF_DONTCACHE, 900)
    finally:
        end(reader)
    assert done == 594, done
    os.close(fd)
    os.unlink(path)


CHECKS = {"nowait": nowait, "dontcache": dontcache}
CHECKS[sys.argv[1]](sys.argv[2])
