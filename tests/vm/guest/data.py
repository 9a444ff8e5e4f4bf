#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""
File data against a model: what a file must hold after a long random sequence of writes, stores through a mapping,
truncates, fallocates, syncs, dropped caches and remounts.

	data.py MODEL_DIR SEED STEPS		one sequence; prints the seed and the step when something differs
	data.py --check NAME DIR		a single check, see CHECKS
"""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import select
import signal
import struct
import subprocess
import sys
import threading
import time

BLOCK = 4096
MOST = 3 << 20
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_int64]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, offset, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("1\n")


class Model:
    """One file and what it must hold."""

    def __init__(self, path, seed):
        self.path, self.rng, self.data = path, random.Random(seed), bytearray()
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)

    def place(self):
        """An offset and a length: anywhere, or at edges of blocks, or near the end."""
        rng = self.rng
        offset = rng.choice([rng.randrange(MOST), rng.randrange(64 * BLOCK), len(self.data),
                             rng.randrange(MOST) & ~(BLOCK - 1), max(len(self.data) - rng.randrange(9000), 0)])
        length = rng.choice([rng.randrange(1, 600), rng.randrange(1, 3 * BLOCK), BLOCK, rng.randrange(1, 300_000),
                             BLOCK * rng.randrange(1, 40)])
        return offset, min(length, MOST - offset) if offset < MOST else 0

    def bytes(self, length):
        return self.rng.randbytes(length) if self.rng.random() < 0.9 else bytes(length)

    def put(self, offset, data):
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:offset + len(data)] = data

    def grow(self, size):
        if len(self.data) < size:
            self.data.extend(bytes(size - len(self.data)))

    def do_write(self):
        offset, length = self.place()
        if not length:
            return
        data = self.bytes(length)
        assert os.pwrite(self.fd, data, offset) == length
        self.put(offset, data)

    def do_append(self):
        data = self.bytes(self.rng.choice([1, 100, 4096, 5000, 70_000]))
        if len(self.data) + len(data) > MOST:
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        for at in range(0, len(data), 997):
            os.write(fd, data[at:at + 997])
        os.close(fd)
        self.put(len(self.data), data)

    def do_mmap(self):
        offset, length = self.place()
        length = min(length, len(self.data) - offset)
        if length <= 0:
            return
        data = self.bytes(length)
        with mmap.mmap(self.fd, len(self.data)) as area:
            area[offset:offset + length] = data
            self.put(offset, data)
            # Beyond the end, in its page: must never be seen.
            tail = -len(self.data) % BLOCK
            if tail and self.rng.random() < 0.5:
                address = ctypes.addressof(ctypes.c_char.from_buffer(area)) + len(self.data)
                ctypes.memset(address, 0xee, tail)
                if self.rng.random() < 0.3:
                    os.fsync(self.fd)

    def do_read(self):
        offset, length = self.place()
        found = os.pread(self.fd, length, offset)
        expected = bytes(self.data[offset:offset + length])
        if found != expected:
            at = next((i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), min(len(found), len(expected)))
            raise AssertionError(f"reading {length} at {offset}: differs at {offset + at}, lengths {len(found)} {len(expected)}")

    def do_truncate(self):
        size = self.rng.choice([0, self.rng.randrange(MOST), self.rng.randrange(len(self.data) + 1),
                                len(self.data) & ~(BLOCK - 1), self.rng.randrange(700),
                                max(len(self.data) - self.rng.randrange(70_000), 0)])
        os.ftruncate(self.fd, size)
        self.grow(size)
        del self.data[size:]

    def do_punch(self):
        offset, length = self.place()
        if not length:
            return
        fallocate(self.fd, PUNCH | KEEP_SIZE, offset, length)
        stop = min(offset + length, len(self.data))
        if offset < stop:
            self.data[offset:stop] = bytes(stop - offset)

    def do_zero_range(self):
        offset, length = self.place()
        if not length:
            return
        keep = self.rng.random() < 0.5
        fallocate(self.fd, ZERO | (KEEP_SIZE if keep else 0), offset, length)
        if not keep:
            self.grow(offset + length)
        stop = min(offset + length, len(self.data))
        if offset < stop:
            self.data[offset:stop] = bytes(stop - offset)

    def do_fallocate(self):
        offset, length = self.place()
        if not length:
            return
        keep = self.rng.random() < 0.5
        fallocate(self.fd, KEEP_SIZE if keep else 0, offset, length)
        if not keep:
            self.grow(offset + length)

    def do_fsync(self):
        os.fsync(self.fd)

    def do_sync(self):
        os.sync()

    def do_writeback(self):
        libc.sync_file_range(self.fd, ctypes.c_int64(0), ctypes.c_int64(0), 7)

    def do_drop(self):
        drop_caches()

    def do_seek(self):
        """Holes are zeros; data and holes follow each other."""
        size, at = len(self.data), 0
        while at < size:
            try:
                data = os.lseek(self.fd, at, os.SEEK_DATA)
            except OSError as error:
                assert error.errno == errno.ENXIO
                data = size
            assert not any(self.data[at:data]), f"a hole at {at}, up to {data}, is none"
            if data == size:
                break
            at = os.lseek(self.fd, data, os.SEEK_HOLE)
            assert data < at <= size, f"data at {data} ends at {at} of {size}"

    def do_reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)

    def check_all(self):
        assert os.fstat(self.fd).st_size == len(self.data), f"size {os.fstat(self.fd).st_size}, not {len(self.data)}"
        found = os.pread(self.fd, MOST * 2, 0)
        if found != bytes(self.data):
            at = next(i for i, pair in enumerate(zip(found, self.data)) if pair[0] != pair[1])
            raise AssertionError(f"differs at {at} (block {at // BLOCK}), found {found[at:at + 8].hex()}, "
                                 f"expected {bytes(self.data[at:at + 8]).hex()}")


WEIGHTS = {"write": 12, "append": 4, "mmap": 6, "read": 8, "truncate": 6, "punch": 5, "zero_range": 3, "fallocate": 3,
           "fsync": 2, "sync": 1, "writeback": 2, "drop": 2, "seek": 2, "reopen": 1}


def run_model(folder, seed, steps, remount):
    files = [Model(f"{folder}/model-{seed}-{i}", seed * 10 + i) for i in range(3)]
    rng = random.Random(seed)
    step, name = 0, ""
    try:
        for step in range(steps):
            model = rng.choice(files)
            name = rng.choices(list(WEIGHTS), WEIGHTS.values())[0]
            getattr(model, "do_" + name)()
            if step % 50 == 49:
                for model in files:
                    model.check_all()
            if remount and step % 150 == 149:
                name = "remount"
                for model in files:
                    os.close(model.fd)
                subprocess.run(["umount", folder], check=True)
                subprocess.run(["mount", "-t", "tux3", os.environ.get("DEVICE", "/dev/vda"), folder], check=True)
                for model in files:
                    model.fd = os.open(model.path, os.O_RDWR)
                    model.check_all()
    except (AssertionError, OSError) as error:
        sys.exit(f"seed {seed}, step {step}, {name}: {error}")


# ---- single checks ----

def far(folder):
    """Offsets beyond 2^40, up to the last byte there may be."""
    fd = os.open(f"{folder}/far", os.O_RDWR | os.O_CREAT, 0o644)
    places = [(1 << 40) + 1, (1 << 43) - 5, (1 << 52) + 4096, (1 << 62) + 12345, (1 << 63) - 1 - 100]
    for place in places:
        os.pwrite(fd, b"far %d" % place, place)
    os.fsync(fd)
    drop_caches()
    for place in places:
        expected = b"far %d" % place
        assert os.pread(fd, len(expected), place) == expected, place
        assert os.lseek(fd, place - 10, os.SEEK_DATA) == max(place & ~(BLOCK - 1), place - 10), place
        assert os.pread(fd, 10, place - 10) == bytes(10)
    try:
        os.pwrite(fd, b"x", (1 << 63) - 1)
        raise AssertionError("written beyond the largest size")
    except OSError as error:
        assert error.errno in (errno.EFBIG, errno.EINVAL, errno.EOVERFLOW), error
    assert os.fstat(fd).st_blocks <= 8 * len(places) * 2
    os.ftruncate(fd, (1 << 43) - 5)
    assert os.lseek(fd, 1 << 42, os.SEEK_END) > 0
    os.ftruncate(fd, 0)
    os.fsync(fd)
    assert os.fstat(fd).st_blocks == 0
    os.close(fd)


def seek(folder):
    fd = os.open(f"{folder}/seek", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.pwrite(fd, b"x" * 10000, 100_000)
    os.ftruncate(fd, 300_000)
    for durable in range(2):
        first, stop = 100_000 & ~4095, (110_000 + 4095) & ~4095
        assert os.lseek(fd, 0, os.SEEK_DATA) == first
        assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
        assert os.lseek(fd, first + 5, os.SEEK_HOLE) == stop
        assert os.lseek(fd, first + 5, os.SEEK_DATA) == first + 5
        for offset, whence in ((stop, os.SEEK_DATA), (300_000, os.SEEK_HOLE), (300_000, os.SEEK_DATA)):
            try:
                os.lseek(fd, offset, whence)
                raise AssertionError((offset, whence))
            except OSError as error:
                assert error.errno == errno.ENXIO
        assert os.lseek(fd, stop, os.SEEK_HOLE) == stop
        fallocate(fd, 0, 200_704, 8192)
        os.fsync(fd)
        assert os.lseek(fd, stop, os.SEEK_HOLE) == stop
    os.close(fd)


def counter(name):
    """What the volume has counted."""
    with open(f"/sys/fs/tux3/{os.path.basename(os.environ['DEVICE'])}/{name}") as file:
        return int(file.read())


def seek_steps(folder):
    """A walk through 5,000 pieces of a cached file with one dirty block does not look at all of the cache each time."""
    pieces = 5000
    subprocess.run(["mount", "-o", "remount,age=600", folder], check=True)
    fd = os.open(f"{folder}/seek-steps", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    for piece in range(pieces):
        os.pwrite(fd, b"x", 2 * piece * BLOCK)
    os.fsync(fd)
    os.pwrite(fd, b"y", 2 * pieces * BLOCK)
    before, at, found = counter("dirty_looks"), 0, 0
    while at < (2 * pieces + 1) * BLOCK - BLOCK + 1:
        at = os.lseek(fd, at, os.SEEK_DATA)
        assert at == 2 * found * BLOCK, (at, found)
        at = os.lseek(fd, at, os.SEEK_HOLE)
        found += 1
    looked = counter("dirty_looks") - before
    print(f"{found} pieces, {looked} looks")
    assert found == pieces + 1
    assert looked <= 20 * pieces, looked
    os.close(fd)
    subprocess.run(["mount", "-o", "remount,age=5", folder], check=True)


def truncate_steps(folder):
    """Who takes block after block from the end of a file does not look at all that is dirty of it each time."""
    pieces, cuts = 5000, 1000
    subprocess.run(["mount", "-o", "remount,age=600", folder], check=True)
    fd = os.open(f"{folder}/truncate-steps", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.fsync(fd)
    for piece in reversed(range(pieces)):  # in folios of one block each
        os.pwrite(fd, b"x", 2 * piece * BLOCK)
    before = counter("dirty_looks")
    for cut in range(1, cuts + 1):
        os.ftruncate(fd, 2 * (pieces - cut) * BLOCK)
    looked = counter("dirty_looks") - before
    print(f"{cuts} truncates, {looked} looks")
    assert 0 < looked <= 200 * cuts, looked
    os.fsync(fd)
    assert os.fstat(fd).st_blocks == (pieces - cuts) * BLOCK // 512, os.fstat(fd).st_blocks
    assert os.pread(fd, BLOCK, 2 * (pieces - cuts - 1) * BLOCK)[:1] == b"x"
    os.close(fd)
    subprocess.run(["mount", "-o", "remount,age=5", folder], check=True)


def as_user(uid, function):
    """What function changes, in operations of the volume; called by another process, as this user."""
    before = counter("ops")
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            function()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    return counter("ops") - before


def setid(folder):
    """Who changes a setuid file takes the bits away in the same delta: no crash comes between."""
    path = f"{folder}/setid"
    ways = {"open": lambda: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
            "truncate to nothing": lambda: os.truncate(path, 0),
            "truncate": lambda: os.truncate(path, 5000),
            "extend": lambda: os.truncate(path, 50_000),
            "write": lambda: os.pwrite(os.open(path, os.O_WRONLY), b"y", 5000),
            "append": lambda: os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b"y" * 9000),
            "fallocate": lambda: fallocate(os.open(path, os.O_WRONLY), 0, 0, 50_000),
            "punch": lambda: fallocate(os.open(path, os.O_WRONLY), PUNCH | KEEP_SIZE, 0, 8192)}
    for acl in range(2):
        for name, change in ways.items():
            fewest = 9
            for _ in range(3):      # a worker may change something meanwhile
                with open(path, "wb") as file:
                    file.write(b"x" * 10_000)
                if acl:
                    subprocess.run(["setfacl", "-m", "u:3:r", path], check=True)
                os.chmod(path, 0o6777)
                os.sync()
                fewest = min(fewest, as_user(1000, change))
                assert os.stat(path).st_mode & 0o7777 == 0o777, name
            assert fewest == 1, (name, acl, fewest)
        assert not acl or b"user:3:r--" in subprocess.run(["getfacl", "-cn", path], check=True, capture_output=True).stdout


def seek_race(folder):
    """Another process syncs: what is being committed is data all the time, and what never was written is a hole."""
    for turn in range(4):
        fd = os.open(f"{folder}/seek-race", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.ftruncate(fd, 600 * BLOCK)
        child = os.fork()
        if not child:
            while os.getppid() != 1:
                os.fsync(fd)
        try:
            for block in range(0, 600, 2):
                os.pwrite(fd, b"x" * BLOCK, block * BLOCK)
                for _ in range(5):
                    assert os.lseek(fd, block * BLOCK, os.SEEK_DATA) == block * BLOCK, (turn, block)
                    assert os.lseek(fd, block * BLOCK, os.SEEK_HOLE) == (block + 1) * BLOCK, (turn, block)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(fd)


def seek_punched(folder):
    """Another process syncs: what is punched while it is committed is a hole at once, in the middle of a large folio, too."""
    fd = os.open(f"{folder}/seek-punched", os.O_RDWR | os.O_CREAT, 0o644)
    child = os.fork()
    if not child:
        while os.getppid() != 1:
            os.fsync(fd)
    try:
        for turn in range(600):
            os.pwrite(fd, bytes([turn % 255 + 1]) * 64 * BLOCK, 0)
            time.sleep(turn % 20 / 10000)
            fallocate(fd, PUNCH | KEEP_SIZE, 20 * BLOCK, 20 * BLOCK)
            assert os.lseek(fd, 19 * BLOCK, os.SEEK_HOLE) == 20 * BLOCK, turn
            assert os.lseek(fd, 20 * BLOCK, os.SEEK_DATA) == 40 * BLOCK, turn
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(fd)


SYNC = 1		# FIEMAP_FLAG_SYNC: an fsync may leave the file's place on the disk to its delta


def fiemap_of(fd, flags=0):
    """[(first byte, bytes, disk byte, flags)]"""
    request = bytearray(struct.pack("=QQIIII", 0, (1 << 64) - 1, flags, 0, 100, 0) + bytes(100 * 56))
    fcntl.ioctl(fd, 0xC020660B, request)
    count = struct.unpack_from("=I", request, 20)[0]
    found = []
    for i in range(count):
        logical, physical, length, _, _, flags = struct.unpack_from("=QQQQQI", request, 32 + 56 * i)
        found.append((logical, length, physical, flags))
    return found


def fiemap(folder):
    last, delayed, inline, unwritten = 1, 4 | 2, 0x200 | 0x100, 0x800
    fd = os.open(f"{folder}/fiemap", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    assert fiemap_of(fd) == []
    os.pwrite(fd, b"small", 0)
    assert fiemap_of(fd) == [(0, BLOCK, 0, last | delayed)], fiemap_of(fd)
    assert fiemap_of(fd, SYNC) == [(0, 5, 0, last | inline)], fiemap_of(fd)
    os.pwrite(fd, b"x" * (20 * BLOCK), 0)
    os.pwrite(fd, b"x" * BLOCK, 40 * BLOCK)
    fallocate(fd, KEEP_SIZE, 60 * BLOCK, 10 * BLOCK)
    found = fiemap_of(fd, SYNC)
    assert [entry[0] for entry in found] == [0, 40 * BLOCK, 60 * BLOCK], found
    assert [entry[1] for entry in found] == [20 * BLOCK, BLOCK, 10 * BLOCK], found
    assert [entry[3] for entry in found] == [0, 0, unwritten | last], found
    assert all(entry[2] and entry[2] % BLOCK == 0 for entry in found), found
    os.pwrite(fd, b"y" * BLOCK, 5 * BLOCK)
    found = fiemap_of(fd)
    assert [(entry[0], entry[3]) for entry in found[:3]] == [(0, 0), (5 * BLOCK, delayed), (6 * BLOCK, 0)], found
    os.close(fd)
    # A store through a mapping makes one block dirty of a large folio, whether the page was mapped before or not.
    with open(f"{folder}/fiemap-mapped", "wb+") as file:
        file.write(b"x" * (64 * BLOCK))
        for read in range(2):
            fiemap_of(file.fileno(), SYNC)
            with mmap.mmap(file.fileno(), 64 * BLOCK) as area:
                for block in (37, 38, 40):
                    assert not read or area[block * BLOCK] == ord("x")
                    area[block * BLOCK + 5] = ord("y")
                found = [entry[:2] for entry in fiemap_of(file.fileno()) if entry[3] & 4]
                assert found == [(37 * BLOCK, 2 * BLOCK), (40 * BLOCK, BLOCK)], (read, found)
    # What is preallocated is seen before it is committed.
    fd = os.open(f"{folder}/fiemap-prealloc", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    fallocate(fd, KEEP_SIZE, 0, 1280 * BLOCK)
    os.ftruncate(fd, 1792 * BLOCK)
    assert fiemap_of(fd) == [(0, 1280 * BLOCK, 0, unwritten | delayed | last)], fiemap_of(fd)
    found = fiemap_of(fd, 1)
    assert sum(entry[1] for entry in found) == 1280 * BLOCK, found
    assert all(entry[2] and entry[3] & ~last == unwritten for entry in found), found
    os.close(fd)


def first_store(folder):
    """The first access of all to a mapping is a store, where there is no page table yet."""
    at, length = 0x210000000000, 64 * BLOCK		# nothing else is anywhere near
    with open(f"{folder}/first-store", "wb+") as file:
        file.write(b"x" * length)
        file.flush()
        signal.alarm(60)	# a store that is tried for ever ends by this
        for block in (37, 5):
            assert libc.mmap(at, length, 3, mmap.MAP_SHARED | 0x10, file.fileno(), 0) == at		# MAP_FIXED
            ctypes.memset(at + block * BLOCK + 7, ord("y"), 1)
            assert not libc.munmap(at, length)
            at += 2 << 20
        signal.alarm(0)
        file.seek(0)
        data = file.read()
        assert [i for i, byte in enumerate(data) if byte != ord("x")] == [5 * BLOCK + 7, 37 * BLOCK + 7]


def shootdowns():
    """Interrupts by which CPUs were asked to forget what they know of page tables."""
    with open("/proc/interrupts") as file:
        line = next(line for line in file if line.lstrip().startswith("TLB:"))
    return sum(int(word) for word in line.split() if word.isdigit())


def scattered_stores(folder):
    """A program stores into its mapping while that is committed.  It is not interrupted for each page, and loses nothing."""
    pages, chunk = 16384, 2048
    order = random.Random(7).sample(range(pages), pages)
    with open(f"{folder}/scattered", "wb+", buffering=0) as file:
        file.truncate(pages * BLOCK)
        view = mmap.mmap(file.fileno(), 0)
        syncs = subprocess.Popen(["python3", "-c", "import os\nwhile os.read(0, 1): os.sync()"], stdin=subprocess.PIPE)
        before = shootdowns()
        for start in range(0, pages, chunk):
            for page in order[start:start + chunk]:
                struct.pack_into("<Q", view, page * BLOCK + 8, page + 1)
            syncs.stdin.write(b"s")
            syncs.stdin.flush()
            for page in order[:start:7]:	# what was taken, or is just being taken
                struct.pack_into("<Q", view, page * BLOCK + 16, start + page)
        syncs.stdin.close()
        syncs.wait()
        taken = shootdowns() - before
        view.close()
        os.sync()
        drop_caches()
        last = pages - chunk
        again = set(order[:last:7])
        for page in range(pages):
            first, second = struct.unpack("<QQ", os.pread(file.fileno(), 16, page * BLOCK + 8))
            assert first == page + 1, (page, first)
            assert page not in again or second == last + page, (page, second)
    print(f"  scattered stores: {taken} interrupts for {pages} pages")
    assert taken < pages / 4, taken


def resident(at):
    """Bytes of the mapping there that need no fault."""
    with open("/proc/self/smaps") as file:
        lines = iter(file)
        for line in lines:
            if line.startswith(f"{at:x}-"):
                return int(next(line for line in lines if line.startswith("Rss:")).split()[1]) << 10
    raise AssertionError(f"nothing is mapped at {at:x}")


def locked_stores(folder):
    """What a commit takes of a mapping that is locked in memory stays mapped; of another one it need not."""
    at, length = 0x230000000000, 2 << 20
    for lock in (False, True):
        with open(f"{folder}/locked-stores", "wb+") as file:
            file.truncate(length)
            assert libc.mmap(at, length, 3, mmap.MAP_SHARED | 0x10, file.fileno(), 0) == at
            assert not lock or not libc.mlock(ctypes.c_void_p(at), ctypes.c_size_t(length))
            for page in range(0, length, BLOCK):
                ctypes.memset(at + page, 7, 1)
            os.sync()
            left = resident(at)
            assert left == (length if lock else 0), (lock, left)
            assert not libc.munmap(at, length)


def fail_memory(fd, offset=0):
    """
    Store to the page at this offset, which then fails, as memory may.  Is the store lost?  Not if it had just become durable.
    None: this kernel cannot be told to let memory fail.
    """
    child = os.fork()
    if not child:
        at = libc.mmap(0, BLOCK, 3, mmap.MAP_SHARED, fd, offset)
        ctypes.memset(at, 77, BLOCK)
        os._exit(libc.madvise(at, BLOCK, 100) != 0)		# MADV_HWPOISON
    return {0: False, signal.SIGBUS: True}.get(os.waitpid(child, 0)[1] & ~0x80)		# but for a core file


def failed_memory(folder):
    """What was stored to memory that fails is lost, of which fsync tells once; what was durable before is there."""
    for turn in range(16):
        with open(f"{folder}/failed-memory-{turn}", "wb+", buffering=0) as file:
            fd, old = file.fileno(), bytes([turn + 1]) * BLOCK
            file.write(old)
            if turn % 2:
                os.fsync(fd)
            lost = fail_memory(fd)
            if lost is None:
                print("this kernel lets no memory fail")
                return
            told = False
            try:
                os.fsync(fd)
            except OSError as error:
                told = error.errno == errno.EIO
            assert told == lost, (turn, told, lost)
            os.fsync(fd)
            found = os.pread(fd, BLOCK, 0)
            assert found in (([old] if turn % 2 else [old, bytes(BLOCK)]) if lost else [b"M" * BLOCK]), (turn, found[:8])
            os.pwrite(fd, b"new", 5)
            os.fsync(fd)
            assert os.pread(fd, BLOCK, 0) == found[:5] + b"new" + found[8:], turn


def failed_memory_cut(folder):
    """What was durable once and has been cut off or punched out since is not there again when the memory of what followed fails."""
    for turn in range(8):
        with open(f"{folder}/failed-cut-{turn}", "wb+", buffering=0) as file:
            fd, old = file.fileno(), b"o" * BLOCK
            file.truncate(3 * BLOCK)		# folios of one block
            for block in (0, 1, 1):
                os.pwrite(fd, old, block * BLOCK)
                os.fsync(fd)
            if turn % 2:
                os.ftruncate(fd, BLOCK)
            else:
                assert not libc.fallocate(fd, 3, ctypes.c_long(BLOCK), ctypes.c_long(BLOCK))		# PUNCH_HOLE
            os.ftruncate(fd, 3 * BLOCK)
            os.pwrite(fd, b"n", BLOCK)
            if turn & 2:		# what came after the cut and was durable is
                os.fsync(fd)
            os.pwrite(fd, b"l", BLOCK)
            if not fail_memory(fd, BLOCK):
                continue
            found = os.pread(fd, BLOCK, BLOCK)
            assert b"o" not in found and (found[0] or not turn & 2), (turn, found[:8])
            try:
                os.fsync(fd)
                assert False, "nobody was told"
            except OSError as error:
                assert error.errno == errno.EIO


def beside_failing_memory(fd, how, turn):
    """What the parent does while the child's memory fails.  False: it found something else than what was durable."""
    kept, count = True, 0
    child = os.fork()
    if not child:
        at = libc.mmap(0, BLOCK, 3, mmap.MAP_SHARED, fd, 0)
        ctypes.memset(at, 77, 1)
        os._exit(libc.madvise(at, BLOCK, 100) != 0)		# MADV_HWPOISON
    if how == "commit":
        time.sleep(turn * 0.02)
        os.sync()
    while not os.waitpid(child, os.WNOHANG)[0]:
        count += 1
        if how == "append":
            os.pwrite(fd, b"r" * 8, 8 * count)
        elif how == "look":
            kept = kept and os.pread(fd, BLOCK, 0)[1:] == b"o" * (BLOCK - 1)
    return kept


def failed_memory_beside(folder):
    """
    What an fsync has made durable is there at any moment while memory fails: for who reads the block, who writes a part of it, and
    for a commit.
    """
    for how in ("append", "look", "commit"):
        lost = 0
        for turn in range(6):
            with open(f"{folder}/failed-beside-{how}-{turn}", "wb+", buffering=0) as file:
                fd = file.fileno()
                file.write(b"o" * BLOCK)
                os.fsync(fd)
                kept = beside_failing_memory(fd, how, turn)
                try:
                    os.fsync(fd)
                except OSError as error:
                    assert error.errno == errno.EIO
                os.fsync(fd)
                found = os.pread(fd, BLOCK, 0)
                drop_caches()
                lost += not kept or bytes(1) in found or os.pread(fd, BLOCK, 0) != found
        assert not lost, f"{how}: {lost} of 6"


NEIGHBOURS = 64 * BLOCK		# one folio


def moved_protection(at):
    """All pages count as changed for soft-dirty when they are moved: the kernel sees no difference between them."""
    libc.mprotect(at, NEIGHBOURS, mmap.PROT_READ)
    at = libc.mremap(at, NEIGHBOURS, NEIGHBOURS, 3, 0x230000007000)		# MAYMOVE | FIXED
    libc.mprotect(at, NEIGHBOURS, mmap.PROT_READ | mmap.PROT_WRITE)
    return at


def cleared_refs(at):
    """Likewise when none counts as changed; and then what is writable already becomes executable."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("4")
    libc.mprotect(at, NEIGHBOURS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    return at


def forked_guards(at):
    """A mapping that may have guard pages is copied by fork.  The child stores."""
    if libc.madvise(at + NEIGHBOURS, BLOCK, 102):		# MADV_GUARD_INSTALL: not for files everywhere
        return at
    child = os.fork()
    if not child:
        store(at, range(64))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return None


def store(at, blocks):
    for block in blocks:
        ctypes.memset(at + block * BLOCK + 7, ord("y"), 1)


class Userfaultfd:
    """Write-protects pages of a mapping, without being asked at each store (UFFD_FEATURE_WP_ASYNC), and takes that back."""

    def __init__(self, at):
        self.range = (at, NEIGHBOURS)
        self.fd = libc.syscall(323, os.O_CLOEXEC)
        self.call(0xc018aa3f, struct.pack("QQQ", 0xaa, 1 << 15 | 1 << 13, 0))		# UFFDIO_API: also where no page is mapped
        self.call(0xc020aa00, struct.pack("QQQQ", *self.range, 2, 0))		# UFFDIO_REGISTER, mode WP

    def call(self, request, argument):
        fcntl.ioctl(self.fd, request, bytearray(argument))

    def protect(self, on):
        self.call(0xc018aa06, struct.pack("QQQ", *self.range, on))		# UFFDIO_WRITEPROTECT

    def unregister(self):
        self.call(0x8010aa01, struct.pack("QQ", *self.range))			# UFFDIO_UNREGISTER, protects no more
        os.close(self.fd)


def tracked(at, stores=(), unregister=False):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("4")
    if not os.path.exists("/proc/sys/vm/unprivileged_userfaultfd"):
        return at		# a kernel without
    faults = Userfaultfd(at)
    faults.protect(True)
    store(at, stores)
    if unregister:
        faults.unregister()
    else:
        faults.protect(False)
    return at


def tracked_and_left(at):
    return tracked(at, unregister=True)


def tracked_stores(at):
    return tracked(at, stores=[5])


def see_neighbours(file, name):
    data = os.pread(file.fileno(), NEIGHBOURS, 0)
    assert data[7::BLOCK] == b"y" * 64, (name, data[7::BLOCK])


def crash(folder):
    """What was not made durable is gone."""
    subprocess.run(["xfs_io", "-r", "-x", "-c", "shutdown", folder], check=True)
    subprocess.run(["umount", folder], check=True)
    subprocess.run(["mount", "-t", "tux3", os.environ.get("DEVICE", "/dev/vda"), folder], check=True)


def commit_of_others(folder):
    """Nobody asks for the file.  With a directory that has moved nothing goes ahead of a commit."""
    os.mkdir(f"{folder}/others")
    os.rename(f"{folder}/others", f"{folder}/others.1")
    at = os.open(folder, os.O_RDONLY)
    os.fsync(at)
    os.close(at)
    os.rmdir(f"{folder}/others.1")


# What the kernel is made to do, and how the stores after that become durable.
NEIGHBOUR_CASES = [(moved_protection, "sync"), (cleared_refs, "sync"), (forked_guards, "sync"),
                   (tracked, "sync"), (tracked, "fsync"), (tracked, "commit"), (tracked_and_left, "fsync"),
                   (tracked_and_left, "commit"), (tracked_stores, "munmap")]


def neighbours(folder):
    """One page of a folio is stored to; the kernel then handles all that are mapped at once.  Stores to the others are there."""
    for change, how in NEIGHBOUR_CASES:
        path = f"{folder}/neighbours-{change.__name__}-{how}"
        file = open(path, "wb+", buffering=0)
        file.write(b"x" * (NEIGHBOURS + BLOCK))
        os.sync()
        at = libc.mmap(0x220000000000, NEIGHBOURS + BLOCK, 3, mmap.MAP_SHARED | 0x10, file.fileno(), 0)
        for block in range(64):
            assert ctypes.string_at(at + block * BLOCK, 1) == b"x"
        store(at, [3])
        now = change(at)
        if now:
            store(now, range(64))
        if how == "fsync":
            os.fsync(file.fileno())
        elif how == "commit":
            commit_of_others(folder)
        elif how == "sync":
            os.sync()
        if now:
            assert not libc.munmap(now, NEIGHBOURS)
        assert not libc.munmap(at, NEIGHBOURS + BLOCK)
        if how == "fsync":
            file.close()
            crash(folder)
            file = open(path, "rb", buffering=0)
        os.sync()
        drop_caches()
        see_neighbours(file, f"{change.__name__}, {how}")
        file.close()


def slow_memory(folder):
    """An fsync does not wait for who writes from memory that is long in coming: here a userfaultfd brings it."""
    if not os.path.exists("/proc/sys/vm/unprivileged_userfaultfd"):
        return			# a kernel without
    fd = os.open(f"{folder}/slow-memory", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.pwrite(fd, b"x" * BLOCK, 0)
    os.fsync(fd)		# makes what fsyncs go ahead by
    at = libc.mmap(None, BLOCK, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    faults = libc.syscall(323, os.O_CLOEXEC)
    fcntl.ioctl(faults, 0xc018aa3f, bytearray(struct.pack("QQQ", 0xaa, 0, 0)))		# UFFDIO_API
    fcntl.ioctl(faults, 0xc020aa00, bytearray(struct.pack("QQQQ", at, BLOCK, 1, 0)))	# UFFDIO_REGISTER, mode MISSING
    os.pwrite(fd, b"y" * BLOCK, 0)
    writer = threading.Thread(target=libc.pwrite, args=(fd, ctypes.c_void_p(at), ctypes.c_size_t(BLOCK), ctypes.c_long(BLOCK)))
    syncer = threading.Thread(target=os.fsync, args=(fd,))
    writer.start()
    time.sleep(1)
    syncer.start()
    syncer.join(20)
    waited = syncer.is_alive(), writer.is_alive()
    fcntl.ioctl(faults, 0xc020aa04, bytearray(struct.pack("QQQQ", at, BLOCK, 0, 0)))	# UFFDIO_ZEROPAGE
    writer.join()
    syncer.join()
    os.close(faults)
    assert waited == (False, True), waited
    assert os.pread(fd, 2 * BLOCK, 0) == b"y" * BLOCK + bytes(BLOCK)
    os.close(fd)


def use_on_demand(path, block, blocks):
    """Whoever comes first finds what belongs there: reads, writes into a block, loads and stores through a mapping, a new size."""
    fd = os.open(path, os.O_RDWR)
    data = mmap.mmap(fd, block * blocks)
    assert os.pread(fd, block, 0) == b"f" * block
    assert os.pwrite(fd, b"w", block) == 1
    assert data[2 * block] == ord("f")
    data[3 * block] = ord("s")
    os.ftruncate(fd, (blocks - 1) * block - 10)
    assert os.pread(fd, 100, (blocks - 1) * block - 100) == b"f" * 90
    os.fsync(fd)


def on_demand(folder):
    """
    A program that fills a file when somebody wants to know what is in it (fanotify, FAN_PRE_ACCESS: Linux 6.14) is asked before
    that, and whoever wants it waits for what it fills in.
    """
    path, block, blocks = f"{folder}/on-demand", 65536, 6
    with open(path, "wb") as file:
        file.truncate(block * blocks)
    libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
    listener = libc.fanotify_init(0x8 | 0x2, os.O_RDWR)		# FAN_CLASS_PRE_CONTENT | FAN_NONBLOCK
    assert listener >= 0, os.strerror(ctypes.get_errno())
    if libc.fanotify_mark(listener, 1, 0x100000, -100, path.encode()):		# FAN_PRE_ACCESS
        known = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 14)
        assert not known and ctypes.get_errno() == errno.EINVAL, os.strerror(ctypes.get_errno())
        return
    child = os.fork()
    if not child:
        os.close(listener)
        signal.alarm(60)
        use_on_demand(path, block, blocks)
        os._exit(0)
    filled, ended = set(), 0
    while not ended:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not select.select([listener], [], [], 0.1)[0]:
            continue
        event = os.read(listener, 4096)
        fd, (offset, count) = struct.unpack_from("i", event, 16)[0], struct.unpack_from("QQ", event, 32)
        for at in range(offset // block, (offset + max(count, 1) - 1) // block + 1):
            if at < blocks and at not in filled:
                filled.add(at)
                os.pwrite(fd, b"f" * block, at * block)
        os.write(listener, struct.pack("iI", fd, 1))		# FAN_ALLOW
        os.close(fd)
    os.close(listener)
    assert status == 0, status
    assert len(filled) >= 5, filled
    with open(path, "rb") as file:
        got = file.read()
    assert got[:block] == b"f" * block and got[block:2 * block] == b"w" + b"f" * (block - 1)
    assert got[3 * block:4 * block] == b"s" + b"f" * (block - 1)
    os.unlink(path)


def modes(folder):
    """What is and what is not supported, and what it does to size and blocks."""
    fd = os.open(f"{folder}/modes", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    # Collapse and insert: not at or behind the end.  Unshare.
    for mode, number in (0x08, errno.EINVAL), (0x20, errno.EINVAL), (0x40, errno.EOPNOTSUPP):
        try:
            fallocate(fd, mode, 0, BLOCK)
            raise AssertionError(f"mode {mode}")
        except OSError as error:
            assert error.errno == number, error
    fallocate(fd, KEEP_SIZE, 0, 1 << 20)
    os.fsync(fd)
    status = os.fstat(fd)
    assert status.st_size == 0 and status.st_blocks >= 2048, status
    fallocate(fd, 0, 0, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    assert os.pread(fd, 1 << 20, 0) == bytes(1 << 20)
    os.pwrite(fd, b"z" * (1 << 20), 0)
    fallocate(fd, PUNCH | KEEP_SIZE, 100, (1 << 20) - 200)
    os.fsync(fd)
    status = os.fstat(fd)
    assert status.st_size == 1 << 20 and status.st_blocks <= 32, status
    assert os.pread(fd, 1 << 20, 0) == b"z" * 100 + bytes((1 << 20) - 200) + b"z" * 100
    os.close(fd)


def dio_alignment(path):
    """What statx says of direct I/O: (is it told, of memory, of offsets)"""
    reply = ctypes.create_string_buffer(256)
    assert not libc.statx(-100, path.encode(), 0, 0x2000, reply), ctypes.get_errno()
    return (struct.unpack_from("I", reply, 0)[0] & 0x2000, *struct.unpack_from("II", reply, 152))


def direct(folder):
    """O_DIRECT, unaligned too; O_APPEND; vectors; reads that must not wait; splice; copy_file_range."""
    path = f"{folder}/direct"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o644)
    assert os.pwrite(fd, b"q" * 10001, 3) == 10001
    assert os.pread(fd, 20000, 0) == bytes(3) + b"q" * 10001
    os.close(fd)
    # What is read past the page cache: whole blocks.
    assert dio_alignment(path)[::2] == (0x2000, BLOCK), dio_alignment(path)
    assert not dio_alignment(folder)[0]
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_DSYNC)
    os.writev(fd, [b"abc", b"", b"defg" * 3000])
    assert os.pread(fd, 20000, 10004) == b"abc" + b"defg" * 3000
    buffers = [bytearray(5), bytearray(7)]
    assert os.preadv(fd, buffers, 10004, os.RWF_NOWAIT) == 12
    drop_caches()
    try:
        os.preadv(fd, buffers, 10004, os.RWF_NOWAIT)
    except BlockingIOError:
        pass
    other = os.open(path + "2", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    size = os.fstat(fd).st_size
    assert os.sendfile(other, fd, 0, size) == size
    assert os.copy_file_range(fd, other, size, 0, size) == size
    expected = os.pread(fd, size, 0)
    assert os.pread(other, 2 * size, 0) == expected * 2
    os.close(fd)
    os.close(other)


def pieces(folder):
    """Commits of some blocks of large folios take memory for what is between the first and the last of them."""
    name = os.path.basename(os.environ.get("DEVICE", "/dev/vda"))

    def taken():
        return int(open(f"/sys/fs/tux3/{name}/snapshot_blocks").read())

    rng, size = random.Random(3), 256
    data = bytearray(rng.randbytes(size * BLOCK))
    fd = os.open(f"{folder}/pieces", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    assert os.pwrite(fd, data, 0) == len(data)
    os.fsync(fd)
    before = taken()
    for number in range(40):
        block = 13 * number % size
        data[block * BLOCK:(block + 1) * BLOCK] = bytes([number]) * BLOCK
        os.pwrite(fd, bytes([number]) * BLOCK, block * BLOCK)
        os.sync()		# an fsync might go ahead of the commit
    used = taken() - before
    print(f"{used} blocks for 40 commits of one block each")
    assert 40 <= used <= 60, used
    for number in range(60):
        for _ in range(rng.randrange(1, 30)):
            place, new = rng.randrange(size * BLOCK - 9000), rng.randbytes(rng.choice((1, 24, BLOCK, 9000)))
            data[place:place + len(new)] = new
            os.pwrite(fd, new, place)
        os.fsync(fd)
        drop_caches()
        assert os.pread(fd, len(data), 0) == data, number
    os.close(fd)


def self_write(folder):
    """Writing from a mapping of the same file: the copy faults on pages that are being written, or are not there yet."""
    path = f"{folder}/self"
    size = 1 << 20
    data = random.Random(1).randbytes(size)
    with open(path, "wb") as file:
        file.write(data)
    os.sync()
    drop_caches()
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, size) as area:
        assert os.pwrite(fd, memoryview(area)[:500_000], 100) == 500_000
        # What overlaps is copied in some order; the parts that do not must be right.
        assert os.pread(fd, 100, 0) == data[:100]
        assert os.pread(fd, size, 500_100) == data[500_100:]
        drop_caches()
        assert os.pwrite(fd, memoryview(area)[600_000:900_000], size + 10) == 300_000
        assert os.pread(fd, 400_000, size + 10) == data[600_000:900_000]
        assert os.pread(fd, 10, size) == bytes(10)
    # From memory that was never touched, and from none at all.
    with mmap.mmap(-1, size) as area:
        assert os.pwrite(fd, area, 0) == size
    assert os.pread(fd, size, 0) == bytes(size)
    libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
    before = os.fstat(fd).st_size
    assert libc.pwrite(fd, 4096, 100_000, before + 5) == -1 and ctypes.get_errno() == errno.EFAULT
    assert os.fstat(fd).st_size == before
    # A part that can be read, then one that cannot.
    with mmap.mmap(-1, 16 * BLOCK) as area:
        area[:] = b"m" * (16 * BLOCK)
        address = ctypes.addressof(ctypes.c_char.from_buffer(area))
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(address + 8 * BLOCK, 8 * BLOCK, 0) == 0
        done = libc.pwrite(fd, address, 16 * BLOCK, before)
        assert 0 < done <= 8 * BLOCK, done
        assert os.fstat(fd).st_size == before + done
        assert os.pread(fd, 16 * BLOCK, before) == b"m" * done
        done = libc.pwrite(fd, address, 16 * BLOCK, 0)
        assert 0 < done <= 8 * BLOCK, done
        assert os.pread(fd, 16 * BLOCK, 0) == b"m" * done + bytes(16 * BLOCK - done)
        # The same into blocks that nothing is known of yet: what can be read is written, wherever it ends.
        for readable in (1000, BLOCK, BLOCK + 1, 5 * BLOCK - 1):
            for place in (0, 100, 37 * BLOCK, 37 * BLOCK + 5):
                other = os.open(f"{folder}/self-partly", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                os.ftruncate(other, 20 * BLOCK)
                wanted, done = readable + 3 * BLOCK, 0
                while done < readable:
                    got = libc.pwrite(other, address + 8 * BLOCK - readable + done, wanted - done, place + done)
                    assert 0 < got <= readable - done, (readable, place, done, got)
                    done += got
                assert libc.pwrite(other, address + 8 * BLOCK, 5000, place + done) == -1
                size = max(20 * BLOCK, place + readable)
                assert os.pread(other, 2 * size, 0) == bytes(place) + b"m" * readable + bytes(size - place - readable)
                os.close(other)
        libc.mprotect(address + 8 * BLOCK, 8 * BLOCK, 3)
    os.close(fd)


def damaged(folder):
    """
    One block is changed on the disk: reading it is an error, reading all others is not.  Called mounted, remounts.
    """
    path, device = f"{folder}/damaged", os.environ.get("DEVICE", "/dev/vda")
    data = random.Random(2).randbytes(100 * BLOCK)
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.sync()		# an fsync beside what was written before may go ahead, and then it has no place yet
        extents = fiemap_of(file.fileno())
    place = next(entry[2] + 37 * BLOCK - entry[0] for entry in extents if entry[0] <= 37 * BLOCK < entry[0] + entry[1])
    subprocess.run(["umount", folder], check=True)
    with open(device, "r+b") as disk:
        disk.seek(place)
        assert disk.read(BLOCK) == data[37 * BLOCK:38 * BLOCK]
        disk.seek(place + 1000)
        disk.write(b"damaged!")
    subprocess.run(["mount", "-t", "tux3", device, folder], check=True)
    fd = os.open(path, os.O_RDONLY)
    bad = []
    for block in range(100):
        if block == 60:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            assert os.pread(fd, BLOCK, block * BLOCK) == data[block * BLOCK:(block + 1) * BLOCK], block
        except OSError as error:
            assert error.errno == errno.EIO
            bad.append(block)
    assert bad == [37], bad
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as area:
        assert area[:37 * BLOCK] == data[:37 * BLOCK] and area[38 * BLOCK:] == data[38 * BLOCK:]
    os.close(fd)
    # As a whole it can be written.
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, data[37 * BLOCK:38 * BLOCK], 37 * BLOCK)
    os.fsync(fd)
    drop_caches()
    assert os.pread(fd, len(data) + 1, 0) == data
    os.close(fd)


def race(folder):
    """
    Readers, with a cache that is dropped again and again, beside truncates, writes and commits that use freed blocks for
    other files.  What is read is zeros or the block's own stamp, and nobody gets an error.
    """
    paths, seconds = [f"{folder}/race-{i}" for i in range(3)], 20

    def stamped(who, block, count):
        return b"".join(struct.pack("=Q", (who + 1) << 32 | block + i) * (BLOCK // 8) for i in range(count))

    def writer(who):
        rng = random.Random(who)
        fd = os.open(paths[who], os.O_RDWR | os.O_CREAT, 0o644)
        while time.time() < end:
            block, count = rng.randrange(500), rng.choice([1, 3, 16, 200])
            choice = rng.random()
            if choice < 0.6:
                os.pwrite(fd, stamped(who, block, count), block * BLOCK)
            elif choice < 0.75:
                os.ftruncate(fd, rng.randrange(700) * BLOCK)
            elif choice < 0.9:
                fallocate(fd, PUNCH | KEEP_SIZE, block * BLOCK, count * BLOCK)
            else:
                os.fsync(fd)

    def reader(seed):
        rng = random.Random(seed)
        while time.time() < end:
            who = rng.randrange(len(paths))
            fd = os.open(paths[who], os.O_RDONLY)
            for _ in range(20):
                block = rng.randrange(700)
                data = os.pread(fd, rng.choice([1, 4, 64]) * BLOCK, block * BLOCK)
                for at in range(0, len(data) - BLOCK + 1, BLOCK):
                    piece = data[at:at + BLOCK]
                    number = block + at // BLOCK
                    right = stamped(who, number, 1)
                    if piece not in (bytes(BLOCK), right):
                        # A write or truncate may be half done, even within a stamp: each byte must be right.
                        wrong = [i for i in range(BLOCK) if piece[i] not in (0, right[i])]
                        assert not wrong, (who, number, wrong[:5], piece[wrong[0] & ~7:][:8].hex())
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    for path in paths:
        open(path, "wb").close()
    end = time.time() + seconds
    children = []
    for work, argument in [(writer, i) for i in range(3)] + [(reader, i) for i in range(2)]:
        child = os.fork()
        if not child:
            status = 1
            try:
                work(argument)
                status = 0
            except BaseException as error:
                print(f"{work.__name__} {argument}: {error!r}", file=sys.stderr)
            os._exit(status)
        children.append(child)
    while time.time() < end:
        drop_caches()
        time.sleep(0.05)
    assert not any(os.waitpid(child, 0)[1] for child in children)
    for path in paths:
        os.unlink(path)


def full(folder):
    """A full volume: what was preallocated can be written, what was written is right, and truncates make room."""
    fd = os.open(f"{folder}/reserved", os.O_RDWR | os.O_CREAT)
    fallocate(fd, 0, 0, 8 << 20)
    os.fsync(fd)
    data = random.Random(3).randbytes(1 << 20)
    filler, size = os.open(f"{folder}/filler", os.O_RDWR | os.O_CREAT), 0
    piece = len(data)
    while piece:
        try:
            size += os.write(filler, data[size % len(data):][:piece])
        except OSError as error:
            assert error.errno == errno.ENOSPC
            piece //= 4
    assert os.fstat(filler).st_size == size
    # Metadata for what is preallocated needs a little.
    size -= 2 << 20
    os.ftruncate(filler, size)
    os.fsync(filler)
    for at in range(0, 8 << 20, 1 << 20):
        assert os.pwrite(fd, data, at) == len(data)
        os.fsync(fd)
    drop_caches()
    for at in range(0, 8 << 20, 1 << 20):
        assert os.pread(fd, len(data), at) == data
    for at in range(0, size, len(data)):
        assert os.pread(filler, len(data), at) == data[:size - at], at
    os.ftruncate(filler, size // 2 + 77)
    os.ftruncate(filler, size // 2 + 33)
    fallocate(filler, PUNCH | KEEP_SIZE, 4099, size // 4)
    assert os.pwrite(fd, data * 4, 8 << 20) == 4 * len(data)
    os.fsync(fd)
    for path in (fd, filler):
        os.ftruncate(path, 0)
        os.close(path)


def huge(folder):
    """
    Stores to a mapping that the kernel may map 2 MiB at a time, where blocks are large: each of them is seen, ends, and is
    there afterwards.
    """
    path, size, step = f"{folder}/huge", 4 << 20, 64 << 10
    data = bytearray(random.Random(9).randbytes(size))
    with open(path, "wb") as file:
        file.write(data)
    drop_caches()
    fd = os.open(path, os.O_RDWR)
    address = libc.mmap(0x200000000000, size, 3, mmap.MAP_SHARED | 0x10, fd, 0)	# MAP_FIXED: the kernel would not align it
    assert address == 0x200000000000, ctypes.get_errno()
    libc.madvise(address, size, 14)	# MADV_HUGEPAGE
    signal.alarm(120)
    for turn in range(2):
        for at in range(turn, size, step):
            ctypes.memset(address + at, 0x5a, 1)
            data[at] = 0x5a
        os.fsync(fd)
    signal.alarm(0)
    libc.munmap(address, size)
    os.close(fd)
    drop_caches()
    with open(path, "rb") as file:
        got = file.read()
    lost = [at for turn in range(2) for at in range(turn, size, step) if got[at] != 0x5a]
    assert not lost, f"{len(lost)} stores are lost, the first at {lost[0]}"
    assert got == data
    os.unlink(path)


CHECKS = {"far": far, "seek": seek, "seek-race": seek_race, "seek-punched": seek_punched, "seek-steps": seek_steps,
          "truncate-steps": truncate_steps, "setid": setid, "fiemap": fiemap, "first-store": first_store,
          "scattered-stores": scattered_stores, "locked-stores": locked_stores, "failed-memory": failed_memory,
          "failed-memory-cut": failed_memory_cut, "failed-memory-beside": failed_memory_beside, "neighbours": neighbours,
          "modes": modes, "direct": direct, "pieces": pieces, "self": self_write, "race": race, "full": full,
          "damaged": damaged, "huge": huge, "slow-memory": slow_memory, "on-demand": on_demand}


def main():
    if sys.argv[1] == "--check":
        CHECKS[sys.argv[2]](sys.argv[3])
    else:
        run_model(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "--remount" in sys.argv)


main()
