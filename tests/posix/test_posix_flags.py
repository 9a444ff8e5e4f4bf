# SPDX-License-Identifier: GPL-2.0-or-later
"""Immutable and append-only files and directories, and the other flags of chattr(1).

The inode's flags as FS_IOC_GETFLAGS has them and as FS_IOC_FSGETXATTR has them are two views of one thing.
"""
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import time

import pytest

from posixlib import (AT_FDCWD, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, OTHER, RENAME_EXCHANGE, USER, as_user,
                      fails, fallocate, fs_type, libc, link_fd, opened, read_file, renameat2, write_file)

GETFLAGS, SETFLAGS, FSGETXATTR, FSSETXATTR = 0x80086601, 0x40086602, 0x801c581f, 0x401c5820
IMMUTABLE, APPEND, NODUMP, NOATIME, COMPR, NOCOW = 0x10, 0x20, 0x40, 0x80, 0x4, 0x800000
PROJINHERIT = 0x20000000
X_IMMUTABLE, X_APPEND, X_SYNC, X_NOATIME, X_NODUMP = 0x8, 0x10, 0x20, 0x40, 0x80
X_PROJINHERIT, X_NOSYMLINKS, X_EXTSIZE, X_DAX = 0x200, 0x400, 0x800, 0x8000


def get_flags(path):
    with opened(path, os.O_RDONLY) as fd:
        return struct.unpack("I", fcntl.ioctl(fd, GETFLAGS, bytes(8))[:4])[0]


def set_flags(path, flags):
    with opened(path, os.O_RDONLY) as fd:
        fcntl.ioctl(fd, SETFLAGS, struct.pack("Ixxxx", flags))


def get_xflags(path):
    with opened(path, os.O_RDONLY) as fd:
        return struct.unpack("I", fcntl.ioctl(fd, FSGETXATTR, bytes(28))[:4])[0]


def get_project(path):
    """The extended flags and the project."""
    with opened(path, os.O_RDONLY) as fd:
        xflags, _, _, project = struct.unpack_from("IIII", fcntl.ioctl(fd, FSGETXATTR, bytes(28)))
    return xflags, project


def set_xflags(path, xflags, project=0):
    with opened(path, os.O_RDONLY) as fd:
        fcntl.ioctl(fd, FSSETXATTR, struct.pack("IIIII8x", xflags, 0, 0, project, 0))


@contextlib.contextmanager
def flagged(path, flags):
    set_flags(path, flags)
    try:
        yield path
    finally:
        set_flags(path, 0)


def statx_attributes(path):
    """stx_attributes and stx_attributes_mask."""
    data = ctypes.create_string_buffer(256)
    assert libc.statx(AT_FDCWD, os.fsencode(path), 0, 0x7ff, data) == 0
    return struct.unpack_from("Q", data, 8)[0], struct.unpack_from("Q", data, 56)[0]


def refused(*calls):
    for number, call in enumerate(calls):
        try:
            call()
        except OSError as e:
            assert e.errno == errno.EPERM, (number, e)
        else:
            pytest.fail(f"call {number} of the list was not refused")


def open_close(path, flags):
    os.close(os.open(path, flags))


def test_immutable_file(mnt):
    path = write_file(f"{mnt}/f", b"before" * 1000, 0o666)
    write_file(f"{mnt}/other")
    with flagged(path, IMMUTABLE):
        refused(lambda: open_close(path, os.O_WRONLY), lambda: open_close(path, os.O_RDWR),
                lambda: open_close(path, os.O_WRONLY | os.O_APPEND),
                lambda: open_close(path, os.O_WRONLY | os.O_CREAT),
                lambda: open_close(path, os.O_RDWR | os.O_DIRECT),
                lambda: open_close(path, os.O_WRONLY | os.O_TRUNC),
                lambda: os.truncate(path, 0), lambda: os.truncate(path, 100000),
                lambda: os.unlink(path), lambda: os.rename(path, f"{mnt}/new"), lambda: os.rename(f"{mnt}/other", path),
                lambda: renameat2(f"{mnt}/other", path, RENAME_EXCHANGE), lambda: os.link(path, f"{mnt}/link"),
                lambda: os.chmod(path, 0o600), lambda: os.chown(path, USER, USER), lambda: os.utime(path, (1, 1)),
                lambda: os.utime(path), lambda: os.setxattr(path, "user.x", b"1"))
        assert os.access(path, os.R_OK)
        assert read_file(path) == b"before" * 1000
    os.setxattr(path, "user.x", b"1")
    with flagged(path, IMMUTABLE):
        refused(lambda: os.removexattr(path, "user.x"))
        assert os.getxattr(path, "user.x") == b"1"
    os.unlink(path)
    assert os.listdir(mnt) == ["other"]


def test_append_only_file(mnt):
    path = write_file(f"{mnt}/f", b"before", 0o666)
    with flagged(path, APPEND):
        refused(lambda: open_close(path, os.O_WRONLY), lambda: open_close(path, os.O_RDWR),
                lambda: open_close(path, os.O_WRONLY | os.O_APPEND | os.O_TRUNC),
                lambda: os.truncate(path, 0), lambda: os.truncate(path, 100000),
                lambda: os.unlink(path), lambda: os.rename(path, f"{mnt}/new"), lambda: os.link(path, f"{mnt}/link"),
                lambda: os.chmod(path, 0o600), lambda: os.utime(path, (1, 1)),
                lambda: os.setxattr(path, "user.x", b"1"))
        with opened(path, os.O_RDWR | os.O_APPEND) as fd:
            os.write(fd, b" and")
            os.write(fd, b" after")
            refused(lambda: fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 4096),
                    lambda: fallocate(fd, FALLOC_ZERO_RANGE, 0, 4096), lambda: os.ftruncate(fd, 0))
            os.utime(path)
        assert read_file(path) == b"before and after"
    os.unlink(path)


def test_immutable_directory(mnt):
    os.mkdir(f"{mnt}/d")
    inside = write_file(f"{mnt}/d/f", b"x")
    write_file(f"{mnt}/other")
    with flagged(f"{mnt}/d", IMMUTABLE):
        refused(lambda: write_file(f"{mnt}/d/new"), lambda: os.mkdir(f"{mnt}/d/new"),
                lambda: os.symlink("x", f"{mnt}/d/new"), lambda: os.mkfifo(f"{mnt}/d/new"),
                lambda: os.link(f"{mnt}/other", f"{mnt}/d/new"),
                lambda: os.rename(f"{mnt}/other", f"{mnt}/d/new"), lambda: os.rename(inside, f"{mnt}/new"),
                lambda: os.unlink(inside), lambda: os.rmdir(f"{mnt}/d"), lambda: os.rename(f"{mnt}/d", f"{mnt}/e"),
                lambda: open_close(f"{mnt}/d", os.O_TMPFILE | os.O_WRONLY))
        assert os.listdir(f"{mnt}/d") == ["f"]
        write_file(inside, b"files in it are another matter")
    os.unlink(inside)
    os.rmdir(f"{mnt}/d")


def test_append_only_directory(mnt):
    os.mkdir(f"{mnt}/d")
    inside = write_file(f"{mnt}/d/f", b"x")
    write_file(f"{mnt}/other")
    with flagged(f"{mnt}/d", APPEND):
        write_file(f"{mnt}/d/new", b"x")
        os.mkdir(f"{mnt}/d/dir")
        refused(lambda: os.unlink(inside), lambda: os.rmdir(f"{mnt}/d/dir"), lambda: os.rename(inside, f"{mnt}/d/g"),
                lambda: os.rename(inside, f"{mnt}/g"), lambda: os.rename(f"{mnt}/other", inside))
        os.rename(f"{mnt}/other", f"{mnt}/d/added")
    assert sorted(os.listdir(f"{mnt}/d")) == ["added", "dir", "f", "new"]


def test_mapping_of_an_immutable_file(mnt):
    """Not by a mapping either: none can be had that is shared and writable."""
    path = write_file(f"{mnt}/f", b"x" * 4096)
    with flagged(path, IMMUTABLE), opened(path, os.O_RDONLY) as fd:
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    assert read_file(path) == b"x" * 4096


def test_only_the_privileged(mnt):
    """The owner can neither set the two flags nor take them off, by either ioctl; the others they can."""
    path = write_file(f"{mnt}/f", b"x", 0o666)
    os.chown(path, USER, USER)
    for flags in (IMMUTABLE, APPEND, IMMUTABLE | NODUMP):
        with fails(errno.EPERM):
            as_user(lambda: set_flags(path, flags))
    for xflags in (X_IMMUTABLE, X_APPEND):
        with fails(errno.EPERM):
            as_user(lambda: set_xflags(path, xflags))
    as_user(lambda: set_flags(path, NODUMP))
    with fails(errno.EPERM, errno.EACCES):
        as_user(lambda: set_flags(path, 0), OTHER, OTHER)
    for flags in (IMMUTABLE, APPEND):
        with flagged(path, flags):
            for call in (lambda: set_flags(path, 0), lambda: set_flags(path, NODUMP), lambda: set_xflags(path, 0)):
                with fails(errno.EPERM):
                    as_user(call)
            assert get_flags(path) & (IMMUTABLE | APPEND) == flags
            with fails(errno.EPERM):
                as_user(lambda: os.unlink(path))
    os.unlink(path)


def test_both_views(mnt):
    path = write_file(f"{mnt}/f", b"x")
    for flags, xflags in ((IMMUTABLE, X_IMMUTABLE), (APPEND, X_APPEND), (NODUMP, X_NODUMP), (NOATIME, X_NOATIME),
                          (NODUMP | NOATIME, X_NODUMP | X_NOATIME)):
        set_flags(path, flags)
        assert (get_flags(path), get_xflags(path)) == (flags, xflags)
        set_xflags(path, 0)
        assert (get_flags(path), get_xflags(path)) == (0, 0)
        set_xflags(path, xflags)
        assert (get_flags(path), get_xflags(path)) == (flags, xflags)
        set_flags(path, 0)
        assert (get_flags(path), get_xflags(path)) == (0, 0)


def test_what_is_made_in_a_directory_takes_over_its_flags(mnt):
    """NODUMP and NOATIME, whatever is made; not what was there before, comes by its name, or is IMMUTABLE or APPEND."""
    write_file(f"{mnt}/outside")
    os.mkdir(f"{mnt}/d")
    write_file(f"{mnt}/d/before")
    for flags in (NODUMP, NOATIME, NODUMP | NOATIME):
        with flagged(f"{mnt}/d", flags):
            write_file(f"{mnt}/d/f{flags}")
            os.mkdir(f"{mnt}/d/d{flags}")
            write_file(f"{mnt}/d/d{flags}/f")
            with opened(f"{mnt}/d", os.O_TMPFILE | os.O_RDWR) as fd:
                link_fd(fd, f"{mnt}/d/t{flags}")
        for name in (f"f{flags}", f"d{flags}", f"d{flags}/f", f"t{flags}"):
            assert get_flags(f"{mnt}/d/{name}") == flags, name
    with flagged(f"{mnt}/d", NODUMP | NOATIME):
        os.rename(f"{mnt}/outside", f"{mnt}/d/moved")
    with flagged(f"{mnt}/d", APPEND | NODUMP):
        write_file(f"{mnt}/d/appended")
    assert [get_flags(f"{mnt}/d/{name}") for name in ("before", "moved", "appended")] == [0, 0, NODUMP]


def test_flags_that_are_not_kept(mnt):
    """They are refused, and nothing changes."""
    path = write_file(f"{mnt}/f", b"x")
    set_flags(path, NODUMP)
    for flags in (COMPR, NOCOW, NODUMP | COMPR):
        with fails(errno.EOPNOTSUPP):
            set_flags(path, flags)
    for xflags in (X_SYNC, X_NOSYMLINKS, X_DAX, X_NODUMP | X_DAX):
        with fails(errno.EOPNOTSUPP, errno.EINVAL):
            set_xflags(path, xflags)
    with opened(path) as fd, fails(errno.EOPNOTSUPP, errno.EINVAL):
        fcntl.ioctl(fd, FSSETXATTR, struct.pack("IIIII8x", X_EXTSIZE, 1 << 20, 0, 0, 0))
    assert (get_flags(path), get_xflags(path)) == (NODUMP, X_NODUMP)


def test_project_of_an_immutable_file(mnt):
    path = write_file(f"{mnt}/f", b"x")
    set_xflags(path, X_IMMUTABLE, project=5)
    with fails(errno.EPERM):
        set_xflags(path, X_IMMUTABLE, project=6)
    set_xflags(path, 0, project=6)
    assert get_flags(path) == 0


def test_project_is_inherited(mnt):
    """Only where the directory says so; directories hand the flag on, files do not have it.  chattr(1) knows it as P."""
    for name in ("plain", "first"):
        os.mkdir(f"{mnt}/{name}")
    set_xflags(f"{mnt}/plain", 0, project=7)
    set_xflags(f"{mnt}/first", X_PROJINHERIT, project=7)
    assert get_flags(f"{mnt}/first") == PROJINHERIT
    for name, xflags, project in (("plain", 0, 0), ("first", X_PROJINHERIT, 7)):
        os.makedirs(f"{mnt}/{name}/dir/below")
        write_file(f"{mnt}/{name}/dir/below/file", b"x")
        assert get_project(f"{mnt}/{name}/dir/below") == (xflags, project)
        assert get_project(f"{mnt}/{name}/dir/below/file") == (0, project)
        fd = os.open(f"{mnt}/{name}/dir", os.O_TMPFILE | os.O_RDWR)
        link_fd(fd, f"{mnt}/{name}/dir/tmpfile")
        os.close(fd)
        assert get_project(f"{mnt}/{name}/dir/tmpfile") == (0, project)
    set_flags(f"{mnt}/first", 0)
    assert get_project(f"{mnt}/first") == (0, 7)
    set_flags(f"{mnt}/first", PROJINHERIT | NODUMP)
    assert get_project(f"{mnt}/first") == (X_PROJINHERIT | X_NODUMP, 7)


def test_project_is_set_on_a_tree(mnt):
    """Tools set the project and that it is inherited on all that is there: a file takes the project, and does not have the flag."""
    os.mkdir(f"{mnt}/tree")
    write_file(f"{mnt}/tree/file", b"x")
    for name, kept in (("tree", X_PROJINHERIT), ("tree/file", 0)):
        set_xflags(f"{mnt}/{name}", X_PROJINHERIT | X_NODUMP, project=8)
        assert get_project(f"{mnt}/{name}") == (kept | X_NODUMP, 8)
    set_flags(f"{mnt}/tree/file", PROJINHERIT)
    assert get_flags(f"{mnt}/tree/file") == 0


def test_projects_do_not_mix(mnt):
    """What belongs to another project cannot be linked or moved into a directory that is for one; mv(1) copies then."""
    for name, xflags, project in (("a", X_PROJINHERIT, 1), ("b", X_PROJINHERIT, 2), ("none", 0, 3)):
        os.mkdir(f"{mnt}/{name}")
        set_xflags(f"{mnt}/{name}", xflags, project)
        write_file(f"{mnt}/{name}/file", name.encode())
        os.mkdir(f"{mnt}/{name}/dir")
    for source, target in (("a", "b"), ("b", "a"), ("none", "a")):
        for name in ("file", "dir"):
            with fails(errno.EXDEV):
                os.rename(f"{mnt}/{source}/{name}", f"{mnt}/{target}/new")
            with fails(errno.EXDEV):
                renameat2(f"{mnt}/{source}/{name}", f"{mnt}/{target}/{name}", RENAME_EXCHANGE)
            with fails(errno.EXDEV):
                renameat2(f"{mnt}/{target}/{name}", f"{mnt}/{source}/{name}", RENAME_EXCHANGE)
        with fails(errno.EXDEV):
            os.rename(f"{mnt}/{source}/file", f"{mnt}/{target}/file")
        with fails(errno.EXDEV):
            os.link(f"{mnt}/{source}/file", f"{mnt}/{target}/link")
        assert read_file(f"{mnt}/{target}/file") == target.encode()
    os.link(f"{mnt}/a/file", f"{mnt}/a/dir/link")  # the same project
    os.rename(f"{mnt}/a/dir", f"{mnt}/none/new")  # out of it
    assert get_project(f"{mnt}/none/new/link") == (0, 1)
    os.rename(f"{mnt}/none/new", f"{mnt}/a/back")
    set_xflags(f"{mnt}/a/file", 0, project=9)
    os.rename(f"{mnt}/a/file", f"{mnt}/a/another name")  # within a directory nothing moves
    with fails(errno.EEXIST):
        os.link(f"{mnt}/b/file", f"{mnt}/a/another name")


def test_ctime_moves(mnt):
    path = write_file(f"{mnt}/f", b"x")
    for change in (lambda: set_flags(path, NODUMP), lambda: set_xflags(path, X_NOATIME), lambda: set_flags(path, IMMUTABLE),
                   lambda: set_flags(path, 0)):
        before = os.stat(path)
        time.sleep(0.05)  # the clock of the times goes in steps of up to 10 ms
        change()
        after = os.stat(path)
        assert after.st_ctime_ns > before.st_ctime_ns
        assert after.st_mtime_ns == before.st_mtime_ns


def test_writing_goes_on(mnt):
    """What was written before a file got immutable is in it, however late it leaves a cache."""
    path = f"{mnt}/f"
    with opened(path, os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, 8192)
        with mmap.mmap(fd, 8192) as mapped:
            os.pwrite(fd, b"written", 0)
            mapped[4096:4102] = b"mapped"
            set_flags(path, IMMUTABLE)
            try:
                mapped.flush()
                os.fsync(fd)
                data = read_file(path)
                assert (data[:7], data[4096:4102]) == (b"written", b"mapped")
            finally:
                set_flags(path, 0)


@pytest.mark.parametrize("flags, bit", [(IMMUTABLE, 0x10), (APPEND, 0x20), (NODUMP, 0x40)])
def test_statx(mnt, flags, bit):
    if "fuse" in fs_type(mnt):
        pytest.skip("the kernel does not pass on the attributes that FUSE sends (up to Linux 6.18)")
    path = write_file(f"{mnt}/f", b"x")
    attributes, mask = statx_attributes(path)
    assert mask & bit and not attributes & bit
    with flagged(path, flags):
        assert statx_attributes(path)[0] & bit
