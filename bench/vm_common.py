# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benchmarks in the virtual machine share: groups of measurements, options, running them, the report."""
from common import format_value, kept, machine, need, print_config, print_goals, read_text, write_json
from vm_machine import IMAGE_SIZE, Bench, Step
from vm_page import write_page
from vm_rows import Rows, print_group

FILESYSTEMS = ("tux3", "tmpfs", "ext4", "xfs", "btrfs")
DISK_FILESYSTEMS = ("ext4", "xfs", "btrfs")
# Made by a newer mkfs.xfs than that of the guest.
XFS_WITHOUT_AND_WITH_PARENTS = ("xfs-parent0", "xfs-parent1")
BUSY_LOAD = 0.7


class Group:
    """A measurement with its parameters, and the title of what comes out."""

    def __init__(self, title, measurement, limit_s=300, **params):
        self.title, self.measurement, self.limit_s, self.params = title, measurement, limit_s, params


# ---- command line ----

def add_options(parser):
    parser.add_argument("--rounds", type=int, metavar="N", help="how often all is done (3; 1 with --quick)")
    parser.add_argument("--only", metavar="WORD", action="append",
                        help="only what has this in its name (may be repeated); --list shows the names")
    parser.add_argument("--list", action="store_true", help="print the names of the measurements, and end")
    parser.add_argument("--fs", metavar="LIST", default=",".join(FILESYSTEMS),
                        help="filesystems, separated by commas (%(default)s)")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots there; needs python3-matplotlib")
    parser.add_argument("--memory", type=int, default=4096, metavar="MB", help="of the machine (%(default)s)")
    parser.add_argument("--cpus", type=int, default=2, metavar="N", help="of the machine (%(default)s)")


def chosen_groups(groups, words):
    if not words:
        return groups
    chosen = [group for group in groups if any(word.lower() in group.title.lower() for word in words)]
    if not chosen:
        raise RuntimeError("nothing has " + " or ".join(f'"{word}"' for word in words) + " in its name: see --list")
    return chosen


def chosen_names(text):
    names = text.split(",")
    for name in names:
        if name not in (*FILESYSTEMS, *XFS_WITHOUT_AND_WITH_PARENTS):
            raise RuntimeError(f"there is no file system \"{name}\" here: {', '.join((*FILESYSTEMS, *XFS_WITHOUT_AND_WITH_PARENTS))}")
    return names


def plan(groups, names, rounds):
    """Steps in the order in which they are done: rotated and, every other round, backwards."""
    steps = []
    for number in range(rounds):
        for place, group in enumerate(groups):
            first = (number + place) % len(names)
            order = names[first:] + names[:first]
            steps += [Step(group, name, number, group.limit_s) for name in (order[::-1] if number % 2 else order)]
    return steps


# ---- running ----

class Report:
    """Takes the results as they come."""

    def __init__(self):
        self.rows, self.details = Rows(), []

    def add(self, step, result):
        self.rows.add(step.group, step.fs, step.round, result["figures"])
        self.details.append({"group": step.group.title, "fs": step.fs, "round": step.round + 1, **result["details"]})
        part, unit, _, value = result["figures"][0]
        name = ": ".join(filter(None, (step.group.title, part)))
        print(f"  {name:39} {step.fs:11} {format_value(value):>9} {unit}", flush=True)


def measure(args, groups, config, goals, prepare, title, image_size=IMAGE_SIZE):
    """All of a benchmark but what it measures.

    config: settings to print.  prepare(bench, groups): makes its input and returns more settings.
    """
    if args.list:
        print("\n".join(group.title for group in groups))
        return 0
    need(programs=["tar"], modules=["matplotlib"] if args.html else [])
    names = chosen_names(args.fs)
    args.rounds = args.rounds or (1 if args.quick else 3)
    groups = chosen_groups(groups, args.only)
    report = Report()
    bench = Bench(args, names, report.add, image_size)
    try:
        config = {**machine(), **config, **bench.describe(), **prepare(bench, groups)}
        bench.add_programs()
        print_config(config)
        if float(config["load average at start"]) > BUSY_LOAD:
            print("Something else keeps this computer busy: the times will not be worth much.\n")
        with kept(args.json, config, report.rows.all):
            bench.run(plan(groups, names, args.rounds))
    finally:
        bench.close()
    print("\nSettings of the virtual machine, and mount options as its kernel shows them:")
    in_guest = {**bench.settings, **{f"{name} mounted": line for name, line in bench.mounted.items()}}
    in_guest["load average at end"] = read_text("/proc/loadavg").split()[0]
    print_config(in_guest)
    config.update(in_guest)
    return conclude(args, report, config, [group.title for group in groups], goals, bench.troubles, names, title)


def conclude(args, report, config, titles, goals, troubles, names, title):
    rows, latencies = report.rows, 0
    shown = [name for name in names if any(name in figure.samples for figure in rows.all())]
    for name in titles:
        if figures := rows.of_group(name):
            print(f"-- {name}")
            print_group(figures, shown, with_latency=not latencies)
            latencies += any(figure.is_latency() for figure in figures)
    if "tux3" in shown:
        print("\"/tmpfs\": tux3's figure divided by tmpfs's, the median of the rounds.")
    if latencies > 1:
        print("Latencies of single operations are printed for the first dbench; --json and --html have all.")
    print()
    if args.quick or "tux3" not in names:
        why = "a quick run shows only that everything works" if args.quick else "tux3 is not in it"
        print(f"No goals are judged: {why}.\n")
        judged = []
    else:
        judged = [goal.judge(rows) for goal in goals if goal.title in titles]
    judged += [(trouble, False) for trouble in troubles]
    write_json(args.json, config, rows.all(), judged, details=report.details)
    if args.html:
        write_page(args.html, title, config, titles, rows, judged, shown)
    return 0 if not judged or print_goals(judged) else 1
