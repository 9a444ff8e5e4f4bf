#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""System calls for names.sh that no command makes; each function is one test, named on the command line.

    names.py TEST FOLDER

Ends with status 0, or prints what went wrong.
"""
import ctypes
import errno
import fcntl
import os
import random
import signal
import stat
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
RENAMEAT2 = 316
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def expect(error, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except OSError as e:
        assert e.errno == error, f"{call} {args}: {e}, not {errno.errorcode[error]}"
        return
    raise AssertionError(f"{call} {args} succeeded, expected {errno.errorcode[error]}")


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def rename(old, new, flags):
    checked(LIBC.syscall(RENAMEAT2, AT_FDCWD, old.encode(), AT_FDCWD, new.encode(), flags))


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def read(path):
    with open(path) as file:
        return file.read()


# ---- handles ----

class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]


def handle_of(path):
    handle, mount = Handle(bytes=128), ctypes.c_int()
    checked(LIBC.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0))
    return handle


def open_handle(mount_fd, handle, flags=os.O_RDONLY):
    return checked(LIBC.open_by_handle_at(mount_fd, ctypes.byref(handle), flags))


# ---- tests ----

def leases():
    """fcntl(F_SETLEASE): who opens the file for writing waits until its holder has been told and has given it back."""
    write("a", "text")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})  # it is waited for: nobody knows when a handler runs
    fd = os.open("a", os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    assert fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK
    os.close(os.open("a", os.O_RDONLY))
    expect(errno.EAGAIN, os.open, "a", os.O_WRONLY | os.O_NONBLOCK)
    assert signal.sigtimedwait({signal.SIGIO}, 60)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(os.open("a", os.O_WRONLY | os.O_NONBLOCK))


def volume_ioctls():
    """UUID, name under /sys and label of the volume, by ioctls that every file system has; the label can be changed."""
    fd = os.open(".", os.O_RDONLY)
    uuid = fcntl.ioctl(fd, 0x80111500, bytes(17))
    device = os.path.basename(os.environ.get("DEVICE", "/dev/vda"))
    assert uuid[0] == 16 and any(uuid[1:])
    path = fcntl.ioctl(fd, 0x80811501, bytes(129))
    assert path[1:1 + path[0]].decode() == f"tux3/{device}" and os.path.isdir(f"/sys/fs/{path[1:1 + path[0]].decode()}")
    get, put = 0x81009431, 0x41009432

    def label(new=None):
        if new is not None:
            fcntl.ioctl(fd, put, new.ljust(256, b"\0"))
        return fcntl.ioctl(fd, get, bytes(256)).rstrip(b"\0")

    def on_disk():
        """In the anchors: one pair of two has what was set last."""
        with open(f"/dev/{device}", "rb", buffering=0) as disk:
            fcntl.ioctl(disk, 0x1261)               # BLKFLSBUF
            anchors = [os.pread(disk.fileno(), 512, offset) for offset in (64 << 10, 128 << 10)]
        return max((struct.unpack_from("Q", anchor, 32)[0], anchor[56:120].rstrip(b"\0")) for anchor in anchors)[1]

    for new in (b"second", b"x" * 64, b"", b"third"):
        assert label(new) == new and on_disk() == new, new
        assert read(f"/sys/fs/tux3/{device}/label") == new.decode() + "\n"
    for bad in (b"x" * 65, b"two\nlines", b"\x1b[31m", b"\x7f"):
        expect(errno.EINVAL, label, bad)
    pid = os.fork()
    if not pid:
        os.setuid(1000)
        try:
            expect(errno.EPERM, label, b"mine")
        except BaseException as e:
            print(repr(e), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert label() == b"third"


def kinds():
    long = "x" * 4095
    os.mkfifo("fifo")
    os.mknod("char", stat.S_IFCHR | 0o600, os.makedev(300, 70000))
    os.mknod("block", stat.S_IFBLK | 0o600, os.makedev(8, 1))
    os.mknod("socket", stat.S_IFSOCK | 0o600)
    os.symlink("short", "link")
    os.symlink(long, "long")
    os.symlink("/etc/hostname", "through")
    os.mkdir("dir")
    expect(errno.EEXIST, os.mkdir, "dir")
    expect(errno.EEXIST, os.symlink, "a", "link")
    expect(errno.ENAMETOOLONG, os.mkdir, "n" * 256)
    os.mkdir("n" * 255)
    os.mkdir("n" * 254 + "\n")
    for turn in range(2):
        assert os.readlink("link") == "short" and os.readlink("long") == long
        assert read("through") == read("/etc/hostname")
        assert os.lstat("link").st_size == 5
        assert stat.S_ISFIFO(os.stat("fifo").st_mode) and stat.S_ISSOCK(os.stat("socket").st_mode)
        assert os.stat("char").st_rdev == os.makedev(300, 70000)
        types = {entry.name: entry for entry in os.scandir(".")}
        assert len(types) == 10 and types["dir"].is_dir() and types["link"].is_symlink()
        forget_caches()


def forget_caches():
    os.sync()
    write("/proc/sys/vm/drop_caches", "3")


def links():
    write("a", "text")
    for i in range(200):
        os.link("a", f"link{i}")
    assert os.stat("a").st_nlink == 201
    expect(errno.EEXIST, os.link, "a", "link5")
    expect(errno.EPERM, os.link, ".", "dir")
    os.sync()
    os.unlink("a")
    forget_caches()
    assert os.stat("link7").st_nlink == 200 and read("link7") == "text"
    for i in range(200):
        os.unlink(f"link{i}")
    assert os.listdir(".") == []


def renames():
    write("a", "a")
    write("b", "b")
    expect(errno.EEXIST, rename, "a", "b", NOREPLACE)
    rename("a", "c", NOREPLACE)
    assert read("c") == "a" and not os.path.exists("a")
    rename("b", "c", EXCHANGE)
    assert read("b") == "a" and read("c") == "b"
    os.makedirs("d/e/f")
    write("d/x", "x")
    expect(errno.EINVAL, os.rename, "d", "d/e/f/g")
    expect(errno.ENOTEMPTY, os.rename, "d/e", "d")
    expect(errno.EISDIR, os.rename, "c", "d")
    expect(errno.ENOTDIR, os.rename, "d", "c")
    rename("c", "d/e", EXCHANGE)            # a file and a directory change places
    assert read("d/e") == "b" and os.listdir("c") == ["f"]
    assert os.stat("d").st_nlink == 2 and os.stat("c").st_nlink == 3 and os.stat(".").st_nlink == 4
    assert os.path.samefile("c/..", ".")
    os.rename("c", "d/c")
    assert os.stat(".").st_nlink == 3 and os.path.samefile("d/c/..", "d")
    os.mkdir("empty")
    os.rename("d", "empty")
    expect(errno.ENOENT, os.stat, "d")
    rename("empty/x", "empty/y", WHITEOUT)
    white = os.stat("empty/x")
    assert stat.S_ISCHR(white.st_mode) and white.st_rdev == 0 and white.st_nlink == 1 and read("empty/y") == "x"
    rename("empty/y", "b", WHITEOUT)
    assert read("b") == "x"
    for turn in range(2):
        assert sorted(os.listdir("empty")) == ["c", "e", "x", "y"]
        assert sorted(os.listdir(".")) == ["b", "empty"]
        forget_caches()


def tmpfile():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
    assert os.fstat(fd).st_nlink == 0
    os.write(fd, b"from nowhere")
    os.sync()
    checked(LIBC.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, b"named", AT_SYMLINK_FOLLOW))
    assert os.fstat(fd).st_nlink == 1 and read("named") == "from nowhere"
    os.close(fd)
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
    def link():
        checked(LIBC.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, b"no", AT_SYMLINK_FOLLOW))
    expect(errno.ENOENT, link)
    os.close(fd)
    for i in range(100):
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
        os.write(fd, b"x" * 10000)
        if i % 10 == 0:
            os.sync()
        os.close(fd)
    forget_caches()
    assert os.listdir(".") == ["named"] and read("named") == "from nowhere"


FIFREEZE, FITHAW = 0xC0045877, 0xC0045878


def settled_free():
    """Free blocks, when all deletes are done."""
    for _ in range(3):
        os.sync()
        time.sleep(0.1)
    fd = os.open(".", os.O_RDONLY)
    for what in FIFREEZE, FITHAW:       # the log, whose length depends on how often there was a commit, is unified
        fcntl.ioctl(fd, what, 0)
    os.close(fd)
    return os.statvfs(".").f_bfree


def unlinked():
    before = settled_free()
    data = os.urandom(3 << 20)
    files = []
    for i in range(4):
        fd = os.open(f"f{i}", os.O_RDWR | os.O_CREAT)
        os.write(fd, data)
        files.append(fd)
        if i & 1:
            os.fsync(fd)
    for i in range(4):
        os.unlink(f"f{i}")
    forget_caches()
    for fd in files:
        assert os.fstat(fd).st_nlink == 0 and os.pread(fd, len(data), 0) == data
        os.pwrite(fd, b"changed", 5000)
    assert settled_free() < before - 4 * 700
    forget_caches()
    for fd in files:
        assert os.pread(fd, 7, 5000) == b"changed" and os.pread(fd, 5000, 0) == data[:5000]
        os.close(fd)
    after = settled_free()
    assert after >= before - 16, f"{before} blocks were free, {after} are"
    # Without anybody having it open; committed and not.
    for i in range(40):
        write(f"g{i}", "x" * 50000)
        if i == 20:
            os.sync()
    for i in range(40):
        os.unlink(f"g{i}")
    after = settled_free()
    assert after >= before - 16, f"{before} blocks were free, {after} are"


def crash():
    """Files without a name, open while the machine seems to stop.  The shell looks what is left."""
    write("kept", "kept")
    files = []
    for i in range(10):
        fd = os.open(f"lost{i}", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"x" * 100000)
        files.append(fd)
    files.append(os.open(".", os.O_TMPFILE | os.O_RDWR))
    os.write(files[-1], b"x" * 100000)
    for i in range(10):
        os.unlink(f"lost{i}")
    os.sync()
    write("late", "not committed")
    stop()


def stop():
    """As if the power went."""
    top = os.open(".", os.O_RDONLY)
    fcntl.ioctl(top, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    expect(errno.EROFS, os.mkdir, "never")


def dirsync():
    """On a volume mounted with this option every change of a name is there after a crash."""
    os.mkdir("d")
    os.mkdir("gone")
    write("a", "")
    os.symlink("a", "s")
    os.rename("a", "b")
    os.link("b", "c")
    os.unlink("b")
    os.rmdir("gone")
    stop()


def removed_cwd():
    os.mkdir("d")
    os.chdir("d")
    os.rmdir("../d")
    os.sync()
    assert os.listdir(".") == [] and os.stat(".").st_nlink == 0
    expect(errno.ENOENT, os.mkdir, "x")
    os.chdir("..")
    expect(errno.ENOENT, os.stat, "d")


def handles():
    mount_fd = os.open(".", os.O_RDONLY)
    write("a", "alive")
    os.makedirs("d/e")
    handle, deep = handle_of("a"), handle_of("d/e")
    for turn in range(2):
        fd = open_handle(mount_fd, handle)
        assert os.read(fd, 10) == b"alive"
        os.close(fd)
        fd = open_handle(mount_fd, deep)
        assert os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) == "e"
        os.close(fd)
        forget_caches()
    fd = os.open("a", os.O_RDONLY)
    os.unlink("a")
    os.close(fd)
    expect(errno.ESTALE, open_handle, mount_fd, handle)
    os.sync()
    expect(errno.ESTALE, open_handle, mount_fd, handle)
    os.removedirs("d/e")
    expect(errno.ESTALE, open_handle, mount_fd, deep)


def handle_race():
    """One process makes and removes files, the other looks their inodes up by handles, which may be dead."""
    mount_fd = os.open(".", os.O_RDONLY)
    reader, writer = os.pipe()
    end = time.monotonic() + 6
    if not os.fork():
        number = 0
        while time.monotonic() < end:
            write("f", f"{number}")
            os.write(writer, bytes(handle_of("f")))
            if number % 7 == 0:
                os.sync()
            os.unlink("f")
            number += 1
        os._exit(0)
    os.close(writer)
    found = stale = 0
    old = []
    while True:
        record = os.read(reader, ctypes.sizeof(Handle))
        if len(record) < ctypes.sizeof(Handle):
            break
        old = old[-20:] + [Handle.from_buffer_copy(record)]
        for handle in old[-1:] + random.sample(old, 1):
            try:
                fd = open_handle(mount_fd, handle)
                text = os.read(fd, 10)
                assert not text or text.isdigit(), text
                os.close(fd)
                found += 1
            except OSError as e:
                assert e.errno == errno.ESTALE, e
                stale += 1
    assert os.wait()[1] == 0 and stale, (found, stale)
    print(found, "found,", stale, "stale")


def hammer():
    """Processes in one directory, each with names of its own and some in common."""
    end = time.monotonic() + 10
    children = []
    for child in range(3):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        try:
            hammer_one(child, end)
        except BaseException as e:
            print(f"process {child}: {e!r}", flush=True)
            os._exit(1)
        os._exit(0)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    left = sorted(os.listdir("."))
    forget_caches()
    assert sorted(os.listdir(".")) == left
    for name in left:
        os.lstat(name)
        (os.rmdir if os.path.isdir(name) else os.unlink)(name)
    assert os.listdir(".") == []


def hammer_one(child, end):
    rng = random.Random(child)
    mine = {}

    def common():
        return f"common{rng.randrange(8)}"

    def attempt(call, *args):
        try:
            call(*args)
        except OSError as e:
            assert e.errno in (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EPERM,
                               errno.EINVAL, errno.ENXIO), e     # the last: of a whiteout

    while time.monotonic() < end:
        name = f"own{child}.{rng.randrange(50)}"
        if name in mine:
            assert read(name) == mine[name], name
            other = f"own{child}.{rng.randrange(50)}"
            if rng.randrange(2):
                os.unlink(name)
                del mine[name]
            elif other != name:
                os.rename(name, other)
                mine[other] = mine.pop(name)
        else:
            assert not os.path.exists(name)
            mine[name] = str(rng.random()) * rng.randrange(1, 500)
            write(name, mine[name])
        attempt(*rng.choice([(write, common(), "x"), (os.unlink, common()), (os.rename, common(), common()),
                             (os.mkdir, common()), (os.rmdir, common()), (os.link, common(), common()),
                             (rename, common(), common(), EXCHANGE), (rename, common(), common(), WHITEOUT),
                             (os.symlink, "target", common())]))
        if rng.randrange(40) == 0:
            listed = [n for n in os.listdir(".") if n.startswith(f"own{child}.")]
            assert sorted(listed) == sorted(mine), (sorted(listed), sorted(mine))
        if rng.randrange(400) == 0:
            os.sync()


def user_namespace(uid_map):
    """A file descriptor for one."""
    reader, writer = os.pipe()
    back_reader, back_writer = os.pipe()
    pid = os.fork()
    if not pid:
        checked(LIBC.unshare(0x10000000))
        os.write(back_writer, b"x")
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.read(back_reader, 1)
    write(f"/proc/{pid}/uid_map", uid_map)
    write(f"/proc/{pid}/gid_map", uid_map)
    fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    os.close(writer)
    os.waitpid(pid, 0)
    return fd


def idmapped():
    """Through an idmapped mount, 0 .. 999 here are 10000 .. 10999 there."""
    os.mkdir("dir")
    write("dir/a", "a")
    os.mkdir("there")
    tree = checked(LIBC.syscall(428, AT_FDCWD, os.path.abspath("dir").encode(), 1))       # open_tree, a clone
    attr = struct.pack("<QQQQ", 0x100000, 0, 0, user_namespace("0 10000 1000"))
    checked(LIBC.syscall(442, tree, b"", AT_EMPTY_PATH, attr, len(attr)))                   # mount_setattr
    checked(LIBC.syscall(429, tree, b"", AT_FDCWD, os.path.abspath("there").encode(), 4))   # move_mount
    os.close(tree)
    try:
        assert os.stat("there/a").st_uid == 10000
        os.chown("there/a", 10005, 10006)
        assert (os.stat("dir/a").st_uid, os.stat("dir/a").st_gid) == (5, 6)
        expect(errno.EOVERFLOW, os.mkdir, "there/b")         # root has no id there
        os.chown("there", 10007, 10007)
        pid = os.fork()
        if not pid:
            os.setgid(10007)
            os.setuid(10007)
            try:
                os.mkdir("there/sub")
                write("there/sub/file", "x")
                os.symlink("x", "there/sub/link")
                os.rename("there/sub/file", "there/sub/other")
                expect(errno.EACCES, write, "there/a", "x")
            except BaseException as e:
                print(repr(e), flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        for name in "sub", "sub/other", "sub/link":
            assert os.lstat(f"dir/{name}").st_uid == 7 and os.lstat(f"there/{name}").st_gid == 10007
    finally:
        checked(LIBC.umount2(b"there", 0))


def churn():
    """Files that lose their names open and closed, written and not, while commits and memory pressure come and go."""
    end = time.monotonic() + 10
    children = []
    for child in range(4):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        try:
            churn_one(child, end)
        except BaseException as e:
            print(f"process {child}: {e!r}", flush=True)
            os._exit(1)
        os._exit(0)
    results = [os.waitpid(pid, 0)[1] for pid in children]
    assert not any(results), results
    assert os.listdir(".") == []


def churn_one(child, end):
    rng = random.Random(child)
    files = []
    number = 0
    while time.monotonic() < end:
        if child == 3:
            os.sync() if rng.randrange(2) else write("/proc/sys/vm/drop_caches", str(rng.randrange(1, 4)))
            time.sleep(rng.random() / 20)
            continue
        name = f"{child}.{number}"
        number += 1
        data = rng.randbytes(rng.choice([0, 1, 300, 5000, 40000]))
        if rng.randrange(3):
            fd = os.open(name, os.O_RDWR | os.O_CREAT)
        else:
            fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
            name = None
        os.write(fd, data)
        if rng.randrange(4) == 0:
            os.fsync(fd)
        if rng.randrange(4) == 0:
            time.sleep(rng.random() / 50)
        if name and rng.randrange(2):
            os.rename(name, f"{child}.same")
            name = f"{child}.same"
        if name:
            os.unlink(name)
        files.append((fd, data))
        while len(files) > rng.randrange(30):
            fd, data = files.pop(rng.randrange(len(files)))
            assert os.fstat(fd).st_nlink == 0 and os.pread(fd, len(data) + 1, 0) == data
            if rng.randrange(5) == 0:
                os.ftruncate(fd, rng.randrange(60000))
            os.close(fd)


def full():
    """What fails for want of space leaves nothing behind; what frees space never fails."""
    os.mkdir("dir")
    # default:user::rwx, user:1000:rwx, group::r-x, mask::rwx, other::---
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in
                                          [(1, 7, -1), (2, 7, 1000), (4, 5, -1), (16, 7, -1), (32, 0, -1)])
    os.setxattr("dir", "system.posix_acl_default", acl)
    fd = os.open("fill", os.O_CREAT | os.O_WRONLY)
    chunk = bytes(1 << 20)
    for size in len(chunk), 4096:
        try:
            while True:
                os.write(fd, chunk[:size])
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
    made = 0
    try:
        while True:
            os.mkdir(f"dir/{made}")
            made += 1
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    for i in range(20):
        expect(errno.ENOSPC, os.mkdir, f"dir/more{i}")
        expect(errno.ENOSPC, os.open, f"dir/file{i}", os.O_CREAT)
    assert len(os.listdir("dir")) == made
    for i in range(made):
        os.rmdir(f"dir/{i}")
    os.unlink("fill")
    os.close(fd)
    write("new", "x" * (1 << 20))


def many(count=100000):
    for i in range(count):
        os.close(os.open(f"file-{i}", os.O_CREAT | os.O_WRONLY))
    names = os.listdir(".")
    assert len(names) == count and len(set(names)) == count
    forget_caches()
    names = os.listdir(".")
    assert len(names) == count and len(set(names)) == count
    for i in range(0, count, 997):
        os.stat(f"file-{i}")
        expect(errno.ENOENT, os.stat, f"none-{i}")
    # Listing while names go: what stays is listed once.
    seen = []
    with os.scandir(".") as entries:
        for entry in entries:
            seen.append(entry.name)
            number = int(entry.name[5:])
            if number % 100 == 0:
                os.unlink(entry.name)
                os.close(os.open(f"file-{number + count}", os.O_CREAT))
    kept = [name for name in seen if int(name[5:]) < count and int(name[5:]) % 100]
    assert len(kept) == len(set(kept)) == count - count // 100


def positions():
    """telldir and seekdir."""
    for i in range(300):
        write(f"f{i}", "")
    fd = os.open(".", os.O_RDONLY)
    names = {}
    buffer = ctypes.create_string_buffer(1000)
    while True:
        got = checked(LIBC.syscall(217, fd, buffer, len(buffer)))
        at = 0
        while at < got:
            off, length = struct.unpack_from("<qH", buffer.raw, at + 8)
            name = buffer.raw[at + 19:at + length].split(b"\0")[0]
            assert name not in names
            names[name] = off
            at += length
        if not got:
            break
    assert len(names) == 302
    order = list(names)
    for at in random.sample(range(len(order) - 1), 40):
        os.lseek(fd, names[order[at]], os.SEEK_SET)
        checked(LIBC.syscall(217, fd, buffer, len(buffer)))
        name = buffer.raw[19:struct.unpack_from("<H", buffer.raw, 16)[0]].split(b"\0")[0]
        assert name == order[at + 1], (name, order[at + 1])


def times():
    write("a", "a")
    os.utime("a", ns=(1_000_000_007, 2_000_000_009))
    os.utime("a", ns=(-5_000_000_001, 9_000_000_000_000_000_011))
    state = os.stat("a")
    assert (state.st_atime_ns, state.st_mtime_ns) == (-5_000_000_001, 9_000_000_000_000_000_011)
    forget_caches()
    state = os.stat("a")
    assert (state.st_atime_ns, state.st_mtime_ns) == (-5_000_000_001, 9_000_000_000_000_000_011)
    assert abs(state.st_ctime_ns - time.time_ns()) < 60e9
    ctime = state.st_ctime_ns
    read("a")                               # older than the last change: relatime moves it
    state = os.stat("a")
    assert abs(state.st_atime_ns - time.time_ns()) < 60e9 and state.st_ctime_ns == ctime
    before = os.stat(".")
    os.mkdir("d")
    after = os.stat(".")
    assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    os.chmod("a", 0o6755)
    assert os.stat("a").st_ctime_ns > ctime and os.stat("a").st_mtime_ns == 9_000_000_000_000_000_011
    os.chown("a", 1000, 1000)
    state = os.stat("a")
    assert (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)) == (1000, 1000, 0o755)
    os.truncate("a", 0)
    assert abs(os.stat("a").st_mtime_ns - time.time_ns()) < 60e9


def times_beside_finer_ones():
    """Another filesystem gives finer times where the kernel has those.  What is changed later here is not older."""
    other = "/dev/shm/finer"
    write("a", "a")
    latest = 0
    for number in range(20):
        for change in (lambda: os.utime("a"), lambda: write("a", "b"), lambda: os.chmod("a", 0o600 | number)):
            # A time that was asked for is followed by a finer one.
            write(other, "x")
            os.stat(other)
            write(other, "y")
            os.stat(other)
            change()
            state = os.stat("a")
            assert state.st_ctime_ns >= latest, (number, state.st_ctime_ns - latest)
            latest = max(state.st_ctime_ns, state.st_mtime_ns)
    os.unlink(other)


def xattrs():
    value = os.urandom(65536)
    write("a", "")
    os.setxattr("a", "user.small", b"1")
    os.setxattr("a", "user.empty", b"")
    os.setxattr("a", "user.large", value)
    os.setxattr("a", "trusted.t", b"t")
    os.setxattr("a", "security.s", b"s")
    expect(errno.EEXIST, os.setxattr, "a", "user.small", b"2", os.XATTR_CREATE)
    expect(errno.ENODATA, os.setxattr, "a", "user.none", b"2", os.XATTR_REPLACE)
    expect(errno.ENODATA, os.getxattr, "a", "user.none")
    expect(errno.ENODATA, os.removexattr, "a", "user.none")
    expect(errno.EOPNOTSUPP, os.setxattr, "a", "system.other", b"2")
    os.symlink("a", "link")
    expect(errno.EPERM, os.setxattr, "link", "user.x", b"", follow_symlinks=False)
    os.setxattr("link", "trusted.x", b"x", follow_symlinks=False)
    for turn in range(2):
        assert os.getxattr("a", "user.small") == b"1" and os.getxattr("a", "user.empty") == b""
        assert os.getxattr("a", "user.large") == value
        assert sorted(os.listxattr("a")) == ["security.s", "trusted.t", "user.empty", "user.large", "user.small"]
        assert os.listxattr("link", follow_symlinks=False) == ["trusted.x"]
        forget_caches()
    value = os.urandom(50000)
    os.setxattr("a", "user.large", value, os.XATTR_REPLACE)
    os.removexattr("a", "user.small")
    forget_caches()
    assert os.getxattr("a", "user.large") == value
    assert sorted(os.listxattr("a")) == ["security.s", "trusted.t", "user.empty", "user.large"]
    pid = os.fork()
    if not pid:
        os.chmod("a", 0o666)
        os.chmod(".", 0o777)
        os.setuid(1000)
        try:
            assert "trusted.t" not in os.listxattr("a") and "user.large" in os.listxattr("a")
            os.setxattr("a", "user.mine", b"m")
            expect(errno.EPERM, os.setxattr, "a", "security.s", b"m")
        except BaseException as e:
            print(repr(e), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    # A write takes file capabilities away.
    os.setxattr("a", "security.capability", struct.pack("<5I", 0x02000001, 0x1000, 0, 0, 0))
    write("a", "changed")
    assert "security.capability" not in os.listxattr("a")


if __name__ == "__main__":
    os.makedirs(sys.argv[2], exist_ok=True)
    os.chdir(sys.argv[2])
    os.umask(0o022)
    globals()[sys.argv[1]]()
