# SPDX-License-Identifier: GPL-2.0-or-later
"""Files filled through a mapping, on the kernel module beside tmpfs, ext4, xfs and btrfs, in a virtual machine.

A file is filled page by page: through a mapping of holes in random order, as databases with mapped files do (and once more
with an msync after each twentieth part), in order, with its blocks allocated before, and by pwrite.  Told: the time until all is
durable, in how many pieces the file lies, and how long it takes to read it from its beginning to its end with nothing in
memory.  Done in the same way as bench/run dbench, which see.

With --throttle 100M the disk is as slow as that.
"""
from common import c_program
from vm_common import DISK_FILESYSTEMS, Group, add_options as add_common_options, measure
from vm_rows import Goal

TITLE = "Files filled through a mapping, on the Tux3 kernel module beside tmpfs, ext4, xfs and btrfs"
WAYS = {"sparse": "stores in random order", "deltas": "stores in random order, 20 msyncs", "ordered": "stores in order",
        "allocated": "stores in random order, blocks allocated before", "pwrite": "pwrites in random order"}
RANDOM = ("sparse", "deltas", "pwrite")
PIECES, COLD = "pieces", "cold read"


def add_options(parser):
    add_common_options(parser)
    parser.add_argument("--throttle", metavar="BYTES", help="limit the disk to so many bytes per second (100M)")
    parser.add_argument("--mib", type=int, metavar="N", help="size of the file (512; 16 with --quick)")


class GoalOfOrder:
    """Filled in this way the file has at most so many times the pieces of one that was filled in order."""

    def __init__(self, title, factor):
        self.title, self.factor = title, factor

    def judge(self, rows):
        text = f"{self.title}: at most {self.factor} x as many pieces as in order"
        mine, ordered = rows.get(self.title, PIECES), rows.get(WAYS["ordered"], PIECES)
        if not mine or not ordered or "tux3" not in mine.samples or "tux3" not in ordered.samples:
            return text, None
        ratio = mine.median("tux3") / ordered.median("tux3")
        return f"{text}; measured {ratio:.2f} x ({mine.median('tux3'):.0f} beside {ordered.median('tux3'):.0f})", ratio <= self.factor


def prepare(_bench, _groups):
    c_program("mmap")
    return {}


def run(args):
    mib = args.mib or (16 if args.quick else 512)
    groups = [Group(title, "mmap", program="build/bench/mmap", way=way, mib=mib) for way, title in WAYS.items()]
    goals = [Goal(title, "", peer, 1.03, False) for title in WAYS.values() for peer in DISK_FILESYSTEMS]
    goals += [GoalOfOrder(WAYS[way], 1.2) for way in RANDOM]
    goals += [Goal(title, COLD, "xfs", 1.2, False) for title in WAYS.values()]
    config = {"file": f"bench/mmap.c, {mib} MiB; a store of 4 bytes to each page, or a pwrite of all of it",
              "disk is limited to": args.throttle or "nothing"}
    return measure(args, groups, config, goals, prepare, TITLE)
