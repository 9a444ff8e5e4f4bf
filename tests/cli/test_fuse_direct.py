# SPDX-License-Identifier: GPL-2.0-or-later
"""Direct and buffered I/O of one file through FUSE: a read never shows less than what was written before it."""
import contextlib
import ctypes
import errno
import mmap
import os
import re
import struct
import subprocess
import threading

import pytest

from posixlib import libc, opened

SIZE = 1 << 16
ROUNDS = 300
# io_setup, io_destroy, io_getevents, io_submit
AIO = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}.get(os.uname().machine)


@contextlib.contextmanager
def aio_writer(fd):
    """write(data): by the kernel's asynchronous I/O; returns when it is complete."""
    setup, destroy, getevents, submit = AIO
    context = ctypes.c_ulong(0)
    assert libc.syscall(setup, 1, ctypes.byref(context)) == 0

    def write(data):
        control = ctypes.create_string_buffer(struct.pack("<QIIHHIQQq16x", 0, 0, 0, 1, 0, fd,
                                                          ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data), 0))
        pointer, event = ctypes.c_void_p(ctypes.addressof(control)), ctypes.create_string_buffer(32)
        assert libc.syscall(submit, context, 1, ctypes.byref(pointer)) == 1
        assert libc.syscall(getevents, context, 1, 1, event, None) == 1
        assert struct.unpack_from("<q", event.raw, 16)[0] == len(data)
    try:
        yield write
    finally:
        libc.syscall(destroy, context)


@contextlib.contextmanager
def sync_writer(fd):
    yield lambda data: os.pwrite(fd, data, 0)


@pytest.fixture(params=["io_uring=off", "io_uring=on"], ids=["dev-fuse", "io-uring"])
def options(request):
    if request.param == "io_uring=on":
        request.getfixturevalue("io_uring")
    return request.param


@pytest.mark.skipif(AIO is None, reason="the numbers of the system calls of this machine are not known")
@pytest.mark.parametrize("writer", [aio_writer, sync_writer], ids=["asynchronous", "synchronous"])
def test_direct_writes_beside_buffered_reads(mount, volume, options, writer):
    path = mount(volume, options) / "f"
    done = threading.Event()

    def read_on():
        with opened(path, os.O_RDONLY) as fd:
            while not done.is_set():
                for offset in range(0, SIZE, 4096):
                    os.pread(fd, 4096, offset)
    readers = [threading.Thread(target=read_on) for _ in range(2)]
    stale = []
    with opened(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT) as direct, opened(path, os.O_RDONLY) as buffered, \
            mmap.mmap(-1, SIZE) as data, writer(direct) as write:
        write(data)
        for thread in readers:
            thread.start()
        try:
            for number in range(ROUNDS):
                data[:] = bytes([number & 255]) * SIZE
                write(data)
                if os.pread(buffered, SIZE, 0) != data[:]:
                    stale.append(number)
        finally:
            done.set()
            for thread in readers:
                thread.join()
    assert not stale, f"{len(stale)} of {ROUNDS} rounds"


def test_a_direct_write_of_a_mib_is_one_change(mount, volume, options, build):
    """One request, and so one delta; FUSE has no RWF_ATOMIC."""
    folder = mount(volume, options)

    def changes():
        shown = subprocess.run([build / "tux3", "stat", folder.path, "ops"], check=True, stdout=subprocess.PIPE, text=True)
        return int(re.search(r"ops\s+(\d+)", shown.stdout).group(1))
    with opened(folder / "f", os.O_RDWR | os.O_CREAT | os.O_DIRECT) as fd, mmap.mmap(-1, 1 << 20) as data:
        os.pwrite(fd, data, 0)
        for size in (4096, 16384, 1 << 20):
            before = changes()
            with memoryview(data) as view, view[:size] as part:
                assert os.pwrite(fd, part, 0) == size
            assert changes() - before == 1
        with pytest.raises(OSError) as refused:
            os.pwritev(fd, [data], 0, 0x40)
        assert refused.value.errno == errno.EOPNOTSUPP
