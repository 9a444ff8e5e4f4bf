#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Parent pointers as programs for XFS ask for them, and paths by number, on a mounted volume.  In the machine:

	tests/vm/guest/parents.py MOUNTPOINT

Each check is a line "ok NAME" or "FAILED NAME: why".  --calls-only: what XFS has, too.
"""
import ctypes
import fcntl
import os
import struct
import subprocess
import sys
import threading

import checks
from checks import check, fails

libc = ctypes.CDLL(None, use_errno=True)
GETPARENTS, GETPARENTS_BY_HANDLE = 0xC028583E, 0xC040583F
IOC_PATH = 0xC0000000 | 4144 << 16 | 0x98 << 8 | 2
ROOT, DONE = 1, 2
HANDLE = "IIHHIQ"


def call(fd, cursor, size, handle=b"", iflags=0, reserved=0):
    """One call: (cursor, flags, [((fsid, generation, inode), name)])"""
    # XFS leaves it as it is if there is none.
    buffer = ctypes.create_string_buffer(bytes(40) + b"\xee" * max(size - 40, 1), max(size, 41))
    request = bytearray(handle + cursor + struct.pack("HHIQQ", iflags, 0, size, reserved, ctypes.addressof(buffer)))
    fcntl.ioctl(fd, GETPARENTS_BY_HANDLE if handle else GETPARENTS, request)
    request = bytes(request[len(handle):])
    flags, = struct.unpack_from("H", request, 18)
    found, at, used = [], 0, 0
    while at < size // 8 * 8 and any(buffer.raw[at:at + 40]):
        fsid0, fsid1, length, pad, generation, ino = struct.unpack_from(HANDLE, buffer, at)
        bytes_, zero = struct.unpack_from("II", buffer, at + 24)
        name = buffer.raw[at + 32:buffer.raw.index(b"\0", at + 32)]
        if name:
            assert (length, pad, zero) == (14, 0, 0)
            found.append((((fsid0, fsid1), generation, ino), os.fsdecode(name)))
            used = at + (32 + len(os.fsencode(name)) + 1 + 7) // 8 * 8
        at += bytes_
    assert at in (0, size)
    assert buffer.raw[max(used, 40):size].count(b"\xee") == max(size - max(used, 40), 0)
    return request[:16], flags, found


def parents(path_or_fd, size=65536, handle=b""):
    fd = os.open(path_or_fd, os.O_RDONLY) if isinstance(path_or_fd, str) else path_or_fd
    cursor, flags, found = bytes(16), 0, []
    while not flags & DONE:
        cursor, flags, some = call(fd, cursor, size, handle)
        found += some
    if isinstance(path_or_fd, str):
        os.close(fd)
    return found


def where(found):
    return sorted((ino, name) for (_, _, ino), name in found)


def ino(path):
    return os.stat(path, follow_symlinks=False).st_ino


def generation(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return struct.unpack("I", fcntl.ioctl(fd, 0x80087601, bytes(8))[:4])[0]
    finally:
        os.close(fd)


def fsid(path):
    return struct.unpack("II", struct.pack("Q", os.statvfs(path).f_fsid & (1 << 64) - 1))


def open_handle(mount_fd, number, gen):
    data = struct.pack("QI", number, gen)
    buffer = ctypes.create_string_buffer(struct.pack("Ii", len(data), 0x81) + data)
    fd = libc.open_by_handle_at(mount_fd, buffer, os.O_RDONLY)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return fd


def calls(mount, top):
    """What XFS has, too."""
    a, b = f"{top}/a", f"{top}/a/b"
    os.makedirs(b)
    with open(f"{a}/x", "w", encoding="ascii"):
        pass
    check("parents: of a new file", where(parents(f"{a}/x")), [(ino(a), "x")])
    os.link(f"{a}/x", f"{b}/y")
    os.link(f"{a}/x", f"{b}/{'z' * 255}")
    three = sorted([(ino(a), "x"), (ino(b), "y"), (ino(b), "z" * 255)])
    check("parents: of one with three names", where(parents(f"{a}/x")), three)
    check("parents: one with each call", where(parents(f"{a}/x", 296)), three)
    check("parents: a buffer that is too small for a name", fails(parents, f"{a}/x", 64), "EMSGSIZE")
    for name, size, options, expected in (
            ("a buffer that is too small for any", 32, {}, "EINVAL"), ("one that is too large", 65544, {}, "ENOMEM"),
            ("unknown flags", 4096, {"iflags": 1}, "EINVAL"), ("what is reserved", 4096, {"reserved": 1}, "EINVAL")):
        fd = os.open(a, os.O_RDONLY)
        check(f"parents: {name}", fails(lambda: call(fd, bytes(16), size, **options)), expected)
        os.close(fd)
    check("parents: of a directory", where(parents(b)), [(ino(a), "b")])
    fd = os.open(mount, os.O_RDONLY)
    check("parents: of the root", call(fd, bytes(16), 4096)[1:], (ROOT | DONE, []))
    os.rename(f"{a}/x", f"{top}/x")
    os.unlink(f"{b}/y")
    check("parents: after a rename and an unlink", where(parents(f"{top}/x")), sorted([(ino(top), "x"), (ino(b), "z" * 255)]))
    # By handle: a record's is good for asking for the parents of that directory.
    (system, gen, number), _ = next(p for p in parents(f"{top}/x") if p[0][2] == ino(b))
    handle = struct.pack(HANDLE, *system, 14, 0, gen, number)
    check("parents: by the handle of a record", where(parents(fd, handle=handle)), [(ino(a), "b")])
    check("parents: by a stale handle", fails(lambda: parents(fd, handle=struct.pack(HANDLE, *system, 14, 0, gen ^ 1, number))),
          "ESTALE")
    check("parents: by a handle that is none", fails(lambda: parents(fd, handle=struct.pack(HANDLE, *system, 13, 0, gen, number))),
          "EINVAL")
    held = os.open(f"{top}/x", os.O_RDONLY)
    check("parents: by handle, asked of a file", fails(lambda: parents(held, handle=handle)), "ENOTDIR")
    os.unlink(f"{top}/x")
    os.unlink(f"{b}/{'z' * 255}")
    check("parents: of an open file without a name", parents(held), [])
    os.close(held)
    os.close(fd)
    child = os.fork()
    if not child:
        os.setuid(65534)
        fd = os.open(mount, os.O_RDONLY)
        os._exit(fails(lambda: call(fd, bytes(16), 4096)) != "EPERM")
    check("parents: not for everybody", os.waitpid(child, 0)[1], 0)


def path_of(mount, number, *options):
    done = subprocess.run(["build/tux3", "path", mount, str(number), *options], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if not done.returncode else (done.returncode, done.stderr.strip())


def ours(mount, top):
    """With open_by_handle_at(2), and paths."""
    b = f"{top}/a/b"
    fd = os.open(mount, os.O_RDONLY)
    (system, gen, number), _ = parents(b)[0]
    check("parents: the file system's id", system, fsid(mount))
    check("parents: the generation", gen, generation(f"{top}/a"))
    opened = open_handle(fd, number, gen)
    check("parents: a handle made of it opens the directory", os.fstat(opened).st_ino, number)
    os.close(opened)
    os.close(fd)
    os.mkfifo(f"{b}/fifo")
    inside = b[len(mount):]
    check("path: of a special file", path_of(mount, ino(f"{b}/fifo")), [f"{inside}/fifo"])
    check("path: of the root, asked of another directory", path_of(b, ino(mount)), ["/"])
    os.link(f"{b}/fifo", f"{top}/second")
    check("path: two of them", sorted(path_of(mount, ino(f"{b}/fifo"))), sorted([f"{inside}/fifo", f"{top[len(mount):]}/second"]))
    check("path: of no inode", path_of(mount, 999999), (1, "tux3: There is no inode 999999 with a name."))
    with open(f"{b}/gone", "w", encoding="ascii") as file:
        number = os.fstat(file.fileno()).st_ino
        os.unlink(f"{b}/gone")
        check("path: of a file without a name", path_of(mount, number)[0], 1)
    moving(mount, top)


def moving(mount, top):
    """Directories are moved all the time: each path is one that there was.  There is never an e below p."""
    os.makedirs(f"{top}/p/d")
    with open(f"{top}/p/d/f", "w", encoding="ascii"):
        pass
    number, stop, rounds = ino(f"{top}/p/d/f"), threading.Event(), 0
    inside = top[len(mount):]
    possible = {f"{inside}/{way}" for way in ("p/d/f", "q/d/f", "q/e/f", "q/g")}

    def mover():
        nonlocal rounds
        moves = (("p", "q"), ("q/d", "q/e"), ("q/e/f", "q/g"))
        while not stop.is_set():
            for old, new in moves:
                os.rename(f"{top}/{old}", f"{top}/{new}")
            for old, new in reversed(moves):
                os.rename(f"{top}/{new}", f"{top}/{old}")
            rounds += 1

    thread = threading.Thread(target=mover)
    thread.start()
    fd, wrong = os.open(mount, os.O_RDONLY), set()
    for _ in range(500):
        request = bytearray(struct.pack("QIIQQQQ", number, 0, 0, 0, 0, 0, 0) + bytes(4096))
        fcntl.ioctl(fd, IOC_PATH, request)
        path = os.fsdecode(bytes(request[48:48 + struct.unpack_from("I", request, 12)[0]]))
        if path not in possible:
            wrong.add(path)
    stop.set()
    thread.join()
    os.close(fd)
    check("path: while directories are moved", (wrong, rounds > 0), (set(), True))


def main():
    mount = sys.argv[1]
    top = f"{mount}/parents"
    calls(mount, top)
    if "--calls-only" not in sys.argv:
        ours(mount, top)
    sys.exit(checks.status())


if __name__ == "__main__":
    main()
