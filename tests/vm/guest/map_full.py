#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""map_full.py DIR: store to a sparse mapping that is larger than the volume, page by page, until a store fails.

The store that finds no space must be a SIGBUS; all that were made before it must be readable, from another file descriptor
and after fsync.
"""
import mmap
import os
import sys

PAGE = 4096
path = os.path.join(sys.argv[1], "mapped")
status = os.statvfs(sys.argv[1])
size = (status.f_blocks + 1000) * status.f_frsize
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.ftruncate(fd, size)
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    area = mmap.mmap(fd, size)
    for page in range(0, size // PAGE):
        area[page * PAGE:page * PAGE + 8] = page.to_bytes(8, "little")
        if page % 64 == 0:
            os.write(write_end, page.to_bytes(8, "little"))
    os._exit(0)
os.close(write_end)
stored = 0
while True:
    got = os.read(read_end, 8)
    if not got:
        break
    stored = int.from_bytes(got, "little")
_, status = os.waitpid(child, 0)
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == 7, f"the child ended with status {status:#x}, not by SIGBUS"
assert stored > 1000, f"only {stored} pages went in"
os.fsync(fd)
other = os.open(path, os.O_RDONLY)
for page in range(stored + 1):
    found = int.from_bytes(os.pread(other, 8, page * PAGE), "little")
    assert found == page, f"page {page} holds {found}"
os.unlink(path)
