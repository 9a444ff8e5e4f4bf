# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel module's fsync beside that of tmpfs, ext4, xfs and btrfs, in a virtual machine: time, bios and flushes.

Each operation writes 4 KiB and calls fsync: to a new file, or over a block of a file that has all its blocks; one
process, and four at once.  Done in the same way as bench/run dbench, which see.
"""
from common import c_program
from vm_common import DISK_FILESYSTEMS, Group, add_options, measure
from vm_rows import Goal

TITLE = "fsync of the Tux3 kernel module beside tmpfs, ext4, xfs and btrfs"

__all__ = ["add_options", "run"]


def group(kind, processes, count):
    title = f"4 KiB {'new file' if kind == 'new' else kind} + fsync" + (f", {processes} processes" * (processes > 1))
    return Group(title, "fsync", program="build/bench/fsync", kind=kind, count=count, processes=processes)


def prepare(_bench, _groups):
    c_program("fsync")
    return {}


def run(args):
    count = 50 if args.quick else 1000
    groups = [group(kind, processes, count) for processes in (1, 4) for kind in ("new", "overwrite")]
    goals = [Goal(each.title, "", peer, 1, False) for each in groups for peer in DISK_FILESYSTEMS]
    config = {"fsync": f"bench/fsync.c, {count} operations in each process; the mean; counts per operation"}
    return measure(args, groups, config, goals, prepare, TITLE)
