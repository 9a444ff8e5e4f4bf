#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""All inodes of a mounted volume by XFS's bulkstat: as stat(2) has them, while others come and go.  In the machine:

	tests/vm/guest/bulkstat.py MOUNTPOINT [SECONDS]

Each check is a line "ok NAME" or "FAILED NAME: why".
"""
import ctypes
import fcntl
import os
import stat
import struct
import sys
import threading
import time

import checks
from checks import check, fails

libc = ctypes.CDLL(None, use_errno=True)
BULKSTAT = 0x8040587F
HEADER, RECORD = "QIIII40x", "QQQQ qqqq IIII IIII IIII IIIHHHHHHQ48x".replace(" ", "")
FIELDS = ("ino size blocks xflags atime mtime ctime btime gen uid gid projid atime_nsec mtime_nsec ctime_nsec btime_nsec "
          "blksize rdev cow ext nlink extents aextents version forkoff sick checked mode pad extents64").split()


def call(fd, ino, wanted, flags=0, reserved=0, agno=0):
    """One call: (next number, [records])"""
    size = struct.calcsize(RECORD)
    buffer = ctypes.create_string_buffer(64 + wanted * size)
    struct.pack_into(HEADER, buffer, 0, ino, flags, wanted, 0, agno)
    struct.pack_into("Q", buffer, 24, reserved)
    if libc.ioctl(fd, ctypes.c_ulong(BULKSTAT), buffer):
        raise OSError(ctypes.get_errno(), "bulkstat")
    ino, _, _, count, _ = struct.unpack_from(HEADER, buffer)
    return ino, [dict(zip(FIELDS, struct.unpack_from(RECORD, buffer, 64 + i * size))) for i in range(count)]


def everything(fd, wanted=1024, ino=0):
    found = []
    while True:
        ino, records = call(fd, ino, wanted)
        if not records:
            return found
        found += records


def as_stat_says(path):
    st = os.lstat(path)
    return (st.st_size, st.st_blocks, st.st_mtime_ns, st.st_ctime_ns, st.st_uid, st.st_gid, st.st_nlink, st.st_mode,
            os.major(st.st_rdev), os.minor(st.st_rdev))


def as_told(one):
    return (one["size"], one["blocks"] * one["blksize"] // 512, one["mtime"] * 10**9 + one["mtime_nsec"],
            one["ctime"] * 10**9 + one["ctime_nsec"], one["uid"], one["gid"], one["nlink"], one["mode"], one["rdev"] >> 18,
            one["rdev"] & 0x3FFFF)


def tree_of(top):
    paths = [top]
    for folder, folders, files in os.walk(top):
        paths += [f"{folder}/{name}" for name in folders + files]
    return paths


def compare(name, fd, mount, wanted):
    paths = tree_of(mount)
    found = everything(fd, wanted)
    numbers = [one["ino"] for one in found]
    check(f"{name}: in order, none twice", numbers == sorted(set(numbers)), True)
    check(f"{name}: all there are", sorted(numbers), sorted({os.lstat(path).st_ino for path in paths}))
    told = {one["ino"]: one for one in found}
    wrong = [(path, as_told(told[ino]), as_stat_says(path)) for path in paths
             if (ino := os.lstat(path).st_ino) in told and as_told(told[ino]) != as_stat_says(path)]
    check(f"{name}: as stat has them", wrong[:3], [])
    return found


def make_tree(top):
    for folder in range(8):
        os.makedirs(f"{top}/d{folder}")
        for number in range(60):
            with open(f"{top}/d{folder}/f{number}", "wb") as file:
                file.write(b"x" * (number * 997 % 30000))
    os.symlink("d0", f"{top}/link")
    os.link(f"{top}/d1/f1", f"{top}/second")
    os.mknod(f"{top}/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mkfifo(f"{top}/fifo")
    os.chown(f"{top}/d2/f2", 1234, 5678)
    with open(f"{top}/sparse", "wb") as file:
        file.truncate(1 << 40)


def beside(fd, top, seconds):
    """Files that stay are told once, each time; those that come and go, never but when they are there."""
    os.makedirs(f"{top}/stay")
    for number in range(100):
        with open(f"{top}/stay/f{number}", "wb"):
            pass
    stay = {os.lstat(f"{top}/stay/f{number}").st_ino for number in range(100)}
    stop = threading.Event()

    def churn(which):
        os.makedirs(f"{top}/churn{which}")
        while not stop.is_set():
            for number in range(50):
                with open(f"{top}/churn{which}/f{number}", "wb") as file:
                    file.write(b"x" * 5000)
            for number in range(50):
                os.unlink(f"{top}/churn{which}/f{number}")

    threads = [threading.Thread(target=churn, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    end, wrong, rounds = time.monotonic() + seconds, [], 0
    while time.monotonic() < end:
        found = everything(fd, (7, 64, 1024)[rounds % 3])
        numbers = [one["ino"] for one in found]
        rounds += 1
        if numbers != sorted(set(numbers)) or not stay <= set(numbers) or any(one["nlink"] < 1 or not one["mode"] for one in found):
            wrong.append((len(numbers), len(set(numbers)), len(stay - set(numbers))))
        os.utime(f"{top}/stay/f{rounds % 100}", (rounds, rounds))
        one = call(fd, os.lstat(f"{top}/stay/f{rounds % 100}").st_ino, 1)[1][0]
        if one["mtime"] != rounds:
            wrong.append((rounds, one))
    stop.set()
    for thread in threads:
        thread.join()
    check("bulkstat: while files come and go", (wrong[:3], rounds > 3), ([], True))


def main():
    mount = sys.argv[1]
    top = f"{mount}/bulkstat"
    fd = os.open(mount, os.O_RDONLY)
    os.mkdir(top)
    make_tree(top)
    compare("bulkstat: not committed yet", fd, mount, 1024)
    os.sync()
    for wanted in (1, 5, 64, 1000):
        compare(f"bulkstat: {wanted} with each call", fd, mount, wanted)
    for path in tree_of(top)[::7]:
        os.utime(path, (1, 2), follow_symlinks=False)
    os.unlink(f"{top}/d3/f3")
    os.rename(f"{top}/d3/f4", f"{top}/d4/f4")
    found = compare("bulkstat: changed and not committed", fd, mount, 64)
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        os.sync()
        file.write("3")
    compare("bulkstat: not in memory", fd, mount, 64)

    root = os.lstat(mount).st_ino
    check("bulkstat: the root, and nothing else", [one["ino"] for one in call(fd, 1, 10, 2)[1]], [root])
    check("bulkstat: another special one", fails(call, fd, 2, 10, 2), "EINVAL")
    check("bulkstat: an allocation group that was not asked for", fails(lambda: call(fd, 0, 10, agno=1)), "EINVAL")
    check("bulkstat: beyond the last", call(fd, max(one["ino"] for one in found) + 1, 10)[1], [])
    check("bulkstat: none wanted", fails(call, fd, 0, 0), "EINVAL")
    check("bulkstat: unknown flags", fails(call, fd, 0, 1, 1 << 20), "EINVAL")
    check("bulkstat: what is reserved", fails(call, fd, 0, 1, 0, 1), "EINVAL")
    held = os.open(f"{top}/d5/f5", os.O_RDONLY)
    generation, = struct.unpack("I", fcntl.ioctl(held, 0x80087601, bytes(8))[:4])
    check("bulkstat: generation", call(fd, os.fstat(held).st_ino, 1)[1][0]["gen"], generation)
    os.unlink(f"{top}/d5/f5")
    check("bulkstat: not what has no name", os.fstat(held).st_ino in [one["ino"] for one in everything(fd)], False)
    os.close(held)
    child = os.fork()
    if not child:
        os.setuid(65534)
        os._exit(fails(call, fd, 0, 1) != "EPERM")
    check("bulkstat: not for everybody", os.waitpid(child, 0)[1], 0)
    beside(fd, top, int(sys.argv[2]) if len(sys.argv) > 2 else 10)
    compare("bulkstat: at the end", fd, mount, 1024)
    sys.exit(checks.status())


if __name__ == "__main__":
    main()
