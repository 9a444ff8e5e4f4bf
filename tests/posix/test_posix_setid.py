# SPDX-License-Identifier: GPL-2.0-or-later
"""setuid, setgid and file capabilities go when somebody without CAP_FSETID changes a file or its ACL.

setgid stays on a file that its group may not execute if who changes the file is in its group.
"""
import errno
import mmap
import os
import stat
import struct

import pytest

from posixlib import (FALLOC_COLLAPSE_RANGE, FALLOC_INSERT_RANGE, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE,
                      GROUP, OTHER, USER, as_user, fails, fallocate, opened, write_file)

CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
ACL_ACCESS, ACL_DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NONE = 0xffffffff
MINIMAL = acl((1, 7, NONE), (4, 7, NONE), (32, 5, NONE))
NAMED = acl((1, 7, NONE), (2, 4, 1234), (4, 7, NONE), (16, 7, NONE), (32, 5, NONE))


def with_fd(call, flags=os.O_RDWR):
    def do(path):
        with opened(path, flags) as fd:
            call(fd)
    return do


def write_direct(fd):
    with mmap.mmap(-1, 4096) as data:
        os.pwritev(fd, [data], 4096)


CHANGES = {
    "write": with_fd(lambda fd: os.write(fd, b"y")),
    "append": with_fd(lambda fd: os.write(fd, b"y"), os.O_WRONLY | os.O_APPEND),
    "direct": with_fd(write_direct, os.O_RDWR | os.O_DIRECT),
    "truncate": lambda path: os.truncate(path, 5),
    "extend": lambda path: os.truncate(path, 100000),
    "open-truncate": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "fallocate": with_fd(lambda fd: fallocate(fd, 0, 0, 40000)),
    "fallocate-keep": with_fd(lambda fd: fallocate(fd, FALLOC_KEEP_SIZE, 20000, 40000)),
    "punch": with_fd(lambda fd: fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 4096)),
    "zero": with_fd(lambda fd: fallocate(fd, FALLOC_ZERO_RANGE, 0, 4096)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_takes_setid(mnt, change):
    path = write_file(f"{mnt}/f", b"x" * 16384)
    for mode, gid, left in ((0o6777, GROUP, 0o777), (0o6777, 0, 0o777), (0o4766, 0, 0o766), (0o2777, 0, 0o777),
                            (0o2766, GROUP, 0o2766), (0o2766, 0, 0o766)):
        os.chown(path, 0, gid)
        os.chmod(path, mode)
        os.setxattr(path, "security.capability", CAPABILITY)
        os.stat(path)
        as_user(lambda: change(path))
        assert mode_of(path) == left, (oct(mode), gid)
        with fails(errno.ENODATA):
            os.getxattr(path, "security.capability")
    # In one of the supplementary groups.
    os.chmod(path, 0o2766)
    as_user(lambda: change(path), groups=(7, 0))
    assert mode_of(path) == 0o2766
    # The privileged keep the bits, but not the capabilities.
    os.chmod(path, 0o6777)
    os.setxattr(path, "security.capability", CAPABILITY)
    change(path)
    assert mode_of(path) == 0o6777
    with fails(errno.ENODATA):
        os.getxattr(path, "security.capability")


REFUSED = {
    "collapse-to-the-end": (FALLOC_COLLAPSE_RANGE, 0, 16384),
    "collapse-beyond-the-end": (FALLOC_COLLAPSE_RANGE, 0, 1 << 20),
    "collapse-a-part-of-a-block": (FALLOC_COLLAPSE_RANGE, 1, 4096),
    "insert-beyond-the-end": (FALLOC_INSERT_RANGE, 1 << 20, 4096),
    "insert-a-part-of-a-block": (FALLOC_INSERT_RANGE, 0, 1),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_who_was_refused_takes_setid_with_what_he_writes_then(mnt, change):
    path = write_file(f"{mnt}/f", b"x" * 16384, 0o6777)

    def refused_then_write():
        with opened(path, os.O_RDWR) as fd:
            with pytest.raises(OSError):        # which one is not the matter here
                fallocate(fd, *change)
            os.write(fd, b"y")
    as_user(refused_then_write)
    assert mode_of(path) == 0o777


def test_a_read_takes_nothing(mnt):
    path = write_file(f"{mnt}/f", b"x" * 16384, 0o6777)
    as_user(lambda: with_fd(lambda fd: os.read(fd, 100), os.O_RDONLY)(path))
    assert mode_of(path) == 0o6777


@pytest.mark.parametrize("value", [MINIMAL, NAMED], ids=["minimal", "named"])
@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_an_acl_takes_setgid(mnt, value, directory):
    path = f"{mnt}/f"
    os.mkdir(path) if directory else write_file(path)
    for gid, groups, caller, left in ((GROUP, (), USER, 0o2775), (0, (), USER, 0o775), (0, (9, 0), USER, 0o2775),
                                      (0, (), 0, 0o2775)):
        os.chown(path, USER, gid)
        os.removexattr(path, ACL_ACCESS) if ACL_ACCESS in os.listxattr(path) else None
        os.chmod(path, 0o2771)
        if caller:
            as_user(lambda: os.setxattr(path, ACL_ACCESS, value), groups=groups)
        else:
            os.setxattr(path, ACL_ACCESS, value)
        assert mode_of(path) == left, (gid, groups, caller)


def test_a_default_acl_takes_nothing(mnt):
    path = f"{mnt}/d"
    os.mkdir(path)
    os.chown(path, USER, 0)
    os.chmod(path, 0o2771)
    as_user(lambda: os.setxattr(path, ACL_DEFAULT, NAMED))
    assert mode_of(path) == 0o2771


def test_chown_takes_setgid_where_the_owner_is_not_in_the_group(mnt):
    path = write_file(f"{mnt}/f")
    os.chown(path, USER, OTHER)
    os.chmod(path, 0o2766)
    as_user(lambda: os.chown(path, USER, GROUP))
    assert mode_of(path) == 0o766


def test_chown_takes_capabilities(mnt):
    path = write_file(f"{mnt}/f")
    os.setxattr(path, "security.capability", CAPABILITY)
    os.chown(path, USER, GROUP)
    with fails(errno.ENODATA):
        os.getxattr(path, "security.capability")
