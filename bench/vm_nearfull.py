# SPDX-License-Identifier: GPL-2.0-or-later
"""Work on a volume that gets full, on the kernel module beside ext4, xfs and btrfs, in a virtual machine.

A volume of 1 GiB is filled by one file until statfs says that so much is left.  Then: dd of 200 MiB (far from full, into what is
nearly full afterwards, and into what is too small for it), dd of 20 MiB into the last of it, trees that are unpacked, a tree
unpacked into a full volume (the time to fail), and 1,000 tasks that write 40 KiB each in pieces of 1 KiB, ten times over.
Told: the time with and without a sync at the end, and which commands were refused though there was room.  Done in the same
way as bench/run dbench, which see.
"""
import tarfile

from common import c_program
from vm_common import DISK_FILESYSTEMS, Group, add_options as add_common_options, measure
from vm_dbench import prepare_tree
from vm_rows import Goal

TITLE = "A volume that gets full: the Tux3 kernel module beside ext4, xfs and btrfs"
VOLUME = 1 << 30
FAR, NEAR = "far from full", "getting full"
TASK_BYTES = 40 << 10
FULL = 99       # percent in use from which on a refusal is none too early


class GoalOfWork(Goal):
    """
    As Goal, beside those who did the work: a peer that refused more commands than tux3, or was refused one and wrote less
    than half of what tux3 wrote, ended early.  That is no time to compare with, whatever room it had.
    """

    def __init__(self, title, part, peer):
        super().__init__(title, part, peer, 1.03, False)

    def early(self, rows):
        """Numbers of the rounds in which the peer ended early."""
        refused, written = rows.get(self.title, "refused"), rows.get(self.title, "written")

        def of(figure, who, number):
            return figure.rounds.get(who, {}).get(number, 0) if figure else 0

        rounds = refused.rounds.get(self.peer, {}) if refused else {}
        return {n for n, count in rounds.items() if count > of(refused, "tux3", n) or
                count and of(written, self.peer, n) < of(written, "tux3", n) / 2}

    def judge(self, rows):
        early = self.early(rows)
        figure = rows.get(self.title, self.part)
        if not early or not figure:
            return super().judge(rows)
        if all(n in early for n in figure.rounds.get(self.peer, {})):
            return f"{self.title}: {self.part}: {self.peer} was refused before it had done as much", None
        text, met = self.judge_figure(figure.without(early))
        return f"{text}; {len(early)} rounds without, in which {self.peer} was refused", met


class GoalOfRefusals:
    """Nothing is refused before the volume is full."""

    def __init__(self, title):
        self.title = title

    def judge(self, rows):
        text = f"{self.title}: nothing refused below {FULL} % in use"
        refused, used = rows.get(self.title, "refused"), rows.get(self.title, "in use at the end")
        if not refused or "tux3" not in refused.samples:
            return text, None
        worst = [(n, used.rounds["tux3"][n]) for n, count in refused.rounds["tux3"].items() if count]
        return f"{text}; refused in {len(worst)} rounds", all(percent >= FULL for _, percent in worst)


class GoalOfDistance:
    """It takes at most so many times as long as far from full."""

    def __init__(self, title, far, factor):
        self.title, self.far, self.factor = title, far, factor

    def judge(self, rows):
        text = f"{self.title}: at most {self.factor} x as long as {FAR}"
        mine, far = rows.get(self.title, "and sync"), rows.get(self.far, "and sync")
        if not mine or not far or "tux3" not in mine.samples or "tux3" not in far.samples:
            return text, None
        ratio = mine.median("tux3") / far.median("tux3")
        return f"{text}; measured {ratio:.2f} x", ratio <= self.factor


def tree_bytes(tar):
    with tarfile.open(tar) as archive:
        return sum((member.size + 4095) & ~4095 for member in archive)


def add_options(parser):
    add_common_options(parser)
    parser.set_defaults(fs=",".join(("tux3", *DISK_FILESYSTEMS)))


def all_groups(quick):
    scale = 10 if quick else 1
    dd, small, tasks, rounds = 200 // scale, 20 // scale, 1000 // scale, 10 // (5 if quick else 1)
    dd_far, dd_near, small_near = f"dd, {dd} MiB, {FAR}", f"dd, {dd} MiB, {NEAR}", f"dd, {small} MiB, nearly full"
    tree_far, tree_near = f"untar, {FAR}", f"untar, {NEAR}"
    task_far, task_near = (f"{tasks:,} tasks, {where}" for where in (FAR, NEAR))
    program = {"program": "build/bench/nearfull", "bytes": TASK_BYTES, "rounds": rounds, "tasks": tasks}
    # What is left: as much as goes in, and a twentieth; the trees' is known when they are there.
    groups = [
        Group(dd_far, "nearly full", left=None, dd=dd),
        Group(dd_near, "nearly full", left=dd + dd // 20, dd=dd),
        Group(f"dd, {dd} MiB, too large", "nearly full", left=dd - dd // 20, dd=dd),
        Group(small_near, "nearly full", left=small + small // 4, dd=small),
        Group(tree_far, "nearly full", 900, left=None, copies=2 if quick else 6),
        Group(tree_near, "nearly full", 900, left=0, copies=2 if quick else 6),
        Group("untar, full", "nearly full", 900, left=0, copies=1),
        Group(task_far, "nearly full", 900, left=None, **program),
        Group(task_near, "nearly full", 900, left=tasks * TASK_BYTES * 3 // 2 >> 20, **program),
    ]
    goals = [GoalOfWork(group.title, "and sync", peer) for group in groups for peer in DISK_FILESYSTEMS]
    goals += [GoalOfRefusals(group.title) for group in groups if group.title not in (groups[2].title, groups[6].title)]
    goals += [GoalOfDistance(near, far, 1.1) for near, far in ((dd_near, dd_far), (tree_near, tree_far), (task_near, task_far))]
    return groups, goals


def run(args):
    groups, goals = all_groups(args.quick)
    config = {"volume": f"{VOLUME >> 20} MiB; filled by one file of zeros, then sync, until statfs says what is left for root",
              "left": "; ".join(f"{group.title}: {group.params['left']} MiB" for group in groups if group.params["left"]),
              "tasks": f"bench/nearfull.c, {TASK_BYTES >> 10} KiB each in pieces of 1 KiB, {groups[-1].params['rounds']} times over"}

    def prepare(bench, chosen):
        c_program("nearfull")
        trees = [group for group in chosen if "copies" in group.params]
        described = {}
        if trees:
            tar, described["tree"] = prepare_tree(trees[0], bench.folder, args.quick)
            bench.copy_in.append(tar)
            whole = tree_bytes(tar)
            for group in trees:
                group.params.update(tar=tar.name)
                if group.title == f"untar, {NEAR}":
                    group.params["left"] = group.params["copies"] * whole * 11 // 10 >> 20
                    described["left for the trees"] = f"{group.params['left']} MiB: their blocks of 4 KiB, and a tenth"
        return described

    return measure(args, groups, config, goals, prepare, TITLE, VOLUME)
