# SPDX-License-Identifier: GPL-2.0-or-later
"""Volumes with something in them, made through libtux3 (no mount needed), and ways to damage them."""
import ctypes
import json
import os
import struct
import zlib
from pathlib import Path

BLOCK = 4096
STRIDE = 65536
CREATE, PARENTS = 2, 8


class Options(ctypes.Structure):
    """struct tux3_options of tux3.h."""
    _fields_ = [(name, ctypes.c_bool) for name in ("read_only", "no_recovery", "accept_last", "cut_log", "manual", "sync_io")] + \
        [(name, ctypes.c_uint32) for name in ("age_ms", "delta_ms")] + \
        [(name, ctypes.c_uint64) for name in ("dirty_bytes", "dirty_limit_bytes", "log_blocks", "cache_bytes", "data_cache_bytes",
                                              "names_cached")] + \
        [(name, ctypes.c_uint32) for name in ("fsync", "atime")] + [(name, ctypes.c_bool) for name in ("no_quota", "costs")] + \
        [("write_rate", ctypes.c_uint64)]


class Volume:
    """An image opened with libtux3.so; options as in tux3.h."""

    def __init__(self, build, path, **options):
        self.lib = ctypes.CDLL(str(Path(build) / "libtux3.so"))
        self.declare(self.lib)
        self.handle = ctypes.c_void_p()
        why = ctypes.create_string_buffer(512)
        err = self.lib.tux3_open(os.fsencode(path), ctypes.byref(Options(**options)), ctypes.byref(self.handle), why, 512)
        assert err == 0, why.value

    def declare(self, lib):
        lib.tux3_write.restype = ctypes.c_ssize_t
        lib.tux3_write.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
        lib.tux3_node_put.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        lib.tux3_root.restype = ctypes.c_void_p
        for name in ("tux3_close", "tux3_abandon", "tux3_sync", "tux3_root"):
            getattr(lib, name).argtypes = [ctypes.c_void_p]
        lib.tux3_symlink.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                     ctypes.c_void_p]
        lib.tux3_setxattr.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                      ctypes.c_size_t, ctypes.c_int]
        lib.tux3_path.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint,
                                  ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p)]
        lib.tux3_link.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
        lib.tux3_node_ino.restype = ctypes.c_uint64
        lib.tux3_node_ino.argtypes = [ctypes.c_void_p]
        lib.tux3_path_mkdir.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]
        lib.tux3_path_unlink.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]

    def node(self, path, flags=0):
        node = ctypes.c_void_p()
        err = self.lib.tux3_path(self.handle, None, path.encode(), flags, 0o644, ctypes.byref(node))
        assert err == 0, (path, err)
        return node

    def mkdir(self, path):
        assert self.lib.tux3_path_mkdir(self.handle, None, path.encode(), 0o755) == 0

    def write(self, path, data, parents=False):
        node = self.node(path, CREATE | PARENTS * parents)
        assert self.lib.tux3_write(node, data, len(data), 0) == len(data)
        self.lib.tux3_node_put(node, 1)

    def xattr(self, path, name, value):
        node = self.node(path)
        assert self.lib.tux3_setxattr(node, None, name.encode(), value, len(value), 0) == 0
        self.lib.tux3_node_put(node, 1)

    def symlink(self, name, target):
        root = self.lib.tux3_root(self.handle)
        assert self.lib.tux3_symlink(root, None, name.encode(), target.encode(), None) == 0
        self.lib.tux3_node_put(root, 1)

    def link(self, path, folder, name):
        node, at = self.node(path), self.node(folder)
        assert self.lib.tux3_link(node, None, at, name.encode()) == 0
        self.lib.tux3_node_put(at, 1)
        self.lib.tux3_node_put(node, 1)

    def number(self, path):
        node = self.node(path)
        number = self.lib.tux3_node_ino(node)
        self.lib.tux3_node_put(node, 1)
        return number

    def unlink(self, path):
        assert self.lib.tux3_path_unlink(self.handle, None, path.encode()) == 0

    def sync(self):
        assert self.lib.tux3_sync(self.handle) == 0

    def close(self):
        assert self.lib.tux3_close(self.handle) == 0

    def abandon(self):
        """As a crash."""
        self.lib.tux3_abandon(self.handle)


def fill(build, path):
    """A few files of each kind, all of it unified."""
    volume = Volume(build, path)
    volume.mkdir("/secret-directory")
    volume.write("/secret-directory/plan.txt", b"attack at dawn\n")
    volume.write("/big", bytes(range(256)) * 400)
    volume.xattr("/big", "user.secret-name", b"secret-value")
    volume.xattr("/big", "user.long", b"l" * 6000)
    volume.symlink("link", "secret-directory/plan.txt")
    for i in range(300):
        volume.write(f"/secret-directory/file{i}", b"x" * i * 40)
    volume.close()


def add_to_log(build, path):
    """Changes that are only in the log."""
    volume = Volume(build, path)
    volume.write("/logged", b"only in the log")
    volume.unlink("/secret-directory/file7")
    volume.sync()
    volume.abandon()


CRC_TABLE = []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
    CRC_TABLE.append(value)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xff]
    return crc


def seal(data, at=8):
    """Set the checksum of an object."""
    data[at:at + 4] = bytes(4)
    data[at:at + 4] = struct.pack("<I", crc32c(data))


def edit(path, offset, size, change):
    """Change bytes of a file: change(bytearray)."""
    with open(path, "r+b") as f:
        f.seek(offset)
        data = bytearray(f.read(size))
        change(data)
        f.seek(offset)
        f.write(data)


def edit_anchors(path, change):
    """Change all valid anchors, with right checksums."""
    size = os.path.getsize(path)
    for offset in (STRIDE, 2 * STRIDE, size - 2 * STRIDE, size - STRIDE):
        def change_valid(data):
            if data[:8] == b"TUX3ANC1":
                change(data)
                seal(data)
        edit(path, offset, 512, change_valid)


def digest(path):
    with open(path, "rb") as f:
        return zlib.crc32(f.read())


def as_json(done):
    return json.loads(done.stdout)
