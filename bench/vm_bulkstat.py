# SPDX-License-Identifier: GPL-2.0-or-later
"""All inodes of a volume by bulkstat, of the kernel module beside xfs, in a virtual machine.

The same program asks both, by the ioctl of XFS (bench/bulkstat.c): cold, just mounted with nothing in memory; then again; and
right after the files were made, when their inodes are in memory.  Told: the time, what was read of the disk, and CPU
time.  Done in the same way as bench/run dbench, which see.
"""
from common import c_program
from vm_common import Group, add_options as add_common_options, measure
from vm_rows import Goal

TITLE = "bulkstat of the Tux3 kernel module beside xfs"
WANTED = 1024


def add_options(parser):
    add_common_options(parser)
    parser.set_defaults(fs="tux3,xfs")
    parser.add_argument("--files", type=int, metavar="N", help="(100,000; 5,000 with --quick)")


def prepare(_bench, _groups):
    c_program("bulkstat")
    c_program("names")
    return {}


def run(args):
    files = args.files or (5000 if args.quick else 100000)
    groups = [Group(f"bulkstat, {what}", "bulkstat", names="build/bench/names", bulkstat="build/bench/bulkstat",
                    files=files, directories=100, bytes=size, wanted=WANTED) for size, what in ((0, "empty files"), (4096, "files of 4 KiB"))]
    goals = [Goal(group.title, part, "xfs", 1, False) for group in groups for part in ("cold", "again")]
    config = {"bulkstat": f"bench/bulkstat.c, {files:,} files in 100 directories, {WANTED:,} inodes with each call"}
    return measure(args, groups, config, goals, prepare, TITLE)
