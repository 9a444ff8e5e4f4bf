# SPDX-License-Identifier: GPL-2.0-or-later
"""Times, modes, owners, permissions, extended attributes, ACLs."""
import errno
import os
import stat
import struct
import subprocess
import time

import pytest

from posixlib import (GROUP, OTHER, USER, as_user, fails, fs_type, kernel_before, opened, optional, read_file,
                      write_file)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


# ---- times ----

# A second of 2100, the end of 34 bits of ext4, a time before 1970; all with nanoseconds.
TIMES = [0, 1, 1_000_000_007 * 10**9 + 123_456_789, 4102444800 * 10**9 + 999_999_999, -1 * 10**9 + 5, -86400 * 365 * 10**9 + 1]


@pytest.mark.parametrize("ns", TIMES)
def test_utimens(mnt, ns):
    path = write_file(f"{mnt}/f")
    os.utime(path, ns=(ns, ns + 1))
    st = os.stat(path)
    assert (st.st_atime_ns, st.st_mtime_ns) == (ns, ns + 1)
    os.mkdir(f"{mnt}/d")
    os.utime(f"{mnt}/d", ns=(ns, ns))
    assert os.stat(f"{mnt}/d").st_mtime_ns == ns


def test_utimens_symlink(mnt):
    write_file(f"{mnt}/f")
    os.utime(f"{mnt}/f", ns=(7, 7))
    os.symlink("f", f"{mnt}/l")
    os.utime(f"{mnt}/l", ns=(1234567890123456789, 987654321987654321), follow_symlinks=False)
    st = os.lstat(f"{mnt}/l")
    assert (st.st_atime_ns, st.st_mtime_ns) == (1234567890123456789, 987654321987654321)
    assert os.stat(f"{mnt}/f").st_mtime_ns == 7


def test_utimens_now(mnt):
    path = write_file(f"{mnt}/f")
    os.utime(path, ns=(0, 0))
    before = time.time_ns()
    os.utime(path)
    st = os.stat(path)
    assert abs(st.st_mtime_ns - before) < 5 * 10**9 and abs(st.st_atime_ns - before) < 5 * 10**9


def test_times_change(mnt):
    path = write_file(f"{mnt}/f", b"x")

    def change(call, mtime_too):
        os.utime(path, ns=(0, 0))
        before = os.stat(path)
        time.sleep(0.02)
        call()
        after = os.stat(path)
        assert after.st_ctime_ns > before.st_ctime_ns
        assert (after.st_mtime_ns > 0) == mtime_too

    change(lambda: os.chmod(path, 0o600), False)
    change(lambda: os.chown(path, 5, 5), False)
    change(lambda: os.link(path, f"{mnt}/g"), False)
    change(lambda: os.unlink(f"{mnt}/g"), False)
    change(lambda: os.rename(path, f"{path}2") or os.rename(f"{path}2", path), False)
    change(lambda: os.setxattr(path, "user.a", b"1"), False)
    change(lambda: write_file(path, b"longer"), True)
    change(lambda: os.truncate(path, 2), True)

    def overwrite():
        with opened(path, os.O_WRONLY) as fd:
            os.write(fd, b"y")
    change(overwrite, True)


def test_time_never_runs_backwards(mnt):
    """Whoever sets a time, what is changed later is not older: make and rsync rely on it."""
    first, second = write_file(f"{mnt}/first", b"x"), write_file(f"{mnt}/second", b"x")
    steps = [
        (first, lambda: write_file(first, b"written")),
        (first, lambda: os.chmod(first, 0o600)),
        (second, lambda: os.utime(second)),
        (first, lambda: os.truncate(first, 3)),
        (second, lambda: os.setxattr(second, "user.a", b"1")),
        (first, lambda: os.utime(first)),
        (second, lambda: write_file(second, b"more")),
        (f"{mnt}/made", lambda: write_file(f"{mnt}/made")),
        (first, lambda: os.link(first, f"{mnt}/linked")),
    ]
    latest = 0
    for _ in range(30):
        for path, change in steps:
            change()
            ctime = os.stat(path).st_ctime_ns
            assert ctime >= latest, path
            latest = ctime
        for name in ("made", "linked"):
            os.unlink(f"{mnt}/{name}")
    os.utime(second)
    assert os.stat(second).st_mtime_ns >= os.stat(first).st_mtime_ns


def test_mtime_set_after_write_stays(mnt):
    """cp -p, tar: write, set the time, close; the time set is what stays."""
    path = f"{mnt}/f"
    with opened(path) as fd:
        os.write(fd, b"data" * 5000)
        os.utime(fd, ns=(10**18, 10**18 + 5))
    assert os.stat(path).st_mtime_ns == 10**18 + 5
    with opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)
    assert os.stat(path).st_mtime_ns == 10**18 + 5


def test_birth_time(mnt):
    path = write_file(f"{mnt}/f")
    out = subprocess.run(["stat", "-c", "%W", path], check=True, capture_output=True, text=True).stdout
    birth = int(out)
    if birth == 0:
        # FUSE has it since Linux 6.6; some file systems do not.
        assert "tux3" not in fs_type(mnt) or kernel_before(6, 6)
        pytest.skip("no birth time")
    assert abs(birth - time.time()) < 60


# ---- modes, owners ----

def test_chmod(mnt):
    path = write_file(f"{mnt}/f")
    for mode in (0, 0o777, 0o4755, 0o2755, 0o1777, 0o644, 0o7777):
        os.chmod(path, mode)
        assert mode_of(path) == mode
    with fails(errno.EPERM):
        as_user(lambda: os.chmod(path, 0o777))


def test_chown(mnt):
    path = write_file(f"{mnt}/f")
    os.chown(path, 65534, 4294967294)
    st = os.stat(path)
    assert (st.st_uid, st.st_gid) == (65534, 4294967294)
    os.chown(path, USER, -1)
    os.chown(path, -1, GROUP)
    os.symlink("f", f"{mnt}/l")
    os.lchown(f"{mnt}/l", 3, 4)
    assert (os.lstat(f"{mnt}/l").st_uid, os.stat(path).st_uid) == (3, USER)
    with fails(errno.EPERM):
        as_user(lambda: os.chown(path, OTHER, -1))
    with fails(errno.EPERM):
        as_user(lambda: os.chown(path, -1, 7))
    as_user(lambda: os.chown(path, -1, 7), groups=[7])
    assert os.stat(path).st_gid == 7


@pytest.mark.parametrize("mode, left", [(0o6755, 0o755), (0o4644, 0o644), (0o2644, 0o2644)])
def test_chown_takes_setuid(mnt, mode, left):
    path = write_file(f"{mnt}/f")
    os.chmod(path, mode)
    os.chown(path, USER, GROUP)
    assert mode_of(path) == left


def test_owner_of_new_files(mnt):
    as_user(lambda: write_file(f"{mnt}/f"))
    as_user(lambda: os.mkdir(f"{mnt}/d"))
    as_user(lambda: os.symlink("x", f"{mnt}/l"))
    as_user(lambda: os.mkfifo(f"{mnt}/p"))
    for name in "fdlp":
        st = os.lstat(f"{mnt}/{name}")
        assert (st.st_uid, st.st_gid) == (USER, GROUP)


def test_umask(mnt):
    for umask in (0, 0o022, 0o077, 0o777):
        as_user(lambda: os.close(os.open(f"{mnt}/f", os.O_CREAT | os.O_WRONLY, 0o666)), umask=umask)
        as_user(lambda: os.mkdir(f"{mnt}/d", 0o777), umask=umask)
        as_user(lambda: os.mkfifo(f"{mnt}/p", 0o666), umask=umask)
        assert [mode_of(f"{mnt}/{n}") for n in "fdp"] == [0o666 & ~umask, 0o777 & ~umask, 0o666 & ~umask]
        os.unlink(f"{mnt}/f")
        os.unlink(f"{mnt}/p")
        os.rmdir(f"{mnt}/d")


def test_setgid_directory(mnt):
    os.mkdir(f"{mnt}/d")
    os.chown(f"{mnt}/d", 0, 77)
    os.chmod(f"{mnt}/d", 0o2777)
    as_user(lambda: write_file(f"{mnt}/d/f"))
    as_user(lambda: os.mkdir(f"{mnt}/d/sub"))
    as_user(lambda: os.symlink("x", f"{mnt}/d/l"))
    assert os.stat(f"{mnt}/d/f").st_gid == 77
    assert os.lstat(f"{mnt}/d/l").st_gid == 77
    st = os.stat(f"{mnt}/d/sub")
    assert st.st_gid == 77 and st.st_mode & stat.S_ISGID
    assert not os.stat(f"{mnt}/d/f").st_mode & stat.S_ISGID


def test_setgid_needs_group(mnt):
    path = write_file(f"{mnt}/f")
    os.chown(path, USER, 77)
    as_user(lambda: os.chmod(path, 0o2755))
    assert mode_of(path) == 0o755
    as_user(lambda: os.chmod(path, 0o2755), groups=[77])
    assert mode_of(path) == 0o2755


def test_sticky_directory(mnt):
    os.mkdir(f"{mnt}/tmp")
    os.chmod(f"{mnt}/tmp", 0o1777)
    as_user(lambda: write_file(f"{mnt}/tmp/mine"))
    for call in (lambda: os.unlink(f"{mnt}/tmp/mine"), lambda: os.rename(f"{mnt}/tmp/mine", f"{mnt}/tmp/x")):
        with fails(errno.EPERM, errno.EACCES):
            as_user(call, uid=OTHER, gid=OTHER)
    as_user(lambda: write_file(f"{mnt}/tmp/theirs"), uid=OTHER, gid=OTHER)
    with fails(errno.EPERM, errno.EACCES):
        as_user(lambda: os.rename(f"{mnt}/tmp/mine", f"{mnt}/tmp/theirs"))
    as_user(lambda: os.unlink(f"{mnt}/tmp/mine"))


def test_permissions(mnt):
    path = write_file(f"{mnt}/f", b"secret", 0o600)
    with fails(errno.EACCES):
        as_user(lambda: read_file(path))
    os.chmod(path, 0o604)
    assert as_user(lambda: read_file(path)) == b"secret"
    with fails(errno.EACCES):
        as_user(lambda: os.truncate(path, 0))
    os.chown(path, 0, GROUP)
    os.chmod(path, 0o607)
    with fails(errno.EACCES):
        as_user(lambda: read_file(path))
    os.mkdir(f"{mnt}/d", 0o700)
    write_file(f"{mnt}/d/f")
    with fails(errno.EACCES):
        as_user(lambda: os.stat(f"{mnt}/d/f"))
    os.chmod(f"{mnt}/d", 0o711)
    as_user(lambda: os.stat(f"{mnt}/d/f"))
    with fails(errno.EACCES):
        as_user(lambda: os.listdir(f"{mnt}/d"))
    os.chmod(f"{mnt}/d", 0o755)
    for call in (lambda: write_file(f"{mnt}/d/g"), lambda: os.unlink(f"{mnt}/d/f"), lambda: os.mkdir(f"{mnt}/d/x"),
                 lambda: os.rename(f"{mnt}/d/f", f"{mnt}/d/y"), lambda: os.symlink("x", f"{mnt}/d/z")):
        with fails(errno.EACCES):
            as_user(call)
    assert not as_user(lambda: os.access(f"{mnt}/d", os.W_OK))
    write_file(f"{mnt}/script", b"#!/bin/sh\n", 0o644)
    with fails(errno.EACCES):
        os.execv(f"{mnt}/script", ["script"])


def test_utime_permissions(mnt):
    path = write_file(f"{mnt}/f", b"", 0o666)
    as_user(lambda: os.utime(path))
    with fails(errno.EPERM):
        as_user(lambda: os.utime(path, ns=(1, 1)))
    os.chmod(path, 0o644)
    with fails(errno.EACCES):
        as_user(lambda: os.utime(path))


@pytest.mark.parametrize("mode, left", [(0o6777, 0o777), (0o2766, 0o2766), (0o4766, 0o766)])
def test_write_takes_setuid(mnt, mode, left):
    path = write_file(f"{mnt}/f", b"x" * 100)

    def write():
        with opened(path, os.O_WRONLY) as fd:
            os.write(fd, b"y")

    for change in (write, lambda: os.truncate(path, 5)):
        os.chown(path, 0, GROUP)
        os.chmod(path, mode)
        as_user(change)
        assert mode_of(path) == left
    os.chmod(path, mode)
    write()
    assert mode_of(path) == mode


# ---- extended attributes ----

def test_xattr_basics(mnt):
    path = write_file(f"{mnt}/f")
    os.setxattr(path, "user.one", b"1")
    os.setxattr(path, "user.two", b"")
    os.setxattr(path, "user.bin", bytes(range(256)))
    assert os.getxattr(path, "user.one") == b"1" and os.getxattr(path, "user.two") == b""
    assert os.getxattr(path, "user.bin") == bytes(range(256))
    assert sorted(n for n in os.listxattr(path) if n.startswith("user.")) == ["user.bin", "user.one", "user.two"]
    os.setxattr(path, "user.one", b"longer than before", os.XATTR_REPLACE)
    assert os.getxattr(path, "user.one") == b"longer than before"
    os.removexattr(path, "user.one")
    with fails(errno.ENODATA):
        os.getxattr(path, "user.one")
    with fails(errno.ENODATA):
        os.removexattr(path, "user.one")
    with fails(errno.ENODATA):
        os.setxattr(path, "user.one", b"", os.XATTR_REPLACE)
    with fails(errno.EEXIST):
        os.setxattr(path, "user.two", b"", os.XATTR_CREATE)


def test_xattr_namespaces(mnt):
    path = write_file(f"{mnt}/f", b"", 0o666)
    os.mkdir(f"{mnt}/d")
    os.symlink("f", f"{mnt}/l")
    for target in (path, f"{mnt}/d"):
        for name in ("user.a", "trusted.a", "security.a"):
            os.setxattr(target, name, name.encode())
            assert os.getxattr(target, name) == name.encode()
            assert name in os.listxattr(target)
    with fails(errno.EPERM):
        os.setxattr(f"{mnt}/l", "user.a", b"", follow_symlinks=False)
    os.setxattr(f"{mnt}/l", "trusted.a", b"link", follow_symlinks=False)
    assert os.getxattr(f"{mnt}/l", "trusted.a", follow_symlinks=False) == b"link"
    with fails(errno.EOPNOTSUPP):
        os.setxattr(path, "nonsense.a", b"")
    for name in ("user.", "trusted.", "security."):  # as the VFS says of other filesystems
        for call in (lambda: os.setxattr(path, name, b""), lambda: os.getxattr(path, name), lambda: os.removexattr(path, name)):
            with fails(errno.EINVAL):
                call()
    with fails(errno.EPERM, errno.ENODATA):
        as_user(lambda: os.getxattr(path, "trusted.a"))
    assert "trusted.a" not in as_user(lambda: os.listxattr(path))
    with fails(errno.EPERM):
        as_user(lambda: os.setxattr(path, "trusted.b", b""))
    with fails(errno.EPERM):
        as_user(lambda: os.setxattr(path, "security.b", b""))
    as_user(lambda: os.setxattr(path, "user.b", b"by user"))
    os.chmod(path, 0o600)
    with fails(errno.EACCES):
        as_user(lambda: os.getxattr(path, "user.b"))


def test_xattr_sizes(mnt):
    path = write_file(f"{mnt}/f")
    longest = "user." + "n" * 250
    os.setxattr(path, longest, b"long name")
    assert os.getxattr(path, longest) == b"long name"
    with fails(errno.ERANGE):
        os.setxattr(path, longest + "n", b"")
    os.removexattr(path, longest)
    full = "tux3" in fs_type(mnt)
    for size in (1, 100, 1000, 3000, 4096, 5000, 30000, 65536):
        value = bytes([size % 251]) * size
        try:
            os.setxattr(path, "user.v", value)
        except OSError as e:
            if full or e.errno not in (errno.ENOSPC, errno.E2BIG, errno.ERANGE):
                raise
            break
        assert os.getxattr(path, "user.v") == value
    with fails(errno.E2BIG):
        os.setxattr(path, "user.v", b"x" * 65537)


def test_xattr_many(mnt):
    path = write_file(f"{mnt}/f")
    count = 200 if "tux3" in fs_type(mnt) else 20
    for i in range(count):
        os.setxattr(path, f"user.{i:03}", b"v%d" % i)
    assert sum(n.startswith("user.") for n in os.listxattr(path)) == count
    for i in range(0, count, 2):
        os.removexattr(path, f"user.{i:03}")
    for i in range(count):
        if i % 2:
            assert os.getxattr(path, f"user.{i:03}") == b"v%d" % i


def test_capabilities_xattr(mnt):
    path = write_file(f"{mnt}/f", b"x" * 10, 0o777)
    caps = struct.pack("<IIIII", 0x02000000, 1 << 12, 0, 0, 0)
    os.setxattr(path, "security.capability", caps)
    assert os.getxattr(path, "security.capability") == caps
    with opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"changed")
    with fails(errno.ENODATA):
        os.getxattr(path, "security.capability")


# ---- ACLs ----

def setfacl(*args):
    done = subprocess.run(["setfacl", *args], capture_output=True, text=True)
    if done.returncode and "not supported" in done.stderr:
        raise OSError(errno.EOPNOTSUPP, done.stderr)
    assert done.returncode == 0, done.stderr


def getfacl(path):
    out = subprocess.run(["getfacl", "-cpnE", path], check=True, capture_output=True, text=True).stdout
    return sorted(line for line in out.split("\n") if line)


def test_acl_enforced(mnt):
    path = write_file(f"{mnt}/f", b"secret", 0o600)
    with fails(errno.EACCES):
        as_user(lambda: read_file(path))
    with optional(mnt, errno.EOPNOTSUPP):
        setfacl("-m", f"u:{USER}:r", path)
    assert as_user(lambda: read_file(path)) == b"secret"
    with fails(errno.EACCES):
        as_user(lambda: read_file(path), uid=OTHER, gid=OTHER)
    with fails(errno.EACCES):
        as_user(lambda: os.truncate(path, 0))
    setfacl("-m", "g:2000:rw", path)
    as_user(lambda: os.truncate(path, 3), uid=OTHER, gid=OTHER, groups=[2000])
    assert mode_of(path) == 0o660
    setfacl("-m", "m::r", path)
    assert mode_of(path) == 0o640
    with fails(errno.EACCES):
        as_user(lambda: os.truncate(path, 0), uid=OTHER, gid=OTHER, groups=[2000])
    setfacl("-b", path)
    with fails(errno.EACCES):
        as_user(lambda: read_file(path))
    assert getfacl(path) == ["group::---", "other::---", "user::rw-"]


def test_acl_chmod_changes_mask(mnt):
    path = write_file(f"{mnt}/f", b"", 0o644)
    with optional(mnt, errno.EOPNOTSUPP):
        setfacl("-m", f"u:{USER}:rwx,g::r", path)
    assert mode_of(path) == 0o674
    os.chmod(path, 0o600)
    assert "mask::---" in getfacl(path)
    with fails(errno.EACCES):
        as_user(lambda: read_file(path))
    os.chmod(path, 0o640)
    assert as_user(lambda: read_file(path)) == b""


def test_acl_default(mnt):
    os.mkdir(f"{mnt}/d", 0o755)
    with optional(mnt, errno.EOPNOTSUPP):
        setfacl("-d", "-m", f"u::rwx,u:{USER}:rwx,g::rx,o::-", f"{mnt}/d")
    # The default ACL takes the umask's place.
    old = os.umask(0o077)
    try:
        write_file(f"{mnt}/d/f")
        os.mkdir(f"{mnt}/d/sub")
        os.mkfifo(f"{mnt}/d/p", 0o666)
        os.symlink("x", f"{mnt}/d/l")
    finally:
        os.umask(old)
    assert f"user:{USER}:rwx" in getfacl(f"{mnt}/d/f")
    assert mode_of(f"{mnt}/d/f") == 0o660
    assert mode_of(f"{mnt}/d/p") == 0o660
    assert f"default:user:{USER}:rwx" in getfacl(f"{mnt}/d/sub")
    assert mode_of(f"{mnt}/d/sub") == 0o770
    as_user(lambda: write_file(f"{mnt}/d/f", b"by the ACL"))
    as_user(lambda: write_file(f"{mnt}/d/sub/own"))
    setfacl("-k", f"{mnt}/d")
    assert not [line for line in getfacl(f"{mnt}/d") if line.startswith("default")]


def test_acl_only_owner_may_set(mnt):
    path = write_file(f"{mnt}/f", b"", 0o666)
    with optional(mnt, errno.EOPNOTSUPP):
        setfacl("-m", "u:5:r", path)
    acl = os.getxattr(path, "system.posix_acl_access")
    with fails(errno.EPERM):
        as_user(lambda: os.setxattr(path, "system.posix_acl_access", acl))
    with fails(errno.EACCES):
        os.setxattr(path, "system.posix_acl_default", acl)
    with fails(errno.EINVAL, errno.EOPNOTSUPP):
        os.setxattr(path, "system.posix_acl_access", b"rubbish")


def test_acl_minimal_becomes_mode(mnt):
    path = write_file(f"{mnt}/f", b"", 0o600)
    with optional(mnt, errno.EOPNOTSUPP):
        setfacl("-m", "u::rw,g::r,o::r", path)
    assert mode_of(path) == 0o644
    with fails(errno.ENODATA):
        os.getxattr(path, "system.posix_acl_access")
