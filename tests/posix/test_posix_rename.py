# SPDX-License-Identifier: GPL-2.0-or-later
"""rename and renameat2: every kind over every kind, and the flags."""
import errno
import os
import stat

import pytest

from posixlib import (RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, fails, fs_type, opened, optional,
                      read_file, renameat2, write_file)

KINDS = ["file", "empty-dir", "full-dir", "symlink", "fifo", "absent"]


def make(path, kind):
    if kind == "file":
        write_file(path, path.encode())
    elif kind in ("empty-dir", "full-dir"):
        os.mkdir(path)
        if kind == "full-dir":
            write_file(f"{path}/inside", b"x")
    elif kind == "symlink":
        os.symlink("nowhere", path)
    elif kind == "fifo":
        os.mkfifo(path)


def is_dir(kind):
    return kind.endswith("dir")


def expected_error(old, new):
    if old == "absent":
        return errno.ENOENT
    if new == "absent":
        return 0
    if is_dir(old) and not is_dir(new):
        return errno.ENOTDIR
    if not is_dir(old) and is_dir(new):
        return errno.EISDIR
    if new == "full-dir":
        return errno.ENOTEMPTY
    return 0


@pytest.mark.parametrize("where", ["same", "other"])
@pytest.mark.parametrize("new", KINDS)
@pytest.mark.parametrize("old", KINDS)
def test_rename_matrix(mnt, old, new, where):
    os.mkdir(f"{mnt}/a")
    os.mkdir(f"{mnt}/b")
    src, dst = f"{mnt}/a/old", f"{mnt}/{'a' if where == 'same' else 'b'}/new"
    make(src, old)
    make(dst, new)
    err = expected_error(old, new)
    if err:
        with fails(err):
            os.rename(src, dst)
        assert os.path.lexists(src) == (old != "absent") and os.path.lexists(dst) == (new != "absent")
        return
    before = os.lstat(src)
    os.rename(src, dst)
    after = os.lstat(dst)
    assert (before.st_ino, before.st_mode, before.st_size) == (after.st_ino, after.st_mode, after.st_size)
    with fails(errno.ENOENT):
        os.lstat(src)
    if old == "file":
        assert read_file(dst) == src.encode()
    if old == "full-dir":
        assert os.listdir(dst) == ["inside"]
    if is_dir(old):
        assert os.stat(f"{dst}/..").st_ino == os.stat(os.path.dirname(dst)).st_ino


@pytest.mark.parametrize("new", KINDS)
def test_noreplace(mnt, new):
    make(f"{mnt}/old", "file")
    make(f"{mnt}/new", new)
    if new == "absent":
        renameat2(f"{mnt}/old", f"{mnt}/new", RENAME_NOREPLACE)
        assert os.listdir(mnt) == ["new"]
    else:
        with fails(errno.EEXIST):
            renameat2(f"{mnt}/old", f"{mnt}/new", RENAME_NOREPLACE)
        assert read_file(f"{mnt}/old") == f"{mnt}/old".encode()


@pytest.mark.parametrize("where", ["same", "other"])
@pytest.mark.parametrize("two", KINDS[:-1])
@pytest.mark.parametrize("one", KINDS[:-1])
def test_exchange(mnt, one, two, where):
    os.mkdir(f"{mnt}/a")
    os.mkdir(f"{mnt}/b")
    first, second = f"{mnt}/a/1", f"{mnt}/{'a' if where == 'same' else 'b'}/2"
    make(first, one)
    make(second, two)
    numbers = os.lstat(first).st_ino, os.lstat(second).st_ino
    links = [os.stat(f"{mnt}/{d}").st_nlink for d in "ab"]
    renameat2(first, second, RENAME_EXCHANGE)
    assert (os.lstat(second).st_ino, os.lstat(first).st_ino) == numbers
    if fs_type(mnt) != "btrfs":
        moved = (is_dir(two) - is_dir(one)) if where == "other" else 0
        assert [os.stat(f"{mnt}/{d}").st_nlink for d in "ab"] == [links[0] + moved, links[1] - moved]
    for path in (first, second):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            assert os.stat(f"{path}/..").st_ino == os.stat(os.path.dirname(path)).st_ino


def test_exchange_errors(mnt):
    write_file(f"{mnt}/f")
    os.mkdir(f"{mnt}/d")
    os.mkdir(f"{mnt}/d/e")
    with fails(errno.ENOENT):
        renameat2(f"{mnt}/f", f"{mnt}/none", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2(f"{mnt}/d", f"{mnt}/d/e", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2(f"{mnt}/d/e", f"{mnt}/d", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2(f"{mnt}/f", f"{mnt}/d", RENAME_EXCHANGE | RENAME_NOREPLACE)


def test_whiteout(mnt):
    write_file(f"{mnt}/f", b"data")
    with optional(mnt, errno.EINVAL):
        renameat2(f"{mnt}/f", f"{mnt}/g", RENAME_WHITEOUT)
    assert read_file(f"{mnt}/g") == b"data"
    st = os.lstat(f"{mnt}/f")
    assert stat.S_ISCHR(st.st_mode) and st.st_rdev == 0 and st.st_nlink == 1
    os.unlink(f"{mnt}/f")


def test_rename_into_itself(mnt):
    os.makedirs(f"{mnt}/a/b/c")
    with fails(errno.EINVAL):
        os.rename(f"{mnt}/a", f"{mnt}/a/x")
    with fails(errno.EINVAL):
        os.rename(f"{mnt}/a", f"{mnt}/a/b/c/x")
    with fails(errno.ENOTEMPTY):
        os.rename(f"{mnt}/a/b/c", f"{mnt}/a")
    with fails(errno.EBUSY, errno.EINVAL):
        os.rename(f"{mnt}/a/.", f"{mnt}/x")


def test_rename_to_own_name_and_link(mnt):
    write_file(f"{mnt}/f", b"x")
    os.rename(f"{mnt}/f", f"{mnt}/f")
    os.link(f"{mnt}/f", f"{mnt}/g")
    os.rename(f"{mnt}/f", f"{mnt}/g")
    assert sorted(os.listdir(mnt)) == ["f", "g"]
    assert os.stat(f"{mnt}/f").st_nlink == 2


def test_rename_over_link_drops_count(mnt):
    write_file(f"{mnt}/f", b"f")
    os.link(f"{mnt}/f", f"{mnt}/g")
    write_file(f"{mnt}/h", b"h")
    os.rename(f"{mnt}/h", f"{mnt}/g")
    assert os.stat(f"{mnt}/f").st_nlink == 1 and read_file(f"{mnt}/g") == b"h"


def test_rename_over_open_file(mnt):
    write_file(f"{mnt}/target", b"old content")
    write_file(f"{mnt}/new", b"new content")
    with opened(f"{mnt}/target", os.O_RDWR) as fd:
        os.rename(f"{mnt}/new", f"{mnt}/target")
        assert os.pread(fd, 100, 0) == b"old content"
        assert os.fstat(fd).st_nlink == 0
        os.pwrite(fd, b"OLD", 0)
        assert os.pread(fd, 100, 0) == b"OLD content"
        assert read_file(f"{mnt}/target") == b"new content"


def test_replace_idiom(mnt):
    """Write beside, fsync, rename: what every editor does, many times."""
    for i in range(200):
        with opened(f"{mnt}/.new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC) as fd:
            os.write(fd, b"%d" % i)
            if i % 50 == 0:
                os.fsync(fd)
        os.rename(f"{mnt}/.new", f"{mnt}/file")
        assert read_file(f"{mnt}/file") == b"%d" % i
    assert os.listdir(mnt) == ["file"]


def test_rename_directory_with_open_files(mnt):
    os.makedirs(f"{mnt}/d/e")
    with opened(f"{mnt}/d/e/f") as fd:
        os.write(fd, b"one")
        os.rename(f"{mnt}/d", f"{mnt}/moved")
        os.write(fd, b"two")
    assert read_file(f"{mnt}/moved/e/f") == b"onetwo"
