# SPDX-License-Identifier: GPL-2.0-or-later
"""Switches FUSE over io_uring on in the kernel, for benchmarks and tests; the last to leave restores what was."""
import contextlib
import fcntl
import os

PARAMETER = "/sys/module/fuse/parameters/enable_uring"
# Who needs it switched on holds a shared lock on this file, which says what it was before.
USERS = "/run/tux3-fuse-io-uring"
MUTEX = USERS + ".lock"


def available():
    """Can it be switched on?"""
    return os.path.exists(PARAMETER) and os.geteuid() == 0


def is_on():
    try:
        with open(PARAMETER) as f:
            return f.read().strip() == "Y"
    except OSError:
        return False


def switch(value):
    with open(PARAMETER, "w") as f:
        f.write(value)


@contextlib.contextmanager
def switched_on():
    """Yields whether it was on before; None: it cannot be had."""
    if not available():
        yield None
        return
    users = open(USERS, "a+")
    with open(MUTEX, "w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        users.seek(0)
        before = users.read() or ("Y" if is_on() else "N")
        users.seek(0)
        users.truncate()
        users.write(before)
        users.flush()
        switch("Y")
    try:
        yield before == "Y"
    finally:
        with open(MUTEX, "w") as mutex:
            fcntl.flock(mutex, fcntl.LOCK_EX)
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                switch(before)
                os.unlink(USERS)
            except BlockingIOError:
                pass
            users.close()
