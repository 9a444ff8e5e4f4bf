# SPDX-License-Identifier: GPL-2.0-or-later
"""Undo files, written from FORMAT 13 alone."""
import os
import struct

from format_reader import crc32c
from tools_helpers import STRIDE

UNIT = 4096
HEADER, RECORD = struct.Struct("<QIIQQQ16sQIIQQII416x"), struct.Struct("<QIIQQQQIIQQII432x")
MAGIC, RECORD_MAGIC = 0x4f444e5533585554, 0x4352444e55335854
FILE_ID = 0x1234567


def sealed(fmt, *fields):
    """fields: with a crc of 0 in the second place."""
    crc = crc32c(fmt.pack(*fields))
    return fmt.pack(fields[0], crc, *fields[2:])


def anchors(path):
    """All valid ones, as bytes, in the order of their slots."""
    size, found = os.path.getsize(path), []
    with open(path, "rb") as f:
        for offset in (STRIDE, 2 * STRIDE, size - 2 * STRIDE, size - STRIDE):
            f.seek(offset)
            data = f.read(512)
            if data[:8] == b"TUX3ANC1":
                found.append(data)
    return found


def newest(path):
    return max(anchors(path), key=lambda data: struct.unpack_from("<Q", data, 32)[0])


def header(path, state=0, size=None, before=None):
    """before: generation and delta."""
    anchor = newest(path)
    return sealed(HEADER, MAGIC, 0, 1, FILE_ID, size or os.path.getsize(path), struct.unpack_from("<Q", anchor, 16)[0],
                  anchor[40:56], 0, UNIT, state, *(before or (0, 0)), 0, 0)


def record(seq, offset, data):
    """Each is durable before the next one is written."""
    return sealed(RECORD, RECORD_MAGIC, 0, crc32c(data), FILE_ID, seq, seq - 1, offset, len(data), 1, 0, 0, 0, 0) + data


def generation(path):
    return struct.unpack_from("<Q", newest(path), 32)[0]


def end(path, seq, delta):
    return sealed(RECORD, RECORD_MAGIC, 0, 0xffffffff, FILE_ID, seq, seq - 1, 0, 0, 2, generation(path), delta,
                  crc32c(b"".join(anchors(path))), 0)


def state_of(undo):
    return HEADER.unpack(undo.read_bytes()[:512])[9]
