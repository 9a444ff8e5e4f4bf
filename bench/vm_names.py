# SPDX-License-Identifier: GPL-2.0-or-later
"""Creates, bulkstat, unlinks and a maildir, of the kernel module beside xfs with and without parent pointers, ext4 and btrfs.

What bench/run parents measures, by the same phases, but in a virtual machine and beside the others: tux3, which has parent
pointers always, is to be ahead of xfs, with them and without.  Both are made by the same mkfs.xfs, which is newer than
the guest's own.  One process works (bench/names.c); times end when everything is durable, by sync.  "Cold": just mounted,
with nothing in memory.  bulkstat is for those that have it.

CPU time: the front end is the process with its system calls, the back end all kernel threads of the machine and the caller
of sync; "in all" is both.  Done in the same way as bench/run dbench, which see.
"""
from common import c_program
from vm_common import XFS_WITHOUT_AND_WITH_PARENTS, Group, add_options as add_common_options, measure
from vm_rows import Goal

TITLE = "Names and parents: the Tux3 kernel module beside xfs with and without parent pointers, ext4 and btrfs"
WANTED = 1024
DIRECTORIES = 100
PHASES = {"empty files": ("create", "bulkstat warm", "bulkstat cold", "unlink cold", "unlink warm"), "maildir": ("deliver", "remove")}


def add_options(parser):
    add_common_options(parser)
    parser.set_defaults(fs=",".join(("tux3", *XFS_WITHOUT_AND_WITH_PARENTS, "ext4", "btrfs")))
    parser.add_argument("--files", type=int, metavar="N", help="made, listed, removed (100,000; 2,000 with --quick)")
    parser.add_argument("--mails", type=int, metavar="N", help="of 16 KiB (10,000; 200 with --quick)")


def prepare(_bench, _groups):
    c_program("names")
    c_program("bulkstat")
    return {}


def run(args):
    files = args.files or (2000 if args.quick else 100000)
    mails = args.mails or (200 if args.quick else 10000)
    names = "build/bench/names"
    groups = [Group("empty files", "names", 900, names=names, bulkstat="build/bench/bulkstat", files=files, directories=DIRECTORIES,
                    bytes=0, wanted=WANTED, with_bulkstat=["tux3", "xfs"]),
              Group("maildir", "maildir", 900, names=names, mails=mails)]
    goals = [Goal(title, part, peer, 1, False) for title, phases in PHASES.items() for phase in phases
             for part in (phase, f"{phase}: CPU in all") for peer in XFS_WITHOUT_AND_WITH_PARENTS]
    config = {"create, unlink": f"bench/names.c, {files:,} empty files in {DIRECTORIES} directories, one after the other; unlink warm: of "
                                "files that were just made, once more",
              "bulkstat": f"bench/bulkstat.c, {files + DIRECTORIES + 1:,} inodes, {WANTED:,} with each call; warm: right after create and sync; "
                          "its front end is the calls alone",
              "deliver, remove": f"bench/names.c, {mails:,} files of 16 KiB, made in tmp, written in pieces of 778 bytes, renamed to new",
              "xfs-parent0, xfs-parent1": "mkfs.xfs -n parent=0 and 1"}
    return measure(args, groups, config, goals, prepare, TITLE)
