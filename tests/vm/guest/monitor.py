#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Listens for errors of a file system, as monitors do (fanotify, FAN_FS_ERROR), while a command makes it stop.

	monitor.py MOUNTPOINT COMMAND [ARG...]
"""
import ctypes
import os
import select
import struct
import subprocess
import sys

FAN_REPORT_FID, FAN_MARK_ADD, FAN_MARK_FILESYSTEM, FAN_FS_ERROR, INFO_ERROR = 0x200, 0x1, 0x100, 0x8000, 5
SECONDS = 20

libc = ctypes.CDLL(None, use_errno=True)


def heard(event):
    """(errno, how many since) of an event of one error."""
    length, mask = struct.unpack_from("I4xQ", event)
    assert mask == FAN_FS_ERROR, hex(mask)
    at = 24
    while at < length:
        kind, size = struct.unpack_from("BxH", event, at)
        if kind == INFO_ERROR:
            return struct.unpack_from("iI", event, at + 4)
        at += size
    return None


def main():
    libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
    listener = libc.fanotify_init(FAN_REPORT_FID, os.O_RDONLY)
    assert listener >= 0, os.strerror(ctypes.get_errno())
    if libc.fanotify_mark(listener, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_FS_ERROR, -100, sys.argv[1].encode()):
        sys.exit(f"fanotify_mark: {os.strerror(ctypes.get_errno())}")
    subprocess.run(sys.argv[2:], check=True)
    if not select.select([listener], [], [], SECONDS)[0]:
        sys.exit("no error was told")
    error, count = heard(os.read(listener, 4096))
    if (error, count) != (5, 1):
        sys.exit(f"error {error} ({os.strerror(error)}), {count} times, was told")


if __name__ == "__main__":
    main()
