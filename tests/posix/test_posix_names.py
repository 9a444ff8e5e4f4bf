# SPDX-License-Identifier: GPL-2.0-or-later
"""Names and directories: lookup, removal, listing."""
import ctypes
import errno
import os
import shutil

from posixlib import fails, fs_type, libc, opened, read_file, rest_of_entries, some_entries, time_limit, write_file


def test_long_names(mnt):
    name = "n" * 255
    write_file(f"{mnt}/{name}", b"1")
    assert os.listdir(mnt) == [name] and read_file(f"{mnt}/{name}") == b"1"
    umlauts = "ä" * 127
    os.mkdir(f"{mnt}/{umlauts}")
    os.rename(f"{mnt}/{name}", f"{mnt}/{umlauts}/{name}")
    os.symlink("t", f"{mnt}/{name}")
    with fails(errno.ENAMETOOLONG):
        os.stat(f"{mnt}/{name}x")
    for call in (lambda p: os.mkdir(p), lambda p: write_file(p), lambda p: os.symlink("x", p),
                 lambda p: os.rename(f"{mnt}/{name}", p)):
        with fails(errno.ENAMETOOLONG):
            call(f"{mnt}/{name}x")


def test_any_bytes_in_names(mnt):
    names = [bytes([c]) for c in range(1, 256) if c not in (ord("/"), ord("."))] + [b"...", b"a\nb", b"\xff\xfe"]
    for name in names:
        os.close(os.open(os.fsencode(mnt) + b"/" + name, os.O_CREAT | os.O_WRONLY, 0o600))
    assert sorted(os.listdir(os.fsencode(mnt))) == sorted(names)


def test_case_matters(mnt):
    write_file(f"{mnt}/a", b"small")
    write_file(f"{mnt}/A", b"large")
    assert read_file(f"{mnt}/a") == b"small"


def test_lookup_errors(mnt):
    write_file(f"{mnt}/f")
    with fails(errno.ENOENT):
        os.stat(f"{mnt}/none")
    with fails(errno.ENOENT):
        os.stat(f"{mnt}/none/deeper")
    with fails(errno.ENOTDIR):
        os.stat(f"{mnt}/f/x")
    with fails(errno.ENOTDIR):
        os.stat(f"{mnt}/f/")
    with fails(errno.EISDIR):
        os.open(mnt, os.O_WRONLY)
    with fails(errno.EISDIR), opened(mnt, os.O_RDONLY) as fd:
        os.read(fd, 1)


def test_absent_name_appears(mnt):
    """A name that was not there a moment ago, by each way to make one."""
    write_file(f"{mnt}/src")
    ways = {
        "open": lambda p: write_file(p), "mkdir": os.mkdir, "symlink": lambda p: os.symlink("src", p),
        "link": lambda p: os.link(f"{mnt}/src", p), "fifo": os.mkfifo,
        "rename": lambda p: os.rename(f"{mnt}/src", p),
    }
    for name, make in ways.items():
        with fails(errno.ENOENT):
            os.lstat(f"{mnt}/{name}")
        make(f"{mnt}/{name}")
        os.lstat(f"{mnt}/{name}")


def test_removed_name_is_gone(mnt):
    for _ in range(3):
        write_file(f"{mnt}/f")
        os.stat(f"{mnt}/f")
        os.unlink(f"{mnt}/f")
        with fails(errno.ENOENT):
            os.stat(f"{mnt}/f")
        os.mkdir(f"{mnt}/f")
        os.rmdir(f"{mnt}/f")
        with fails(errno.ENOENT):
            os.stat(f"{mnt}/f")


def test_remove_errors(mnt):
    os.mkdir(f"{mnt}/d")
    write_file(f"{mnt}/d/f")
    with fails(errno.ENOTEMPTY, errno.EEXIST):
        os.rmdir(f"{mnt}/d")
    with fails(errno.EISDIR, errno.EPERM):
        os.unlink(f"{mnt}/d")
    with fails(errno.ENOTDIR):
        os.rmdir(f"{mnt}/d/f")
    with fails(errno.EINVAL):
        os.rmdir(f"{mnt}/d/.")
    with fails(errno.ENOTEMPTY, errno.EINVAL, errno.EEXIST):
        os.rmdir(f"{mnt}/d/..")
    with fails(errno.ENOENT):
        os.unlink(f"{mnt}/none")


def test_mkdir_errors(mnt):
    os.mkdir(f"{mnt}/d")
    write_file(f"{mnt}/f")
    with fails(errno.EEXIST):
        os.mkdir(f"{mnt}/d")
    with fails(errno.EEXIST):
        os.mkdir(f"{mnt}/f")
    with fails(errno.ENOENT):
        os.mkdir(f"{mnt}/none/d")
    with fails(errno.ENOTDIR):
        os.mkdir(f"{mnt}/f/d")


def test_dots(mnt):
    os.mkdir(f"{mnt}/d")
    os.mkdir(f"{mnt}/d/e")
    assert os.stat(f"{mnt}/d/e/..").st_ino == os.stat(f"{mnt}/d").st_ino
    assert os.stat(f"{mnt}/d/.").st_ino == os.stat(f"{mnt}/d").st_ino
    os.rename(f"{mnt}/d/e", f"{mnt}/e")
    assert os.stat(f"{mnt}/e/..").st_ino == os.stat(mnt).st_ino


def test_removed_directory_in_use(mnt):
    os.mkdir(f"{mnt}/d")
    fd = os.open(f"{mnt}/d", os.O_RDONLY)
    os.rmdir(f"{mnt}/d")
    assert os.listdir(fd) == []
    with fails(errno.ENOENT):
        os.mkdir("x", dir_fd=fd)
    with fails(errno.ENOENT):
        os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    assert os.fstat(fd).st_nlink == 0 or fs_type(mnt) == "btrfs"
    os.close(fd)


def test_deep_path(mnt):
    cwd = os.getcwd()
    try:
        os.chdir(mnt)
        for i in range(300):
            os.mkdir("d" * 30)
            os.chdir("d" * 30)
        write_file("bottom", b"deep")
        for i in range(300):
            os.chdir("..")
        assert os.stat(".").st_ino == os.stat(mnt).st_ino
    finally:
        os.chdir(cwd)
    shutil.rmtree(f"{mnt}/{'d' * 30}")
    assert os.listdir(mnt) == []


def test_times_of_directory_change(mnt):
    def mtime():
        st = os.stat(mnt)
        assert st.st_ctime_ns >= st.st_mtime_ns - 1_000_000_000
        return st.st_mtime_ns

    os.utime(mnt, ns=(0, 0))
    write_file(f"{mnt}/f")
    assert mtime() > 0
    for change in (lambda: os.rename(f"{mnt}/f", f"{mnt}/g"), lambda: os.link(f"{mnt}/g", f"{mnt}/h"),
                   lambda: os.unlink(f"{mnt}/h"), lambda: os.mkdir(f"{mnt}/d"), lambda: os.rmdir(f"{mnt}/d"),
                   lambda: os.symlink("x", f"{mnt}/s")):
        os.utime(mnt, ns=(0, 0))
        change()
        assert mtime() > 0


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.readdir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.telldir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
libc.rewinddir.argtypes = [ctypes.c_void_p]
libc.closedir.argtypes = [ctypes.c_void_p]


class Dir:
    """opendir(3) and friends."""

    def __init__(self, path):
        self.dir = libc.opendir(os.fsencode(path))
        assert self.dir

    def read(self):
        """The next name and where to go on after it; None at the end."""
        entry = libc.readdir(self.dir)
        if not entry:
            return None
        return entry.contents.name.decode(), libc.telldir(self.dir)

    def rest(self):
        names = []
        while found := self.read():
            names.append(found[0])
        return names

    def seek(self, where):
        libc.seekdir(self.dir, where)

    def rewind(self):
        libc.rewinddir(self.dir)

    def close(self):
        libc.closedir(self.dir)


def test_readdir_types_and_dots(mnt):
    os.mkdir(f"{mnt}/d")
    write_file(f"{mnt}/f")
    os.symlink("f", f"{mnt}/l")
    os.mkfifo(f"{mnt}/p")
    d = Dir(mnt)
    assert sorted(d.rest()) == [".", "..", "d", "f", "l", "p"]
    d.close()
    with os.scandir(mnt) as entries:
        kinds = {e.name: (e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False), e.is_symlink())
                 for e in entries}
    assert kinds == {"d": (True, False, False), "f": (False, True, False), "l": (False, False, True),
                     "p": (False, False, False)}


def test_telldir_seekdir(mnt):
    names = {f"file-{i:05}" for i in range(3000)}
    for name in names:
        write_file(f"{mnt}/{name}")
    d = Dir(mnt)
    order, cookies = [], []
    while found := d.read():
        order.append(found[0])
        cookies.append(found[1])
    assert set(order) == names | {".", ".."} and len(order) == len(set(order))
    for i in (0, 1, 2, 17, 500, 1500, 2999, len(order) - 1):
        d.seek(cookies[i])
        assert d.rest() == order[i + 1:]
    # Cookies stay good while entries go.
    for i, name in enumerate(order):
        if name in names and i % 3 == 0:
            os.unlink(f"{mnt}/{name}")
    gone = {name for i, name in enumerate(order) if name in names and i % 3 == 0}
    for i in (1, 600, 1501, 2200):
        d.seek(cookies[i])
        seen = d.rest()
        assert [n for n in seen if n not in gone] == [n for n in order[i + 1:] if n not in gone]
    d.rewind()
    assert set(d.rest()) == (names - gone) | {".", ".."}
    d.close()


def test_remove_while_listing(mnt):
    """rm -r: each entry that was there comes once, although those seen are removed."""
    names = {f"x{i}" for i in range(5000)}
    for name in names:
        write_file(f"{mnt}/{name}")
    d = Dir(mnt)
    seen = []
    while found := d.read():
        if found[0] not in (".", ".."):
            seen.append(found[0])
            os.unlink(f"{mnt}/{found[0]}")
    d.close()
    assert len(seen) == len(set(seen)) and set(seen) == names
    assert os.listdir(mnt) == []


def test_add_while_listing(mnt):
    """What was there all the time comes exactly once, whatever is added meanwhile."""
    old = {f"old{i}" for i in range(2000)}
    for name in old:
        write_file(f"{mnt}/{name}")
    d = Dir(mnt)
    seen = []
    while found := d.read():
        seen.append(found[0])
        if len(seen) % 4 == 0 and len(seen) < 4000:
            write_file(f"{mnt}/new{len(seen)}")
    d.close()
    assert sorted(n for n in seen if n in old) == sorted(old)
    assert len(seen) == len(set(seen))


def test_what_changed_before_a_listing_began(mnt):
    """It shows that, also if one that began earlier ends after its beginning: FUSE's kernel side takes the older one for both."""
    for count, size in ((1, 32768), (5, 32768), (5, 100), (600, 4096), (3000, 32768)):
        path = f"{mnt}/{count}-{size}"
        os.mkdir(path)
        names = {f"name-{i}" for i in range(count)}
        for name in names:
            write_file(f"{path}/{name}")
        for step in range(3 if count > 1 else 2):
            with opened(path, os.O_DIRECTORY) as early, opened(path, os.O_DIRECTORY) as late:
                seen = []
                while len(seen) < len(names) + 2:
                    seen += some_entries(early, size)
                last = [name for name in seen if name in names][-1]
                names.remove(last)
                if step % 2:
                    os.unlink(f"{path}/{last}")
                else:
                    names.add(f"new-{step}")
                    os.rename(f"{path}/{last}", f"{path}/new-{step}")
                seen = some_entries(late, size)
                rest_of_entries(early, size)
                seen += rest_of_entries(late, size)
                assert sorted(seen) == sorted(names | {".", ".."}), (count, size, step)
            assert set(os.listdir(path)) == names


def test_new_entry_shows_after_rewind(mnt):
    write_file(f"{mnt}/a")
    d = Dir(mnt)
    assert sorted(d.rest()) == [".", "..", "a"]
    write_file(f"{mnt}/b")
    d.rewind()
    assert sorted(d.rest()) == [".", "..", "a", "b"]
    os.unlink(f"{mnt}/a")
    d.rewind()
    assert sorted(d.rest()) == [".", "..", "b"]
    d.close()


def test_big_directory(mnt):
    count = 20000
    with time_limit(240):
        for i in range(count):
            os.close(os.open(f"{mnt}/{i:06}", os.O_CREAT | os.O_WRONLY, 0o644))
        assert sorted(os.listdir(mnt)) == [f"{i:06}" for i in range(count)]
        for i in range(0, count, 7):
            os.stat(f"{mnt}/{i:06}")
        with fails(errno.ENOENT):
            os.stat(f"{mnt}/{count:06}")
        with fails(errno.ENOTEMPTY):
            os.rmdir(mnt)
        for i in range(count):
            os.unlink(f"{mnt}/{i:06}")
        assert os.listdir(mnt) == []


def test_open_unlinked(mnt):
    path = f"{mnt}/f"
    with opened(path) as fd:
        os.write(fd, b"before")
        os.unlink(path)
        assert os.fstat(fd).st_nlink == 0
        with fails(errno.ENOENT):
            os.stat(path)
        os.pwrite(fd, b"after" * 10000, 6)
        os.fsync(fd)
        assert os.pread(fd, 11, 0) == b"beforeafter"
        os.ftruncate(fd, 3)
        os.fchmod(fd, 0o600)
        assert os.fstat(fd).st_size == 3
        write_file(path, b"another")
        assert os.fstat(fd).st_ino != os.stat(path).st_ino
        assert os.pread(fd, 100, 0) == b"bef"


def test_unlink_then_space_returns(mnt):
    before = os.statvfs(mnt).f_bfree
    path = f"{mnt}/f"
    with opened(path) as fd:
        for i in range(16):
            os.write(fd, bytes([i]) * (1 << 20))
        os.fsync(fd)
        used = os.statvfs(mnt).f_bfree
        assert before - used >= 15 * (1 << 20) // os.statvfs(mnt).f_bsize
        os.unlink(path)
    import time
    for _ in range(100):
        fd = os.open(mnt, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        left = before - os.statvfs(mnt).f_bfree
        if left * os.statvfs(mnt).f_bsize < 1 << 20:
            return
        time.sleep(0.1)
    raise AssertionError(f"{left} blocks are still in use")
