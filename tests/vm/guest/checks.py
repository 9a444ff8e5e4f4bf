# SPDX-License-Identifier: GPL-2.0-or-later
"""For programs whose checks are a line "ok NAME" or "FAILED NAME: why" each."""
import errno

failures = 0


def check(name, got, expected):
    global failures
    if got == expected:
        print(f"ok {name}")
    else:
        failures += 1
        print(f"FAILED {name}: {got!r} instead of {expected!r}")


def fails(call, *args):
    """What it returns, or the name of its error."""
    try:
        return call(*args)
    except OSError as err:
        return errno.errorcode[err.errno]


def status():
    """Of the program."""
    return failures != 0
