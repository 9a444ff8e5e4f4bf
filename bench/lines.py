# SPDX-License-Identifier: GPL-2.0-or-later
"""How many cache lines do all CPUs write in one operation of the front end?

Two threads on two CPUs, each in a directory of its own (bench/lines.c).  A line that both write goes from one CPU's cache to the
other's each time, and is what limits many of them.  Counted, not timed: libtux3 is compiled with gcc's instrumentation for
ThreadSanitizer, and the functions that this calls take note.  What libc does and the stack are not seen.

The goal is at most one such line in each operation.  Those that a table spreads over (locks of hash buckets: each written by few
operations) are in the sum, and not in the list.
"""
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from common import (ROOT, Row, embedding_program, machine, need, print_config, print_goals, print_table, run as execute,
                    write_json)

GOAL = 1.0
LISTED = 100		# lines that so many of 1,000 operations write are named
OUT = ROOT / "build/lines"


def add_options(parser):
    parser.add_argument("--operations", type=int, help="of each kind, by each thread (5,000; 1,000 with --quick)")
    parser.add_argument("--dir", metavar="DIR", default="/dev/shm", help="where the image is (%(default)s)")


def build():
    OUT.mkdir(parents=True, exist_ok=True)
    execute(["make", "-C", ROOT, "--no-print-directory", f"-j{os.cpu_count()}", "VARIANT=lines", "build/lines/libtux3.a"])
    return embedding_program("lines", OUT / "libtux3.a", ROOT / "user/lib", OUT / "lines", "-g")


def places(program, addresses):
    """{address: the functions that wrote, the innermost first, as far as they are not of user/env/}"""
    found = {}
    for address in addresses:
        lines = execute(["addr2line", "-fie", program, address]).split("\n")
        calls = [(lines[i], lines[i + 1]) for i in range(0, len(lines) - 1, 2)]
        ours = [f"{function} ({Path(where).name.split(' ')[0]})" for function, where in calls if "user/env/" not in where]
        found[address] = " < ".join(ours[:2]) or calls[0][0]
    return found


def measure(program, image, operations):
    """[(name, lines written by an operation, [(share of the operations that wrote it in thousandths, from where)])]"""
    rows = []
    for line in execute([program, image, operations]).splitlines():
        words = line.split()
        if line.startswith(" "):
            rows[-1][2].append((int(words[1]), words[2]))
        else:
            rows.append((words[0], float(words[1]), []))
    return rows


def run(args):
    need(programs=("cc", "make", "addr2line"))
    if len(os.sched_getaffinity(0)) < 2:
        raise RuntimeError("it takes two CPUs")
    operations = args.operations or (1000 if args.quick else 5000)
    config = machine()
    config["threads"] = "2, on CPU 0 and 1, one after the other; each in a directory of its own"
    config["operations"] = f"{operations:,} of each kind by each thread, after as many that do not count"
    config["volume"] = "4 GiB, sparse, default options but age=1h and dirty=1G: no commit in between but where said"
    config["library"] = "gcc -O2 -fsanitize=thread, accesses noted by bench/lines.c"
    print_config(config)
    program = build()
    with TemporaryDirectory(prefix="bench-lines-", dir=args.dir) as work:
        rows = measure(program, Path(work) / "image", operations)
    names = places(program, sorted({where for _, _, lines in rows for share, where in lines if share >= LISTED}))
    table, results, goals = [], [], []
    for name, written, lines in rows:
        shared = sum(share for share, _ in lines) / 1000
        hot = sorted((entry for entry in lines if entry[0] >= LISTED), reverse=True)
        often = sum(share for share, _ in hot) / 1000
        table.append([name, f"{written:.1f}", f"{often:.2f}", f"{shared - often:.2f}",
                      "; ".join(f"{share / 1000:.2f} {names[where]}" for share, where in hot)])
        results.append(Row(f"{name}, lines that all CPUs write", "lines/op", "lower"))
        results[-1].add("tux3", often)
        goals.append((f"{name}: at most {GOAL:.0f} line that all CPUs write ({often:.2f})", often <= GOAL))
    print_table(["operation", "lines written", "by all CPUs", "spread", "which"], table)
    write_json(args.json, config, results, goals)
    return 0 if print_goals(goals) else 1
