# SPDX-License-Identifier: GPL-2.0-or-later
"""Latency of create, 4 KiB write, rename and unlink while a 1 GiB delta commits to a disk limited to 100 MB/s.

The same process (bench/latency.c, on libtux3) first measures them while nothing commits.  The image is in a
file; libtux3 slows its writes down to the given rate.  Goal: p99.9 stays under 3 times its idle value.
"""
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from common import (ROOT, Row, c_program, describe_directory, kept, machine, print_config, print_goals, print_table,
                    run as execute, write_json)

OPERATIONS = ("create", "write", "rename", "unlink")
PERCENTILES = ("p50", "p99", "p99.9", "max")
LIMIT = 3


def add_options(parser):
    parser.add_argument("--mib", type=int, help="size of the delta (1024; 64 with --quick)")
    parser.add_argument("--rate", type=int, default=100, help="MB/s the disk is limited to (%(default)s)")
    parser.add_argument("--rounds", type=int, help="(3; 1 with --quick)")
    parser.add_argument("--dir", metavar="DIR", default=ROOT / "build", help="where the image is (%(default)s)")


def one_round(image, mib, rate):
    """{(phase, operation): {percentile: microseconds}}, seconds, deltas"""
    figures, seconds, deltas = {}, 0, 0
    for line in execute([c_program("latency"), image, mib, rate]).splitlines():
        fields = line.split()
        if fields[0] == "commit":
            seconds, deltas = float(fields[1]), int(fields[2])
        elif fields[0] in ("idle", "committing"):
            figures[fields[0], fields[1]] = dict(zip(PERCENTILES, (int(ns) / 1000 for ns in fields[3:])))
    return figures, seconds, deltas


def print_round(figures, seconds, deltas, mib):
    print(f"{mib} MiB committed in {seconds:.1f} s as {deltas} delta{'' if deltas == 1 else 's'}; microseconds:")
    lines = []
    for operation in OPERATIONS:
        idle, busy = figures["idle", operation], figures["committing", operation]
        lines.append([operation, *(f"{idle[p]:.1f}" for p in PERCENTILES), *(f"{busy[p]:.1f}" for p in PERCENTILES),
                      f"{busy['p99.9'] / idle['p99.9']:.2f}"])
    print_table(["operation", *(f"idle {p}" for p in PERCENTILES), *(f"busy {p}" for p in PERCENTILES), "p99.9 ratio"],
                lines)


def run(args):
    mib = args.mib or (64 if args.quick else 1024)
    rounds = args.rounds or (1 if args.quick else 3)
    config = machine()
    config["image file"] = describe_directory(args.dir)
    config["delta"] = f"{mib} MiB in one file, disk limited to {args.rate} MB/s by libtux3, default I/O method"
    config["measured"] = f"each operation once per millisecond: 10 s idle, then while it commits; {rounds} rounds"
    print_config(config)
    c_program("latency")
    ratios, rows, one_delta = {op: [] for op in OPERATIONS}, {}, True
    with kept(args.json, config, lambda: list(rows.values())), \
            TemporaryDirectory(prefix="bench-latency-", dir=args.dir) as work:
        for _ in range(rounds):
            figures, seconds, deltas = one_round(Path(work) / "latency.img", mib, args.rate)
            print_round(figures, seconds, deltas, mib)
            one_delta = one_delta and deltas == 1
            for (phase, operation), values in figures.items():
                for percentile, value in values.items():
                    name = f"{operation} {percentile}"
                    rows.setdefault(name, Row(name, "us", "lower")).add(phase, value)
            for operation in OPERATIONS:
                busy, idle = figures["committing", operation], figures["idle", operation]
                ratios[operation].append(busy["p99.9"] / idle["p99.9"])
    goals = [(f"{op}: p99.9 under {LIMIT}x its idle value (median of rounds {statistics.median(ratios[op]):.2f}x)",
              statistics.median(ratios[op]) < LIMIT) for op in OPERATIONS]
    goals.append(("all of it committed as one delta", one_delta))
    if args.quick:
        print("This was a quick run: it shows that everything works, and no goals are judged by it.")
        goals = []
    write_json(args.json, config, list(rows.values()), goals)
    return 0 if not goals or print_goals(goals) else 1
