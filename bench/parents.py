# SPDX-License-Identifier: GPL-2.0-or-later
"""What parent pointers cost: creates, bulkstat, unlinks, a maildir, beside a build of the same sources without them.

bench/parents.patch, applied to a copy of this tree, takes the parent pointers of all but directories away; the copy's library
is built with the same settings.  One thread calls libtux3 (bench/parents.c), the volume's own thread commits; the image
is in memory.  CPU time is told apart: the front end is the thread that calls, the back end all others of the process.
Time ends when everything is durable.  "Cold": the volume was opened anew, and none of its metadata is in memory.

The ratios are medians over the rounds, each with both builds, in turns: above 0 % is what parent pointers cost.
"""
import os
import shutil
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from backend import commit_of
from common import (BUILD, ROOT, Row, describe_directory, embedding_program, kept, machine, need, print_config, print_goals,
                    print_table, read_text, run as execute, write_json)

PATCH = ROOT / "bench/parents.patch"
PHASES = ("create", "bulkstat-warm", "bulkstat-cold", "unlink-cold", "create-again", "unlink-warm", "deliver", "remove")
COUNTS = ("log_bytes", "deltas", "data_blocks", "log_blocks", "node_blocks", "flushes", "records", "unifies")
FIGURES = ("wall", "front end", "back end")
BUILDS = ("with", "without")
# What they may cost, in percent: of wall time, and of all CPU time.
GOALS = {"create": 3, "bulkstat-warm": 1, "bulkstat-cold": 1, "unlink-cold": 1, "unlink-warm": 1}


def add_options(parser):
    parser.add_argument("--files", type=int, help="made, listed, removed (500,000; 10,000 with --quick)")
    parser.add_argument("--directories", type=int, default=100, help="in so many, one after the other (%(default)s)")
    parser.add_argument("--mails", type=int, help="of 16 KiB (20,000; 500 with --quick)")
    parser.add_argument("--rounds", type=int, help="(7; 1 with --quick)")
    parser.add_argument("--dir", metavar="DIR", default="/dev/shm", help="where the image is (%(default)s)")


def copy_without(tree):
    """This tree without parent pointers of files, its library built."""
    for name in ("core", "user", "linux", "vm", "scripts"):
        shutil.copytree(ROOT / name, tree / name)
    shutil.copy(ROOT / "Makefile", tree)
    print(execute(["patch", "-p1", "--no-backup-if-mismatch", "-d", tree, "-i", PATCH]), end="", flush=True)
    execute(["make", "-s", "-C", tree, f"-j{len(os.sched_getaffinity(0))}", "build/libtux3.a"],
            env={key: value for key, value in os.environ.items() if key not in ("TUX3_BUILD", "MAKEFLAGS", "MFLAGS")})


def build(tree, out):
    return embedding_program("parents", (BUILD if tree == ROOT else tree / "build") / "libtux3.a", tree / "user/lib", out)


def measure(command, image, sizes):
    """{phase: {figure or counter: value}}, figures in us for each operation; and "used": blocks."""
    found = {}
    try:
        for line in execute([command, image, *sizes]).splitlines():
            phase, operations, *times_and_counts = line.split()
            if phase == "used":
                found[phase] = int(operations)
                continue
            times, counts = times_and_counts[:3], times_and_counts[3:]
            found[phase] = {"operations": int(operations), **dict(zip(COUNTS, map(int, counts))),
                            **{name: float(time) / int(operations) * 1e6 for name, time in zip(FIGURES, times)}}
    finally:
        Path(image).unlink(missing_ok=True)
    return found


class Results:
    def __init__(self):
        self.rows, self.counts, self.used = {}, {}, {}

    def add(self, who, found):
        self.used[who] = found["used"]
        for phase in PHASES:
            values = found[phase]
            for name in (*FIGURES, "CPU"):
                value = values[name] if name != "CPU" else values["front end"] + values["back end"]
                self.rows.setdefault((phase, name), Row(f"{phase}, {name}", "us/op", "lower")).add(who, value)
            self.counts[phase, who] = values

    def cost(self, phase, name):
        """Percent: the median of the rounds."""
        samples = self.rows[phase, name].samples
        return statistics.median(100 * (a / b - 1) for a, b in zip(samples["with"], samples["without"]))

    def print(self):
        lines = []
        for (phase, name), row in self.rows.items():
            line = [f"{phase}, {name}, us/op"]
            for who in BUILDS:
                line += [f"{row.median(who):,.3f}", f"{row.spread(who):.0f} %"]
            lines.append(line + [f"{self.cost(phase, name):+.1f} %"])
        print_table(["median", *(word for who in BUILDS for word in (who, "+-")), "cost"], lines)
        lines = [[f"{phase}, {who}", *(f"{counts[name]:,}" for name in COUNTS)] for (phase, who), counts in self.counts.items()]
        print(f"Blocks in use with the empty files: {self.used['with']:,} with, {self.used['without']:,} without.  The last round, in all:")
        print_table(["", *COUNTS], lines)


def check(results):
    """Both builds did the same work, and it is parent pointers that tell them apart."""
    for phase in PHASES:
        a, b = (results.counts[phase, who] for who in BUILDS)
        if a["operations"] != b["operations"]:
            raise RuntimeError(f"{phase}: {a['operations']} and {b['operations']} operations")
    log = [results.counts["create", who]["log_bytes"] / results.counts["create", who]["operations"] for who in BUILDS]
    if abs(log[0] / log[1] - 1) > 0.02:
        raise RuntimeError(f"a create logged {log[0]:.0f} bytes with parent pointers, {log[1]:.0f} without: they are not logged")
    if results.used["with"] <= results.used["without"]:
        raise RuntimeError("the tree is not larger with parent pointers: the patch does nothing")


def goals_of(results):
    goals = []
    for phase, most in GOALS.items():
        for name in ("wall", "CPU"):
            cost = results.cost(phase, name)
            goals.append((f"{phase}: parent pointers cost at most {most} % {name} ({cost:+.1f} %)", cost <= most))
    return goals


def run(args):
    need(programs=("cc", "make", "patch"))
    sizes = (args.files or (10000 if args.quick else 500000), args.directories, args.mails or (500 if args.quick else 20000))
    rounds = args.rounds or (1 if args.quick else 7)
    config = machine()
    config["builds"] = f"{ROOT}, commit {commit_of(ROOT)}; without: the same and bench/parents.patch"
    config["CPUs of this process"] = len(os.sched_getaffinity(0))
    config["image file"] = f"{describe_directory(args.dir)}, 16 GiB, sparse"
    config["volume"] = "default options of libtux3, checksums of data, its own thread commits"
    config["create, unlink"] = f"{sizes[0]:,} empty files, {sizes[1]} directories, by one thread"
    config["bulkstat"] = f"{sizes[0] + sizes[1] + 1:,} inodes, 1,024 with each call; cold: opened anew"
    config["deliver, remove"] = f"{sizes[2]:,} files of 16 KiB, made in tmp, written in pieces of 778 bytes, renamed to new"
    config["rounds"] = f"{rounds}, the builds in turns, each in a process of its own"
    print_config(config)
    results = Results()
    with kept(args.json, config, lambda: list(results.rows.values())), \
            TemporaryDirectory(prefix="bench-parents-", dir=args.dir) as work:
        tree = Path(work) / "tree"
        tree.mkdir()
        copy_without(tree)
        programs = {who: build(source, Path(work) / who) for who, source in zip(BUILDS, (ROOT, tree))}
        for number in range(rounds):
            order = list(programs) if number % 2 == 0 else list(reversed(programs))
            for who in order:
                results.add(who, measure(programs[who], Path(work) / "image", sizes))
                print(f"round {number + 1} of {rounds}, {who}: load {read_text('/proc/loadavg').split()[0]}", flush=True)
    print()
    results.print()
    check(results)
    goals = goals_of(results)
    if args.quick:
        print("This was a quick run: it shows that everything works, and no goals are judged by it.")
        goals = []
    write_json(args.json, config, list(results.rows.values()), goals)
    return 0 if not goals or print_goals(goals) else 1
