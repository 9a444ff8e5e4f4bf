# SPDX-License-Identifier: GPL-2.0-or-later
"""File handles through FUSE (name_to_handle_at, open_by_handle_at), as NFS servers use them."""
import errno
import os
import sys

import pytest

from conftest import ROOT, wait_until
from posixlib import fails, read_file, write_file

sys.path.append(str(ROOT / "tests/vm/guest"))
from handles import handle, is_stale, open_handle, read_by, where  # noqa: E402


@pytest.fixture(params=["io_uring=off", "io_uring=on"], ids=["dev-fuse", "io-uring"])
def options(request):
    if request.param == "io_uring=on":
        request.getfixturevalue("io_uring")
    return request.param


def forget_dentries():
    """The kernel drops what nobody uses."""
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("2")


def make_tree(m):
    os.makedirs(m / "a/b/c")
    write_file(m / "a/b/c/f", b"deep")
    write_file(m / "top", b"top")
    os.symlink("top", m / "link")
    return {name: handle(m / name) for name in ("", "a", "a/b/c", "a/b/c/f", "top")}


def check_tree(m, handles):
    assert read_by(m.path, handles["a/b/c/f"]) == "deep"
    assert read_by(m.path, handles["top"]) == "top"
    for name in ("", "a", "a/b/c"):
        fd = open_handle(m.path, handles[name])
        assert os.listdir(fd) and os.fstat(fd).st_ino == os.stat(m / name).st_ino
        os.close(fd)
    # Directories are found on the way up, by their numbers.
    assert where(m.path, handles["a/b/c"]) == m / "a/b/c"
    assert {name: handle(m / name) for name in handles} == handles


def test_handles_stay_good(mount, volume, options, fsck):
    m = mount(volume, options)
    handles = make_tree(m)
    check_tree(m, handles)
    forget_dentries()
    check_tree(m, handles)
    for _ in range(2):
        m.unmount()
        m = mount(volume, options)
        check_tree(m, handles)
    os.rename(m / "a/b", m / "moved")
    forget_dentries()
    assert where(m.path, handles["a/b/c"]) == m / "moved/c"
    assert read_by(m.path, handles["a/b/c/f"]) == "deep"
    m.unmount()
    fsck(volume)


def test_removed_files_are_stale(mount, volume, options, fsck):
    m = mount(volume, options)
    handles = make_tree(m)
    fd = os.open(m / "top", os.O_RDONLY)
    os.unlink(m / "top")
    os.unlink(m / "a/b/c/f")
    os.rmdir(m / "a/b/c")
    # Somebody has it open: it is there.
    assert read_by(m.path, handles["top"]) == "top"
    os.close(fd)
    for remounted in (False, True):
        if remounted:
            m.unmount()
            m = mount(volume, options)
        for name in ("top", "a/b/c/f", "a/b/c"):
            # The kernel closes files in its own time.
            wait_until(lambda: forget_dentries() or is_stale(m.path, handles[name]) is True, f"end of {name}")
    m.unmount()
    fsck(volume)


def test_a_number_used_again_is_another_file(mount, volume, options):
    m = mount(volume, options)
    first = write_file(m / "first", b"first")
    found, ino = handle(first), os.stat(first).st_ino
    os.unlink(first)
    # Numbers are given out from the lowest that is free, once nothing in memory says otherwise.
    m.unmount()
    m = mount(volume, options)
    path = write_file(m / "next", b"next")
    assert os.stat(path).st_ino == ino
    with fails(errno.ESTALE):
        os.close(open_handle(m.path, found))
    assert read_by(m.path, handle(path)) == "next"


def test_made_up_handles(mount, volume, options):
    m = mount(volume, options)
    path = write_file(m / "f", b"x")
    kind, data = handle(path)
    for ino in (0, 3, 15, 1 << 40, (1 << 56) - 1, 1 << 56, (1 << 64) - 1):
        made_up = (ino >> 32).to_bytes(4, sys.byteorder) + (ino & 0xffffffff).to_bytes(4, sys.byteorder) + data[8:]
        with fails(errno.ESTALE, errno.EINVAL):
            os.close(open_handle(m.path, (kind, made_up)))
    for generation in range(5):
        with fails(errno.ESTALE):
            os.close(open_handle(m.path, (kind, data[:8] + bytes([generation, 0, 0, 0]))))
    assert read_file(path) == b"x"
    assert read_by(m.path, (kind, data)) == "x"
