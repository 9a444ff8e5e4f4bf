# SPDX-License-Identifier: GPL-2.0-or-later
"""Direct I/O (O_DIRECT) on the kernel module beside ext4, xfs and btrfs, in a virtual machine.

A file is written in order, then at random places, then read both ways, at last with 32 reads always under way, by
io_submit(2) and by io_uring: with O_DIRECT, nothing of it in memory before.  Told: the time, that of writes also until
all is durable, CPU time, and what is in the page cache afterwards.  Done in the same way as bench/run dbench, which see.

With --throttle 100M the disk is as slow as that.
"""
from common import c_program
from vm_common import DISK_FILESYSTEMS, Group, add_options as add_common_options, measure
from vm_rows import Goal

TITLE = "Direct I/O on the Tux3 kernel module beside ext4, xfs and btrfs"
WAYS = {"write": "writes of 1 MiB in order", "rewrite": "writes of 4 KiB at random", "read": "reads of 1 MiB in order",
        "random": "reads of 4 KiB at random", "aio": "reads of 4 KiB at random, 32 at a time",
        "uring": "the same by io_uring"}
WRITES = ("write", "rewrite")
DURABLE = "durable"


def add_options(parser):
    add_common_options(parser)
    parser.set_defaults(fs=",".join(("tux3", *DISK_FILESYSTEMS)))
    parser.add_argument("--throttle", metavar="BYTES", help="limit the disk to so many bytes per second (100M)")


def prepare(_bench, _groups):
    c_program("direct")
    return {}


def run(args):
    mib, count = (32, 1000) if args.quick else (512, 20000)
    groups = [Group(title, "direct", program="build/bench/direct", way=way, mib=mib, count=count) for way, title in WAYS.items()]
    goals = [Goal(WAYS[way], part, peer, 1.03, False) for way in WAYS for part in ("", DURABLE) for peer in DISK_FILESYSTEMS
             if not part or way in WRITES]
    config = {"file": f"bench/direct.c, {mib} MiB; at random: {count:,} times",
              "disk is limited to": args.throttle or "nothing"}
    return measure(args, groups, config, goals, prepare, TITLE)
