# SPDX-License-Identifier: GPL-2.0-or-later
"""File data: sizes, holes, mappings, appends, direct I/O, locks."""
import ctypes
import errno
import fcntl
import mmap
import multiprocessing
import os
import random
import subprocess

import pytest

from posixlib import (FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, fails, fallocate, fs_type, in_child,
                      kernel_before, link_fd, opened, optional, pattern, read_file, write_file)

fork = multiprocessing.get_context("fork")


def test_truncate(mnt):
    path = f"{mnt}/f"
    data = pattern(20000)
    write_file(path, data)
    for size in (19999, 12288, 12287, 4097, 4096, 1, 0):
        os.truncate(path, size)
        assert os.stat(path).st_size == size and read_file(path) == data[:size]
    os.truncate(path, 10000)
    assert read_file(path) == bytes(10000)


def test_truncate_then_extend_shows_zeros(mnt):
    path = f"{mnt}/f"
    for cut in (1, 100, 4095, 4096, 5000, 8191, 8192):
        write_file(path, b"\xff" * 9000)
        os.truncate(path, cut)
        os.truncate(path, 9000)
        assert read_file(path) == b"\xff" * cut + bytes(9000 - cut), cut


def test_truncate_then_write_beyond(mnt):
    path = f"{mnt}/f"
    write_file(path, b"\xff" * 6000)
    with opened(path) as fd:
        os.ftruncate(fd, 5000)
        os.pwrite(fd, b"end", 20000)
    assert read_file(path) == b"\xff" * 5000 + bytes(15000) + b"end"


def test_open_trunc(mnt):
    path = write_file(f"{mnt}/f", pattern(10000))
    with opened(path, os.O_WRONLY | os.O_TRUNC):
        assert os.stat(path).st_size == 0
    assert read_file(path) == b""


def test_truncate_errors(mnt):
    os.mkdir(f"{mnt}/d")
    with fails(errno.EISDIR):
        os.truncate(f"{mnt}/d", 0)
    with fails(errno.EINVAL):
        os.truncate(write_file(f"{mnt}/f"), -1)


def test_random_writes_against_model(mnt):
    """Overlapping writes, reads, truncates of one file, compared with a byte array after each step."""
    rng = random.Random(7)
    model = bytearray()
    with opened(f"{mnt}/f") as fd:
        for step in range(800):
            what = rng.random()
            offset = rng.randrange(0, 300000)
            if what < 0.5:
                data = rng.randbytes(rng.choice([1, 10, 511, 4096, 5000, 40000]))
                if len(model) < offset:
                    model.extend(bytes(offset - len(model)))
                model[offset:offset + len(data)] = data
                assert os.pwrite(fd, data, offset) == len(data)
            elif what < 0.6:
                model[offset:] = bytes(max(0, offset - len(model))) if offset > len(model) else b""
                os.ftruncate(fd, offset)
            elif what < 0.7 and model:
                length = rng.randrange(1, 60000)
                fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
                end = min(len(model), offset + length)
                if offset < end:
                    model[offset:end] = bytes(end - offset)
            else:
                length = rng.randrange(1, 100000)
                assert os.pread(fd, length, offset) == bytes(model[offset:offset + length]), step
            assert os.fstat(fd).st_size == len(model)
            if step % 100 == 0:
                os.fsync(fd)
    assert read_file(f"{mnt}/f") == bytes(model)


def test_sparse(mnt):
    path = f"{mnt}/f"
    with opened(path) as fd:
        os.pwrite(fd, b"end", 1 << 30)
        os.fsync(fd)
        assert os.fstat(fd).st_size == (1 << 30) + 3
        st = os.stat(path)
        assert st.st_size == (1 << 30) + 3 and st.st_blocks * 512 <= 1 << 20
        assert os.pread(fd, 4096, 1 << 29) == bytes(4096)
        assert os.pread(fd, 10, (1 << 30) - 3) == b"\0\0\0end"


def test_beyond_a_tebibyte(mnt):
    far = (1 << 40) + 12345
    with opened(f"{mnt}/f") as fd:
        os.pwrite(fd, b"far away", far)
        os.pwrite(fd, b"near", 0)
        os.fsync(fd)
        assert os.fstat(fd).st_size == far + 8
        assert os.pread(fd, 100, far - 2) == b"\0\0far away"
        if fs_type(mnt) != "ramfs":
            assert os.lseek(fd, 8192, os.SEEK_DATA) >= far - 65536
        os.ftruncate(fd, 1 << 41)
        assert os.fstat(fd).st_size == 1 << 41
        os.ftruncate(fd, 2)
        assert os.pread(fd, 100, 0) == b"ne"


def test_seek_data_and_hole(mnt):
    step = 1 << 20
    with opened(f"{mnt}/f") as fd:
        with fails(errno.ENXIO):
            os.lseek(fd, 0, os.SEEK_DATA)
        os.pwrite(fd, b"x" * 4096, 0)
        os.pwrite(fd, b"y" * 4096, 4 * step)
        os.ftruncate(fd, 8 * step)

        def check():
            assert os.lseek(fd, 0, os.SEEK_DATA) == 0
            hole = os.lseek(fd, 0, os.SEEK_HOLE)
            assert 4096 <= hole <= 4 * step
            data = os.lseek(fd, hole, os.SEEK_DATA)
            assert hole < data <= 4 * step and data > 3 * step
            hole = os.lseek(fd, 4 * step, os.SEEK_HOLE)
            assert 4 * step + 4096 <= hole <= 5 * step
            with fails(errno.ENXIO):
                os.lseek(fd, hole, os.SEEK_DATA)
            assert os.lseek(fd, 8 * step - 1, os.SEEK_HOLE) in (8 * step - 1, 8 * step)
            with fails(errno.ENXIO):
                os.lseek(fd, 8 * step, os.SEEK_DATA)
            with fails(errno.ENXIO):
                os.lseek(fd, 8 * step, os.SEEK_HOLE)

        check()
        os.fsync(fd)
        check()


def test_fallocate(mnt):
    path = f"{mnt}/f"
    with opened(path) as fd:
        with optional(mnt, errno.EOPNOTSUPP):
            fallocate(fd, 0, 0, 1 << 20)
        assert os.fstat(fd).st_size == 1 << 20
        os.fsync(fd)
        assert os.fstat(fd).st_blocks * 512 >= 1 << 20
        assert read_file(path) == bytes(1 << 20)
        os.pwrite(fd, b"kept", 5000)
        fallocate(fd, FALLOC_KEEP_SIZE, 1 << 20, 1 << 20)
        assert os.fstat(fd).st_size == 1 << 20
        fallocate(fd, 0, 0, 1 << 20)
        assert os.pread(fd, 4, 5000) == b"kept"
        with fails(errno.EINVAL):
            fallocate(fd, 0, 0, 0)
        with fails(errno.EINVAL):
            fallocate(fd, 0, -1, 10)
        with fails(errno.EOPNOTSUPP, errno.EINVAL):
            fallocate(fd, FALLOC_PUNCH_HOLE, 0, 4096)
    with opened(path, os.O_RDONLY) as fd:
        with fails(errno.EBADF):
            fallocate(fd, 0, 0, 1)


def test_what_cannot_be_had_is_not_begun(mnt):
    """More than there is: nothing is taken, and the file is as before."""
    with opened(f"{mnt}/f") as fd:
        os.pwrite(fd, b"here", 0)
        os.fsync(fd)
        free = os.statvfs(mnt).f_bfree
        for mode in (0, FALLOC_KEEP_SIZE, FALLOC_ZERO_RANGE):
            with optional(mnt, errno.EOPNOTSUPP), fails(errno.ENOSPC, errno.EFBIG, errno.EOPNOTSUPP):
                fallocate(fd, mode, 0, 1 << 60)
        assert os.fstat(fd).st_size == 4 and os.fstat(fd).st_blocks * 512 <= 1 << 16
        assert os.pread(fd, 10, 0) == b"here"
        if "tux3" in fs_type(mnt):
            assert os.statvfs(mnt).f_bfree >= free - 16


def test_preallocated_blocks_count_at_once(mnt):
    path = f"{mnt}/f"
    with opened(path) as fd:
        with optional(mnt, errno.EOPNOTSUPP):
            fallocate(fd, FALLOC_KEEP_SIZE, 0, 5 << 20)
        assert os.fstat(fd).st_blocks * 512 >= 5 << 20
        os.ftruncate(fd, 7 << 20)
        assert 5 << 20 <= os.fstat(fd).st_blocks * 512 <= 6 << 20
        os.fsync(fd)
        assert 5 << 20 <= os.fstat(fd).st_blocks * 512 <= 6 << 20


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_truncate_to_the_same_size_frees_what_is_preallocated(mnt, size):
    with opened(f"{mnt}/f") as fd:
        os.write(fd, pattern(size))
        with optional(mnt, errno.EOPNOTSUPP):
            fallocate(fd, FALLOC_KEEP_SIZE, 0, 5 << 20)
        os.fsync(fd)
        assert os.fstat(fd).st_blocks * 512 >= 5 << 20
        os.ftruncate(fd, size)
        os.fsync(fd)
        assert os.fstat(fd).st_blocks * 512 <= 1 << 17
        assert os.pread(fd, size + 1, 0) == pattern(size)


@pytest.mark.parametrize("synced", [False, True])
def test_punch_hole(mnt, synced):
    data = pattern(1 << 18)
    with opened(f"{mnt}/f") as fd:
        os.write(fd, data)
        if synced:
            os.fsync(fd)
        blocks = (1 << 18) // 512
        for offset, length in ((4096, 8192), (20000, 100), (30000, 20000), (1 << 17, 1 << 16), ((1 << 18) - 10, 5000)):
            fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
            end = min(offset + length, len(data))
            data = data[:offset] + bytes(end - offset) + data[end:]
            assert os.pread(fd, len(data) + 1, 0) == data
        os.fsync(fd)
        assert os.fstat(fd).st_size == 1 << 18
        assert os.fstat(fd).st_blocks <= blocks - (1 << 16) // 512
    assert read_file(f"{mnt}/f") == data


@pytest.mark.parametrize("synced", [False, True])
def test_zero_range(mnt, synced):
    data = pattern(1 << 17)
    with opened(f"{mnt}/f") as fd:
        os.write(fd, data)
        if synced:
            os.fsync(fd)
        with optional(mnt, errno.EOPNOTSUPP):
            fallocate(fd, FALLOC_ZERO_RANGE, 5000, 50000)
        data = data[:5000] + bytes(50000) + data[55000:]
        assert os.pread(fd, 1 << 18, 0) == data
        fallocate(fd, FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, (1 << 17) - 100, 10000)
        data = data[:-100] + bytes(100)
        assert os.pread(fd, 1 << 18, 0) == data
        fallocate(fd, FALLOC_ZERO_RANGE, (1 << 17) - 100, 10000)
        assert os.fstat(fd).st_size == (1 << 17) + 9900
    assert read_file(f"{mnt}/f") == data + bytes(9900)


def test_append(mnt):
    path = f"{mnt}/f"
    with opened(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) as one, \
            opened(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) as two:
        for i in range(100):
            os.write(one, b"a" * 100)
            os.lseek(two, 0, os.SEEK_SET)
            os.write(two, b"b" * 100)
    assert read_file(path) == (b"a" * 100 + b"b" * 100) * 100


def append_lines(path, who, count):
    with opened(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) as fd:
        for i in range(count):
            os.write(fd, b"%d %d\n" % (who, i))


def test_append_by_many(mnt):
    path = f"{mnt}/log"
    workers = [fork.Process(target=append_lines, args=(path, who, 500)) for who in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
        assert w.exitcode == 0
    lines = read_file(path).split(b"\n")[:-1]
    assert sorted(lines) == sorted(b"%d %d" % (who, i) for who in range(6) for i in range(500))
    for who in range(6):
        own = [int(line.split()[1]) for line in lines if line.startswith(b"%d " % who)]
        assert own == list(range(500))


def test_mmap_shared(mnt):
    path = f"{mnt}/f"
    with opened(path) as fd:
        os.ftruncate(fd, 40000)
        with mmap.mmap(fd, 40000) as m:
            m[0:5] = b"hello"
            m[20000:20005] = b"there"
            m[39999:40000] = b"!"
            assert os.pread(fd, 5, 20000) == b"there"
            os.pwrite(fd, b"W", 10000)
            assert m[10000:10001] == b"W"
            m.flush()
    data = read_file(path)
    assert len(data) == 40000 and data[:5] == b"hello" and data[39999:] == b"!" and data[10000:10001] == b"W"


def test_mmap_private(mnt):
    path = write_file(f"{mnt}/f", b"original" * 1000)
    with opened(path) as fd, mmap.mmap(fd, 8000, flags=mmap.MAP_PRIVATE) as m:
        m[0:3] = b"XXX"
        m.flush()
    assert read_file(path) == b"original" * 1000


def test_mmap_written_after_close_and_unlink(mnt):
    path = f"{mnt}/f"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 8192)
    m = mmap.mmap(fd, 8192)
    os.close(fd)
    m[4096:4100] = b"late"
    assert read_file(path)[4096:4100] == b"late"
    os.unlink(path)
    m[0:4] = b"gone"
    assert m[0:4] == b"gone"
    m.close()


def test_mmap_tail_is_zero(mnt):
    """What a mapping puts behind the end of the file must never be seen in it."""
    path = write_file(f"{mnt}/f", b"x" * 100)
    with opened(path) as fd:
        with mmap.mmap(fd, 100) as m:
            address = ctypes.addressof(ctypes.c_char.from_buffer(m))
            ctypes.memset(address + 100, 0xff, 3000)
            m.flush()
        if fs_type(mnt) == "tmpfs":
            pytest.skip("tmpfs shows it")
        os.ftruncate(fd, 4096)
    assert read_file(path) == b"x" * 100 + bytes(3996)


def test_execute(mnt):
    path = f"{mnt}/true"
    subprocess.run(["cp", "/bin/true", path], check=True)
    subprocess.run([path], check=True)
    write_file(f"{mnt}/script", b"#!/bin/sh\necho ran\n", 0o755)
    assert subprocess.run([f"{mnt}/script"], check=True, capture_output=True).stdout == b"ran\n"


def test_direct_io(mnt):
    path = f"{mnt}/f"
    buf = mmap.mmap(-1, 1 << 20)
    data = pattern(1 << 20)
    buf[:] = data
    with optional(mnt, errno.EINVAL):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        assert os.pwrite(fd, buf, 0) == 1 << 20
        assert read_file(path) == data
        with opened(path) as plain:
            os.pwrite(plain, b"cached", 8192)
        assert os.preadv(fd, [buf], 0) == 1 << 20
        assert buf[:8192] == data[:8192] and buf[8192:8198] == b"cached"
        assert buf[8198:] == data[8198:]
    finally:
        os.close(fd)


def test_write_visible_to_others(mnt):
    path = write_file(f"{mnt}/f", b"0")
    with opened(path, os.O_WRONLY) as fd:
        for i in range(20):
            os.pwrite(fd, b"%04d" % i, 0)
            assert in_child(lambda: (read_file(path), os.stat(path).st_size)) == (b"%04d" % i, 4)


def test_copy_file_range(mnt):
    data = pattern(300000)
    write_file(f"{mnt}/a", data)
    with opened(f"{mnt}/a", os.O_RDONLY) as src, opened(f"{mnt}/b") as dst:
        done = 0
        while done < len(data):
            count = os.copy_file_range(src, dst, len(data) - done)
            assert count > 0
            done += count
    assert read_file(f"{mnt}/b") == data


def test_tmpfile(mnt):
    if fs_type(mnt).startswith("fuse") and kernel_before(6, 2):
        pytest.skip("FUSE has O_TMPFILE since Linux 6.2")
    with optional(mnt, errno.EOPNOTSUPP):
        fd = os.open(mnt, os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"nameless")
    assert os.fstat(fd).st_nlink == 0 and os.listdir(mnt) == []
    link_fd(fd, f"{mnt}/named")
    assert os.fstat(fd).st_nlink == 1
    os.write(fd, b" no more")
    os.close(fd)
    assert read_file(f"{mnt}/named") == b"nameless no more"
    fd = os.open(mnt, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    with fails(errno.ENOENT):
        link_fd(fd, f"{mnt}/never")
    os.close(fd)
    assert os.listdir(mnt) == ["named"]


def test_flock(mnt):
    path = write_file(f"{mnt}/f")

    def try_lock(how):
        with opened(path) as fd:
            fcntl.flock(fd, how | fcntl.LOCK_NB)

    with opened(path) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with fails(errno.EAGAIN):
            in_child(lambda: try_lock(fcntl.LOCK_SH))
        fcntl.flock(fd, fcntl.LOCK_SH)
        in_child(lambda: try_lock(fcntl.LOCK_SH))
        with fails(errno.EAGAIN):
            in_child(lambda: try_lock(fcntl.LOCK_EX))
    in_child(lambda: try_lock(fcntl.LOCK_EX))


def test_posix_locks(mnt):
    path = write_file(f"{mnt}/f", bytes(100))

    def try_lock(start, length, how=fcntl.LOCK_EX):
        with opened(path) as fd:
            fcntl.lockf(fd, how | fcntl.LOCK_NB, length, start)

    with opened(path) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX, 10, 20)
        with fails(errno.EAGAIN, errno.EACCES):
            in_child(lambda: try_lock(25, 1))
        in_child(lambda: try_lock(0, 20))
        in_child(lambda: try_lock(30, 70))
        fcntl.lockf(fd, fcntl.LOCK_UN, 10, 20)
        in_child(lambda: try_lock(0, 100))


def test_statvfs(mnt):
    for _ in range(3):
        # What was removed before may be freed late.
        with opened(mnt, os.O_RDONLY) as fd:
            os.fsync(fd)
    st = os.statvfs(mnt)
    assert st.f_bsize >= 512 and st.f_namemax == 255
    assert 0 < st.f_bavail <= st.f_bfree <= st.f_blocks
    assert 0 < st.f_ffree <= st.f_files
    with opened(f"{mnt}/f") as fd:
        os.write(fd, b"x" * (8 << 20))
        os.fsync(fd)
    after = os.statvfs(mnt)
    assert st.f_bfree - after.f_bfree >= (8 << 20) // st.f_frsize
    os.truncate(f"{mnt}/f", 0)


def test_blocks_count(mnt):
    with opened(f"{mnt}/f") as fd:
        os.write(fd, b"x" * 100000)
        os.fsync(fd)
    assert 98304 <= os.stat(f"{mnt}/f").st_blocks * 512 <= 131072


def test_fsync_kinds(mnt):
    with opened(f"{mnt}/f", os.O_CREAT | os.O_WRONLY | os.O_SYNC) as fd:
        os.write(fd, b"a")
        os.fdatasync(fd)
    with opened(f"{mnt}/f", os.O_WRONLY | os.O_DSYNC) as fd:
        os.write(fd, b"b")
    with opened(mnt, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)
        os.fdatasync(fd)
    os.sync()


def test_read_and_write_edges(mnt):
    with opened(f"{mnt}/f") as fd:
        assert os.read(fd, 10) == b"" and os.write(fd, b"") == 0
        os.pwrite(fd, b"abc", 4094)
        assert os.pread(fd, 100, 4090) == b"\0\0\0\0abc"
        assert os.pread(fd, 10, 4097) == b""
        assert os.pread(fd, 10, 1 << 50) == b""
        with fails(errno.EFBIG, errno.EINVAL):
            os.pwrite(fd, b"xx", (1 << 63) - 2)
    with opened(f"{mnt}/f", os.O_RDONLY) as fd:
        with fails(errno.EBADF):
            os.write(fd, b"x")


def test_large_file(mnt):
    """Bigger than any request, written in odd pieces, read back otherwise."""
    rng = random.Random(3)
    data = pattern(12 << 20, 5)
    with opened(f"{mnt}/f") as fd:
        at = 0
        while at < len(data):
            count = min(rng.choice([1, 4095, 65536, 1 << 20, 3 << 20]), len(data) - at)
            assert os.pwrite(fd, data[at:at + count], at) == count
            at += count
    assert read_file(f"{mnt}/f") == data
    subprocess.run(["cmp", f"{mnt}/f", "-"], input=data, check=True)
