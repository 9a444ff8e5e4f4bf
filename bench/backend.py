# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast the back end is while the front end never stops: a million creates, their unlinks, random overwrites.

One thread calls libtux3 (bench/backend.c), the volume's own thread commits; the image is in memory.  CPU time is
told apart: the front end is the thread that calls, the back end all others of the process.  Time ends when
everything is durable.  With --against another tree, built there, is measured in turns with this one, and the
table has the ratios; then the goal is judged, too.
"""
import os
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from common import (ROOT, Row, describe_directory, embedding_program, kept, machine, need, print_config, print_goals,
                    print_table, read_text, run as execute, write_json)

PHASES = ("create", "unlink", "overwrite")
COUNTS = ("enter_waits", "deltas", "data_blocks", "log_blocks", "node_blocks", "flushes", "records", "unifies")
FIGURES = (("operations per second", "1/s", "higher"), ("front end", "us/op", "lower"), ("back end", "us/op", "lower"))
GOAL = 2.5
WRITTEN = ("data_blocks", "log_blocks", "node_blocks")


def add_options(parser):
    parser.add_argument("--files", type=int, help="made, then removed (1,000,000; 20,000 with --quick)")
    parser.add_argument("--directories", type=int, default=100, help="in so many, one after the other (%(default)s)")
    parser.add_argument("--mib", type=int, help="size of the file that is overwritten (1024; 32 with --quick)")
    parser.add_argument("--overwrites", type=int, help="of 4 KiB (500,000; 20,000 with --quick)")
    parser.add_argument("--rounds", type=int, help="(3; 1 with --quick)")
    parser.add_argument("--against", metavar="TREE", help="another tree of sources, built, for instance of the parent commit")
    parser.add_argument("--dir", metavar="DIR", default="/dev/shm", help="where the image is (%(default)s)")


def build(tree, out):
    """bench/backend.c of this tree with the library of that one."""
    return embedding_program("backend", tree / "build/libtux3.a", tree / "user/lib", out)


def measure(command, image, sizes):
    """{phase: {figure or counter: value}}"""
    figures = {}
    try:
        for line in execute([command, image, *sizes]).splitlines():
            phase, operations, seconds, front, back, *counts = line.split()
            operations = int(operations)
            figures[phase] = {"operations": operations, FIGURES[0][0]: operations / float(seconds),
                              FIGURES[1][0]: float(front) / operations * 1e6,
                              FIGURES[2][0]: float(back) / operations * 1e6, **dict(zip(COUNTS, map(int, counts)))}
    finally:
        Path(image).unlink(missing_ok=True)
    return figures


def commit_of(tree):
    return execute(["git", "-C", tree, "describe", "--always", "--dirty"], check=False).strip()


class Results:
    def __init__(self):
        self.rows, self.counts = {}, {}

    def add(self, who, figures):
        for phase, values in figures.items():
            for name, unit, better in FIGURES:
                self.rows.setdefault((phase, name), Row(f"{phase}, {name}", unit, better)).add(who, values[name])
            self.counts[phase, who] = values

    def ratio(self, phase, name):
        """Median of the rounds, each beside the other build's in the same round; above 1 is better."""
        row = self.rows[phase, name]
        pairs = zip(row.samples["this"], row.samples["that"])
        return statistics.median(a / b if row.better == "higher" else b / a for a, b in pairs)

    def print(self, builds):
        lines = []
        for (phase, name), row in self.rows.items():
            line = [f"{phase}, {name}, {row.unit}"]
            for who in builds:
                line += [f"{row.median(who):,.2f}" if row.unit == "us/op" else f"{row.median(who):,.0f}",
                         f"{row.spread(who):.0f} %"]
            lines.append(line + ([f"{self.ratio(phase, name):.2f}"] if "that" in builds else []))
        print_table(["median", *(word for who in builds for word in (who, "+-")),
                     *(["ratio"] if "that" in builds else [])], lines)
        lines = [[f"{phase}, {who}", *(f"{counts[name] / counts['operations']:.4f}" if name in (*WRITTEN, "records")
                                       else f"{counts[name]:,}" for name in COUNTS)]
                 for (phase, who), counts in self.counts.items()]
        print("The last round; blocks and records for each operation, the others in all:")
        print_table(["", *COUNTS], lines)


def goals_of(results, builds):
    if "that" not in builds:
        return []
    return [(f"{phase}: {GOAL} times the operations per second of the other build "
             f"({results.ratio(phase, FIGURES[0][0]):.2f})", results.ratio(phase, FIGURES[0][0]) >= GOAL) for phase in PHASES]


def run(args):
    need(programs=("cc",))
    sizes = (args.files or (20000 if args.quick else 1000000), args.directories, args.mib or (32 if args.quick else 1024),
             args.overwrites or (20000 if args.quick else 500000))
    rounds = args.rounds or (1 if args.quick else 3)
    trees = {"this": ROOT} | ({"that": Path(args.against).resolve()} if args.against else {})
    config = machine()
    for who, tree in trees.items():
        config[f"{who}"] = f"{tree}, commit {commit_of(tree)}"
    config["CPUs of this process"] = len(os.sched_getaffinity(0))
    config["image file"] = f"{describe_directory(args.dir)}, 16 GiB, sparse"
    config["volume"] = "default options of libtux3, checksums of data, its own thread commits"
    config["create, unlink"] = f"{sizes[0]:,} empty files, {sizes[1]} directories, by one thread"
    config["overwrite"] = f"{sizes[3]:,} x 4 KiB at random places of a file of {sizes[2]} MiB, by one thread"
    config["rounds"] = f"{rounds}, the builds in turns, each in a process of its own"
    print_config(config)
    results = Results()
    with kept(args.json, config, lambda: list(results.rows.values())), \
            TemporaryDirectory(prefix="bench-backend-", dir=args.dir) as work:
        for tree in trees.values():
            if not (tree / "build/libtux3.a").exists():
                raise RuntimeError(f"{tree}/build/libtux3.a is not there: run make there first")
        programs = {who: build(tree, Path(work) / who) for who, tree in trees.items()}
        for number in range(rounds):
            order = list(programs) if number % 2 == 0 else list(reversed(programs))
            for who in order:
                results.add(who, measure(programs[who], Path(work) / "image", sizes))
                print(f"round {number + 1} of {rounds}, {who}: load {read_text('/proc/loadavg').split()[0]}", flush=True)
    print()
    results.print(list(trees))
    goals = goals_of(results, trees)
    if args.quick:
        print("This was a quick run: it shows that everything works, and no goals are judged by it.")
        goals = []
    write_json(args.json, config, list(results.rows.values()), goals)
    return 0 if not goals or print_goals(goals) else 1
