# SPDX-License-Identifier: GPL-2.0-or-later
"""What the POSIX tests share: system calls Python lacks, other users, expected errors."""
import contextlib
import ctypes
import errno
import itertools
import os
import pickle
import signal
import traceback

import pytest

libc = ctypes.CDLL(None, use_errno=True)

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_SYMLINK_FOLLOW = 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE_RANGE, FALLOC_ZERO_RANGE, FALLOC_INSERT_RANGE = 1, 2, 8, 16, 32
USER, GROUP = 1000, 1000
OTHER = 1001


def _check(result):
    if result < 0:
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err))
    return result


def renameat2(old, new, flags):
    return _check(libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def fallocate(fd, mode, offset, length):
    return _check(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))


def link_fd(fd, path):
    """Give an open file (of O_TMPFILE) a name."""
    return _check(libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, os.fsencode(path), AT_SYMLINK_FOLLOW))


def syncfs(fd):
    return _check(libc.syncfs(fd))


def some_entries(fd, size):
    """The names that one getdents64(2) brings; none: the end."""
    buffer = ctypes.create_string_buffer(size)
    got = _check(libc.getdents64(fd, buffer, ctypes.c_size_t(size)))
    names, at = [], 0
    while at < got:
        length = int.from_bytes(buffer.raw[at + 16:at + 18], "little")
        names.append(buffer.raw[at + 19:at + length].split(b"\0")[0].decode())
        at += length
    return names


def rest_of_entries(fd, size):
    return list(itertools.chain.from_iterable(iter(lambda: some_entries(fd, size), [])))


@contextlib.contextmanager
def fails(*errnos):
    """The block must raise OSError with one of these numbers."""
    try:
        yield
    except OSError as e:
        got = errno.errorcode.get(e.errno, e.errno)
        want = [errno.errorcode[n] for n in errnos]
        assert e.errno in errnos, f"expected {want}, got {got}"
    else:
        pytest.fail(f"no error, expected {[errno.errorcode[n] for n in errnos]}")


@contextlib.contextmanager
def optional(mnt, *errnos):
    """Skip where the file system lacks the feature; on Tux3 nothing is optional."""
    try:
        yield
    except OSError as e:
        if e.errno in errnos and "tux3" not in fs_type(mnt):
            pytest.skip(f"{fs_type(mnt)}: {os.strerror(e.errno)}")
        raise


def fs_type(path):
    dev = os.stat(path).st_dev
    with open("/proc/self/mountinfo") as f:
        for line in f:
            fields = line.split()
            if fields[2] == f"{os.major(dev)}:{os.minor(dev)}":
                return fields[fields.index("-") + 1]
    return "unknown"


def kernel_before(major, minor):
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1])) < (major, minor)


def as_user(call, uid=USER, gid=GROUP, groups=(), umask=0o022):
    """Run call() in a child as that user; its result, or its exception."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            os.umask(umask)
            answer = ("ok", call())
        except OSError as e:
            answer = ("errno", e.errno)
        except BaseException:
            answer = ("bug", traceback.format_exc())
        os.write(write_end, pickle.dumps(answer))
        os._exit(0)
    os.close(write_end)
    data = b""
    while chunk := os.read(read_end, 65536):
        data += chunk
    os.close(read_end)
    os.waitpid(pid, 0)
    kind, value = pickle.loads(data)
    if kind == "errno":
        raise OSError(value, os.strerror(value))
    assert kind == "ok", value
    return value


def in_child(call):
    """Run call() in another process as ourselves."""
    return as_user(call, uid=os.getuid(), gid=os.getgid())


@contextlib.contextmanager
def time_limit(seconds):
    def expired(*_):
        raise TimeoutError(f"took more than {seconds} s")
    old = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR | os.O_CREAT, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def write_file(path, data=b"", mode=None):
    with open(path, "wb") as f:
        f.write(data)
    if mode is not None:
        os.chmod(path, mode)
    return path


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


def pattern(size, seed=1):
    """Bytes that differ from block to block, the same for the same seed."""
    import random
    return random.Random(seed).randbytes(size)
