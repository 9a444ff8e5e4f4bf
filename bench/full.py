# SPDX-License-Identifier: GPL-2.0-or-later
"""Volumes filled until nothing more goes in: how much that is, and what is still possible then.

Each filesystem is filled, from empty, by one large file, by files of 4 KiB, by empty files, by long names in one directory, by
files with an extended attribute of 800 bytes, and by blocks at random places of sparse files (bench/full.c).  For each: how
much went in, how far what statfs said was available was from what then went in, how long refusals take, and whether a full
volume lets people change attributes, rename, truncate, punch and delete.

Tux3 runs through libtux3, with its own cache and thread; ext4, xfs and btrfs are mounted from loop devices with mkfs's and
mount's defaults, and filled by root.  What a filesystem cannot do at a size (xfs needs 300 MB) is left out, and said.
"""
from pathlib import Path
from tempfile import TemporaryDirectory

from common import (ROOT, Row, c_program, describe_directory, drop_caches, format_value, is_mounted, kept, machine, mount_line,
                    need, need_root, print_config, print_goals, print_table, program, run as execute, sparse_file, write_json)

CASES = {
    "large": "one large file",
    "small": "files of 4 KiB",
    "empty": "empty files",
    "names": "names of 200 bytes in one directory",
    "values": "files with an xattr of 800 bytes",
    "sparse": "blocks at random places of 16 sparse files",
}
SIZES = {"64M": 64 << 20, "300M": 300 << 20, "1G": 1 << 30}
MANY = ("empty", "names")       # so many that only the smallest volume is filled with them
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
# What bench/full.c says: name there, row here, unit, what is better, which cases.
FIGURES = (
    ("payload_first", "data in it at the first ENOSPC", "% of the volume", "higher", ("large", "small", "values", "sparse")),
    ("payload_end", "data in it when all fails", "% of the volume", "higher", ("large", "small", "values", "sparse")),
    ("units_end", "how many", "", "higher", ("small", "empty", "names", "values")),
    ("left_end", "free then, by statfs", "% of the volume", "lower", tuple(CASES)),
    ("available_off", "available was wrong by at most", "% of the volume", "lower", ("large", "small", "sparse")),
    ("seconds", "time to fill it", "s", "lower", tuple(CASES)),
    ("refused_write_us", "a refused write", "us", "lower", ("large",)),
    ("refused_mkdir_us", "a refused mkdir", "us", "lower", ("large", "empty")),
    ("refused_operations", "refused of 13 changes that need no room", "", "lower", tuple(CASES)),
)


def add_options(parser):
    parser.add_argument("--case", action="append", choices=CASES, help="only this (may be repeated)")
    parser.add_argument("--size", action="append", choices=SIZES, help="only this (may be repeated)")
    parser.add_argument("--rounds", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--only", metavar="NAME,...", help=f"of tux3,{','.join(MKFS)}")
    parser.add_argument("--dir", metavar="DIR", default=ROOT / "build", help="where the images are (%(default)s)")


def fill(case, place, size):
    """What bench/full.c says, by name; and the messages between."""
    figures = {}
    for line in execute([c_program("full"), case, place, size]).splitlines():
        words = line.split()
        if len(words) == 2:
            figures[words[0]] = float(words[1])
        else:
            print(f"    {line}", flush=True)
    return figures


class Tux3:
    @staticmethod
    def describe():
        return "mkfs.tux3 -q -f; libtux3 with default options"

    @staticmethod
    def measure(case, image, size):
        execute([program("mkfs.tux3"), "-q", "-f", image])
        return fill(case, image, size)


class Mounted:
    def __init__(self, name, mnt):
        self.name, self.mnt, self.options = name, mnt, "not mounted"

    def describe(self):
        return f"{' '.join(MKFS[self.name])}; mount: {self.options}"

    def measure(self, case, image, size):
        """None: it cannot be so small."""
        try:
            execute([*MKFS[self.name], image])
            execute(["mount", "-t", self.name, "-o", "loop", image, self.mnt])
        except RuntimeError as e:
            print(f"    cannot be made, or mounted: {' '.join(str(e).split())[:150]}", flush=True)
            return None
        try:
            self.options = mount_line(self.mnt)
            return fill(case, self.mnt, size)
        finally:
            execute(["umount", self.mnt])


def goals_of(rows):
    goals = []

    def at_least(key, percent, what):
        if key in rows and "tux3" in rows[key].samples:
            value = 100 - rows[key].median("tux3")
            goals.append((f"{what}: at least {percent} % in use when it is full ({value:.3f})", value >= percent))

    at_least(("1G", "large", "left_end"), 99.9, "one large file on 1 GiB")
    at_least(("1G", "small", "left_end"), 99.5, "files of 4 KiB on 1 GiB")
    for (size, case, figure), row in rows.items():
        if figure == "available_off" and case == "large" and row.samples.get("tux3"):
            value = row.median("tux3")
            goals.append((f"{size}, one large file: available is right within 0.1 % ({value:.3f})", value <= 0.1))
        if figure == "refused_operations" and row.samples.get("tux3"):
            goals.append((f"{size}, {CASES[case]}: nothing that needs no room is refused", not row.median("tux3")))
        if figure in ("payload_end", "units_end") and row.samples.get("tux3"):
            others = [row.median(who) for who in MKFS if row.samples.get(who)]
            if others:
                goals.append((f"{size}, {CASES[case]}: as much as in any other, or within 3 %",
                              row.median("tux3") >= 0.97 * max(others)))
    return goals


def print_rows(rows, names):
    for size in SIZES:
        for case in CASES:
            lines = []
            for figure, text, unit, _better, _cases in FIGURES:
                row = rows.get((size, case, figure))
                if row and row.samples:
                    lines.append([f"{text}{f', {unit}' if unit else ''}",
                                  *(format_value(row.median(who)) for who in names)])
            if lines:
                print(f"{size}: {CASES[case]}")
                print_table(["", *names], lines)


def measure(systems, args, sizes, work, rows):
    for size in sizes:
        for case in args.case or CASES:
            if case in MANY and size != sizes[0]:
                continue
            for who, system in systems.items():
                image = work / "full.img"
                image.unlink(missing_ok=True)
                sparse_file(image, SIZES[size])
                drop_caches()
                print(f"  {size} {case} {who}", flush=True)
                figures = system.measure(case, image, SIZES[size])
                for figure, text, unit, better, cases in FIGURES:
                    if figures and figure in figures and case in cases:
                        name = f"{size}, {CASES[case]}: {text}"
                        rows.setdefault((size, case, figure), Row(name, unit, better)).add(who, figures[figure])


def run(args):
    need_root()
    only = args.only.split(",") if args.only else ["tux3", *MKFS]
    need(ours=("mkfs.tux3",))
    execute([ROOT / "scripts/deps.sh", "run", "bench"])
    sizes = args.size or (["64M"] if args.quick else list(SIZES))
    config = machine()
    config["image file"] = describe_directory(args.dir)
    config["volumes"] = ", ".join(sizes)
    config["rounds"] = args.rounds
    rows = {}
    with kept(args.json, config, lambda: list(rows.values())), \
            TemporaryDirectory(prefix="bench-full-", dir=args.dir) as work:
        mnt = Path(work) / "mnt"
        mnt.mkdir()
        systems = {who: Tux3() if who == "tux3" else Mounted(who, mnt) for who in only}
        print_config(config)
        try:
            for _ in range(args.rounds):
                measure(systems, args, sizes, Path(work), rows)
        finally:
            if is_mounted(mnt):
                execute(["umount", "-l", mnt], check=False)
        for who, system in systems.items():
            config[who] = system.describe()
            print(f"{who + ':':8} {config[who]}")
        print()
        print_rows(rows, only)
    goals = goals_of(rows)
    if args.quick:
        print("This was a quick run: it shows that everything works, and no goals are judged by it.")
        goals = []
    write_json(args.json, config, list(rows.values()), goals)
    return 0 if not goals or print_goals(goals) else 1
