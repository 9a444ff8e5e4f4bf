#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""File handles (name_to_handle_at, open_by_handle_at) on a mounted volume, also across a mount.  In the machine:

	tests/vm/guest/handles.py MOUNTPOINT DEVICE

Each check is a line "ok NAME" or "FAILED NAME: why".
"""
import ctypes
import errno
import os
import struct
import subprocess
import sys

import checks
from checks import check

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, O_PATH = -100, 0o10000000
MAX_HANDLE = 128


def handle(path):
    """(type, bytes) of the file."""
    buffer = ctypes.create_string_buffer(8 + MAX_HANDLE)
    struct.pack_into("Ii", buffer, 0, MAX_HANDLE, 0)
    mount_id = ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), buffer, ctypes.byref(mount_id), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at", path)
    size, kind = struct.unpack_from("Ii", buffer)
    return kind, buffer.raw[8:8 + size]


def open_handle(mount, kind_and_bytes, flags=os.O_RDONLY):
    kind, data = kind_and_bytes
    buffer = ctypes.create_string_buffer(struct.pack("Ii", len(data), kind) + data)
    mount_fd = os.open(mount, os.O_RDONLY)
    try:
        fd = libc.open_by_handle_at(mount_fd, buffer, flags)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "open_by_handle_at")
        return fd
    finally:
        os.close(mount_fd)


def read_by(mount, found):
    fd = open_handle(mount, found)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


def where(mount, found):
    """The path that the kernel gives an open directory, or file, found by its handle."""
    fd = open_handle(mount, found, O_PATH)
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def is_stale(mount, found):
    try:
        os.close(open_handle(mount, found))
        return False
    except OSError as err:
        return err.errno == errno.ESTALE or f"errno {err.errno}"


def again(mount, device):
    subprocess.run(["umount", mount], check=True)
    subprocess.run(["mount", "-t", "tux3", device, mount], check=True)


def main():
    mount, device = sys.argv[1:]
    top = os.path.join(mount, "handles")
    deep = os.path.join(top, "a/b/c")
    os.makedirs(deep)
    files = {name: os.path.join(deep, name) for name in ("new", "kept", "removed", "held")}
    for name, path in files.items():
        with open(path, "w", encoding="ascii") as file:
            file.write(name)
    found = {name: handle(path) for name, path in files.items()}
    folder = handle(deep)

    check("handle: type and length", (found["new"][0], len(found["new"][1])), (0x81, 12))
    check("handle: not committed yet", read_by(mount, found["new"]), "new")
    again(mount, device)
    check("handle: after a mount", read_by(mount, found["kept"]), "kept")
    check("handle: a directory, all the way up", where(mount, folder), deep)
    again(mount, device)
    os.rename(os.path.join(top, "a"), os.path.join(top, "moved"))
    check("handle: below a directory that was renamed", where(mount, folder), os.path.join(top, "moved/b/c"))
    os.rename(os.path.join(top, "moved/b/c"), os.path.join(top, "c2"))
    again(mount, device)
    check("handle: a directory that was moved", where(mount, folder), os.path.join(top, "c2"))
    deep = os.path.join(top, "c2")

    os.unlink(os.path.join(deep, "removed"))
    check("handle: of a removed file", is_stale(mount, found["removed"]), True)
    held = os.open(os.path.join(deep, "held"), os.O_RDONLY)
    os.unlink(os.path.join(deep, "held"))
    check("handle: of a removed file that is open", read_by(mount, found["held"]), "held")
    os.sync()
    check("handle: the same after a sync", read_by(mount, found["held"]), "held")
    os.close(held)
    check("handle: after it was closed", is_stale(mount, found["held"]), True)
    again(mount, device)
    check("handle: of a removed file, after a mount", is_stale(mount, found["removed"]), True)

    # The number is used again, by a file with another generation.
    for i in range(200):
        with open(os.path.join(deep, f"more{i}"), "w", encoding="ascii") as file:
            file.write("other")
    check("handle: of a number that was used again", is_stale(mount, found["removed"]), True)
    kind, data = found["kept"]
    for what, number in (("the volume's own inode", 1), ("a reserved number", 7), ("no inode", 99999),
                         ("too large", 1 << 60)):
        check(f"handle: {what}", is_stale(mount, (kind, struct.pack("<Q", number) + data[8:])), True)
    check("handle: cut short", is_stale(mount, (kind, data[:8])), True)
    sys.exit(checks.status())


if __name__ == "__main__":
    main()
