# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel module's fsync beside that of tmpfs, ext4, xfs and btrfs, in a virtual machine: time, bios and flushes.

Each operation but those of large files writes 4 KiB and calls fsync: to a new file, or over a block of a file that has
all its blocks; one process, four and 16 at once.  And new files beside a load that syncs nothing: an endless stream of
writes, creates, or changes of attributes; what that lost is told, too.  Beside creates also new files with an extended
attribute, as SELinux labels each, files that are written anew (O_TRUNC), and files that are saved: written under
another name and fsynced, renamed over the old one, and the directory fsynced; these beside the stream, too.  And new
files of 1 and 8 MiB, one process and four, and one beside the stream and beside creates.
Done in the same way as bench/run dbench, which see.

With --throttle 100M the disk is as slow as that.
"""
from common import c_program
from vm_common import DISK_FILESYSTEMS, Group, add_options as add_common_options, measure
from vm_rows import Goal

TITLE = "fsync of the Tux3 kernel module beside tmpfs, ext4, xfs and btrfs"
LOADS = {"stream": "a stream of writes", "create": "creates", "chmod": "changes of attributes"}
KINDS = {"new": "new file", "labelled": "new file with a label", "rewritten": "file written anew", "saved": "file saved by rename",
         "overwrite": "overwrite"}
QUIET = "4 KiB new file + fsync"

__all__ = ["add_options", "run"]


def add_options(parser):
    add_common_options(parser)
    parser.add_argument("--throttle", metavar="BYTES", help="limit the disk to so many bytes per second (100M)")


def group(kind, processes, count):
    title = f"4 KiB {KINDS[kind]} + fsync" + (f", {processes} processes" * (processes > 1))
    return Group(title, "fsync", program="build/bench/fsync", kind=kind, count=count, processes=processes, load="")


def group_large(size, processes, count):
    title = f"{size} MiB new file + fsync" + (f", {processes} processes" * (processes > 1))
    return Group(title, "fsync", program="build/bench/fsync", kind=f"large-{size}M", count=count, processes=processes, load="")


def group_beside(load, count, seconds, kind="new"):
    return Group(f"4 KiB {KINDS[kind]} + fsync beside {LOADS[load]}", "fsync", program="build/bench/fsync", kind=kind, count=count,
                 processes=1, load=load, seconds=seconds)


def group_large_beside(size, load, count, seconds):
    return Group(f"{size} MiB new file + fsync beside {LOADS[load]}", "fsync", program="build/bench/fsync", kind=f"large-{size}M",
                 count=count, processes=1, load=load, seconds=seconds)


class GoalOfQuiet:
    """The median beside a load is at most so many times that of a quiet machine."""

    def __init__(self, title, factor):
        self.title, self.factor = title, factor

    def judge(self, rows):
        text = f"{self.title}: the median at most {self.factor} x that of a quiet machine"
        loaded, quiet = rows.get(self.title, "median"), rows.get(QUIET, "median")
        if not loaded or not quiet or "tux3" not in loaded.samples or "tux3" not in quiet.samples:
            return text, None
        ratio = loaded.median("tux3") / quiet.median("tux3")
        return f"{text}; measured {ratio:.2f} x ({loaded.median('tux3'):.2f} beside {quiet.median('tux3'):.2f} ms)", ratio <= self.factor


def goals_of(quiet, large, beside, beside_4k):
    factors = {("new", 1): 0.4, ("new", 4): 0.35, ("new", 16): 0.35}
    goals = [Goal(each.title, "", peer, 1, False) for each in quiet for peer in DISK_FILESYSTEMS if peer != "xfs"]
    goals += [Goal(each.title, "", "xfs", factors.get((each.params["kind"], each.params["processes"]), 0.5), False)
              for each in quiet]
    goals += [Goal(each.title, "", peer, 1, False) for each in large for peer in DISK_FILESYSTEMS]
    goals += [Goal(each.title, "p99", peer, 1, False) for each in beside for peer in DISK_FILESYSTEMS]
    return goals + [GoalOfQuiet(each.title, 2) for each in beside_4k]


def prepare(_bench, _groups):
    c_program("fsync")
    return {}


def run(args):
    count, seconds = (50, 1) if args.quick else (1000, 5)
    quiet = [group(kind, processes, count if processes < 16 else count // 4) for processes in ((1, 4) if args.quick else (1, 4, 16))
             for kind in ("new", "overwrite")]
    large = [group_large(size, processes, count // (10 * size)) for size in ([1] if args.quick else [1, 8])
             for processes in ([4] if args.quick else [1, 4])]
    beside = [group_beside(load, count, seconds) for load in (["create"] if args.quick else LOADS)]
    beside += [group_beside("create", count, seconds, kind) for kind in (["rewritten"] if args.quick else ["labelled", "rewritten", "saved"])]
    beside += [] if args.quick else [group_beside("stream", count, seconds, "saved")]
    large_beside = [] if args.quick else [group_large_beside(size, load, count // (10 * size), seconds)
                                          for load in ("stream", "create") for size in (1, 8)]
    config = {"fsync": f"bench/fsync.c, {count} operations in each process ({count // 4} in each of 16; "
                       f"{count // 10} of 1 MiB, {count // 80} of 8 MiB); the mean; counts per operation",
              "beside a load": f"as many, or what is done in {5 * seconds} s; the load works {2 * seconds} s before, half of it measured",
              "disk is limited to": args.throttle or "nothing"}
    groups = quiet + large + beside + large_beside
    return measure(args, groups, config, goals_of(quiet, large, beside + large_beside, beside), prepare, TITLE)
