# SPDX-License-Identifier: GPL-2.0-or-later
"""Kinds of files, their links and numbers."""
import errno
import os
import socket
import stat

from posixlib import fails, fs_type, in_child, opened, read_file, write_file


def test_regular(mnt):
    path = f"{mnt}/f"
    write_file(path, b"hello")
    st = os.lstat(path)
    assert stat.S_ISREG(st.st_mode) and st.st_size == 5 and st.st_nlink == 1
    assert read_file(path) == b"hello"


def test_create_excl(mnt):
    with opened(f"{mnt}/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY):
        pass
    with fails(errno.EEXIST):
        os.open(f"{mnt}/f", os.O_CREAT | os.O_EXCL)


def test_create_readonly_file_for_writing(mnt):
    """The new file's own mode does not bind the one who makes it (git does this)."""
    with opened(f"{mnt}/f", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o444) as fd:
        os.write(fd, b"x")
    assert stat.S_IMODE(os.stat(f"{mnt}/f").st_mode) == 0o444


def test_directory_and_its_links(mnt):
    before = os.stat(mnt).st_nlink
    os.mkdir(f"{mnt}/d", 0o755)
    st = os.stat(f"{mnt}/d")
    assert stat.S_ISDIR(st.st_mode)
    if fs_type(mnt) != "btrfs":
        assert st.st_nlink == 2
        assert os.stat(mnt).st_nlink == before + 1
        os.mkdir(f"{mnt}/d/e")
        assert os.stat(f"{mnt}/d").st_nlink == 3
        os.rename(f"{mnt}/d/e", f"{mnt}/e")
        assert os.stat(f"{mnt}/d").st_nlink == 2
        os.rmdir(f"{mnt}/e")
    os.rmdir(f"{mnt}/d")
    assert os.stat(mnt).st_nlink == before


def test_special_files(mnt):
    os.mkfifo(f"{mnt}/fifo", 0o640)
    assert stat.S_ISFIFO(os.lstat(f"{mnt}/fifo").st_mode)
    os.mknod(f"{mnt}/chr", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    st = os.lstat(f"{mnt}/chr")
    assert stat.S_ISCHR(st.st_mode) and st.st_rdev == os.makedev(1, 3)
    os.mknod(f"{mnt}/blk", 0o600 | stat.S_IFBLK, os.makedev(259, 70000))
    st = os.lstat(f"{mnt}/blk")
    assert stat.S_ISBLK(st.st_mode) and st.st_rdev == os.makedev(259, 70000)
    with socket.socket(socket.AF_UNIX) as s:
        cwd = os.getcwd()
        os.chdir(mnt)
        try:
            s.bind("sock")
        finally:
            os.chdir(cwd)
    assert stat.S_ISSOCK(os.lstat(f"{mnt}/sock").st_mode)


def test_fifo_carries_data(mnt):
    path = f"{mnt}/fifo"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    in_child(lambda: write_file(path, b"through"))
    assert os.read(fd, 100) == b"through"
    os.close(fd)


def test_device_node_works(mnt):
    os.mknod(f"{mnt}/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with opened(f"{mnt}/null", os.O_RDWR) as fd:
        assert os.write(fd, b"gone") == 4
        assert os.read(fd, 1) == b""


def test_symlink(mnt):
    os.symlink("target", f"{mnt}/l")
    st = os.lstat(f"{mnt}/l")
    assert stat.S_ISLNK(st.st_mode) and st.st_size == 6
    assert os.readlink(f"{mnt}/l") == "target"
    with fails(errno.ENOENT):
        os.stat(f"{mnt}/l")
    write_file(f"{mnt}/target", b"x")
    assert read_file(f"{mnt}/l") == b"x"
    for target in ("a" * 255, "/".join(["b" * 200] * 19), "ü" * 30):
        os.symlink(target, f"{mnt}/x")
        assert os.readlink(f"{mnt}/x") == target
        os.unlink(f"{mnt}/x")
    with fails(errno.EEXIST):
        os.symlink("t", f"{mnt}/l")
    with fails(errno.EINVAL):
        os.readlink(f"{mnt}/target")
    with fails(errno.ENOENT):
        os.symlink("", f"{mnt}/empty")


def test_symlink_longest(mnt):
    target = "/".join(["c" * 254] * 17)[:4095]
    with fails(errno.ENAMETOOLONG):
        os.symlink(target + "c" * 2, f"{mnt}/l")
    target = target[:4094]
    try:
        os.symlink(target, f"{mnt}/l")
    except OSError as e:
        # A block's worth less one or two bytes is the most that others have.
        assert "tux3" not in fs_type(mnt) and e.errno == errno.ENAMETOOLONG
        return
    assert os.readlink(f"{mnt}/l") == target


def test_symlink_loop(mnt):
    os.symlink("b", f"{mnt}/a")
    os.symlink("a", f"{mnt}/b")
    with fails(errno.ELOOP):
        os.stat(f"{mnt}/a")
    with fails(errno.ELOOP):
        os.open(f"{mnt}/a", os.O_RDONLY | os.O_NOFOLLOW)


def test_hard_links(mnt):
    write_file(f"{mnt}/a", b"data")
    ino = os.stat(f"{mnt}/a").st_ino
    ctime = os.stat(f"{mnt}/a").st_ctime_ns
    for i in range(100):
        os.link(f"{mnt}/a", f"{mnt}/l{i}")
    st = os.stat(f"{mnt}/a")
    assert st.st_nlink == 101 and st.st_ctime_ns >= ctime
    assert {os.stat(f"{mnt}/l{i}").st_ino for i in range(100)} == {ino}
    with opened(f"{mnt}/l7", os.O_WRONLY | os.O_TRUNC) as fd:
        os.write(fd, b"new")
    assert read_file(f"{mnt}/a") == b"new"
    os.unlink(f"{mnt}/a")
    for i in range(99):
        os.unlink(f"{mnt}/l{i}")
    assert os.stat(f"{mnt}/l99").st_nlink == 1
    assert read_file(f"{mnt}/l99") == b"new"


def test_hard_link_errors(mnt):
    os.mkdir(f"{mnt}/d")
    write_file(f"{mnt}/f")
    with fails(errno.EPERM):
        os.link(f"{mnt}/d", f"{mnt}/d2")
    with fails(errno.EEXIST):
        os.link(f"{mnt}/f", f"{mnt}/d")
    with fails(errno.ENOENT):
        os.link(f"{mnt}/none", f"{mnt}/g")
    with fails(errno.ENOTDIR):
        os.link(f"{mnt}/f", f"{mnt}/f/g")


def test_hard_link_of_symlink_and_fifo(mnt):
    os.symlink("t", f"{mnt}/s")
    os.link(f"{mnt}/s", f"{mnt}/s2", follow_symlinks=False)
    assert os.readlink(f"{mnt}/s2") == "t" and os.lstat(f"{mnt}/s").st_nlink == 2
    os.mkfifo(f"{mnt}/p")
    os.link(f"{mnt}/p", f"{mnt}/p2")
    assert os.lstat(f"{mnt}/p2").st_nlink == 2


def test_inode_numbers_stay(mnt):
    numbers = {}
    for i in range(300):
        numbers[i] = os.stat(write_file(f"{mnt}/f{i}")).st_ino
    assert len(set(numbers.values())) == 300
    for i in range(0, 300, 2):
        os.unlink(f"{mnt}/f{i}")
    for i in range(1, 300, 2):
        os.rename(f"{mnt}/f{i}", f"{mnt}/g{i}")
        assert os.stat(f"{mnt}/g{i}").st_ino == numbers[i]
    with os.scandir(mnt) as entries:
        assert {e.name: e.inode() for e in entries} == {f"g{i}": numbers[i] for i in range(1, 300, 2)}
