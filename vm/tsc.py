# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast this machine's time stamp counter runs.

An emulated CPU has the counter of the real one.  A kernel that boots beside much else measures it wrongly: its clock has
been seen to run 13 times too fast, so that all that waits a while (timeouts, the hung-task check) waited for nothing.
"""
import ctypes
import mmap
import platform
import time

SPAN_S = 0.02
TRIES = 20
# rdtsc; shl $32, %rdx; or %rdx, %rax; ret
RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")


def _now(rdtsc):
    """Nanoseconds and ticks of one moment: of several tries the one that was interrupted least."""
    tries = []
    for _ in range(TRIES):
        before = time.monotonic_ns()
        ticks = rdtsc()
        after = time.monotonic_ns()
        tries.append((after - before, (before + after) // 2, ticks))
    return min(tries)[1:]


def khz():
    """Ticks in a millisecond; 0 if this machine has no such counter, or does not let us look."""
    if platform.machine() != "x86_64":
        return 0
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return 0
    code.write(RDTSC)
    rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    begin_ns, begin = _now(rdtsc)
    time.sleep(SPAN_S)
    end_ns, end = _now(rdtsc)
    return (end - begin) * 1000000 // (end_ns - begin_ns)
