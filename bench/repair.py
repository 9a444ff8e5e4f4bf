# SPDX-License-Identifier: GPL-2.0-or-later
"""What repair brings back: 0.1 %, 1 % and 5 % of the metadata blocks wiped, on tux3, ext4 and xfs.

Each filesystem gets the same tree of 100,000 paths (bench/repair.c: files of 0 to 64 KiB, most of them small, hard links,
symlinks, extended attributes).  For each seed and fraction a copy of the image loses this share of its metadata blocks, at
random, superblocks and anchors too: zeros or random bytes are written over them.  Then the filesystem's own repair runs, as
an administrator would have it (fsck.tux3 -y; e2fsck -fy; xfs_repair, and -L if that is what it asks for), all that is
there is read, and a second run, which only checks, must find nothing.

All have blocks of 4 KiB.  Metadata blocks are what is not empty of what tux3 image, e2image -r (and the backup superblocks and
descriptors) and xfs_metadump -o copy, without the journals of ext4 and xfs, which hold nothing after a clean unmount.

Of tux3 it is computed, too, which paths could come back: those whose attributes and extents are all in leaves that were not wiped,
and with a name, itself and each directory above it, in a directory's leaf or in a parent pointer.

The images are on a tmpfs; ext4 and xfs are mounted on this kernel by loop devices, read-only after the damage.
"""
import functools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from common import (ROOT, Row, Tux3Mount, c_program, describe_directory, disk_space_left, first_line, format_value, is_mounted,
                    kept, machine, need, need_root, print_config, print_goals, print_table, program, run as execute,
                    sparse_file, write_json)

sys.path.insert(0, str(ROOT / "tests/cli"))
import format_reader  # noqa: E402

c_program = functools.cache(c_program)  # built once
BLOCK = 4096
FRACTIONS = (0.1, 1, 5)  # percent
TIMEOUT_S = 900


def add_options(parser):
    parser.add_argument("--paths", type=int, help="in the tree (100,000; 2,000 with --quick)")
    parser.add_argument("--seeds", type=int, help="how often each fraction (50; 3 with --quick): all of it takes an hour or two")
    parser.add_argument("--seed", type=int, default=1, help="the first of them (%(default)s)")
    parser.add_argument("--minutes", type=float, help="begin no further seed after so long")
    parser.add_argument("--fraction", type=float, action="append", metavar="PERCENT", help="only this (may be repeated)")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {','.join(SYSTEMS)}")
    parser.add_argument("--keep", metavar="DIR", help="leave the damaged images there, and what repair said")
    parser.add_argument("--dir", metavar="DIR", default="/dev/shm", help="where the images are (%(default)s)")


def data_blocks(path):
    """Numbers of the blocks of a sparse file that are not holes and not empty."""
    blocks = []
    with open(path, "rb") as f:
        end, at = f.seek(0, os.SEEK_END), 0
        while at < end:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            hole = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            f.seek(at)
            for block in range(at // BLOCK, -(-hole // BLOCK)):
                if any(f.read(BLOCK)):
                    blocks.append(block)
            at = hole
    return blocks


def our(command):
    """With the path of a program of this project in front."""
    return [program(command[0]), *command[1:]] if command[0].endswith("tux3") else command


def numbers(text):
    """All blocks of a list like "5, 7-9"."""
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        yield from range(int(first), int(last or first) + 1)


class Outcome:
    """What one repair did."""

    def __init__(self):
        self.codes, self.said, self.seconds = [], "", 0.0

    def run(self, *command):
        begun = time.perf_counter()
        try:
            done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=TIMEOUT_S, errors="replace", stdin=subprocess.DEVNULL, text=True)
            code, said = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            code, said = -1, f"not within {TIMEOUT_S} s\n"
        self.seconds += time.perf_counter() - begun
        self.codes.append(code)
        self.said += f"$ {' '.join(map(str, command))}\n{said}[{code}]\n"
        return code

    def crashed(self):
        return any(code < 0 for code in self.codes)


class System:
    mounted_options = "ro,loop"

    def __init__(self, work, paths, size):
        self.work, self.paths, self.size = work, paths, size
        self.image, self.mnt = work / f"{self.name}.img", work / f"mnt-{self.name}"
        self.mnt.mkdir()

    def make(self):
        """The image with the tree in it, and which of its blocks are metadata."""
        sparse_file(self.image, self.size)
        execute([*our(self.mkfs), self.image])
        with self.mounted(self.image, "loop"):
            execute([c_program("repair"), "make", self.mnt, self.paths])
        if not self.clean(self.image):
            raise RuntimeError(f"{self.name}: the new image is not clean")
        self.blocks = sorted(self.metadata())

    def mounted(self, image, options):
        return Mounted(self.name, image, self.mnt, options)

    def read(self, image):
        """(fates of paths, fates of values): see bench/repair.c."""
        try:
            with self.mounted(image, self.mounted_options):
                lines = execute([c_program("repair"), "check", self.mnt, self.paths], timeout=TIMEOUT_S)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            return self.nothing(str(e))
        return lines.split("\n")[:2]

    def nothing(self, why):
        print(f"    {self.name}: nothing can be read: {' '.join(why.split())[:150]}", flush=True)
        return "L" * self.paths, "-" * self.paths

    def scratch(self):
        path = self.work / f"{self.name}.metadata"
        path.unlink(missing_ok=True)
        return path

    def clean(self, image):
        return Outcome().run(*our(self.check), image) == 0

    def could(self, _wiped):
        return None


class Mounted:
    def __init__(self, kind, image, mnt, options):
        self.mnt = mnt
        self.command = ["mount", "-t", kind, "-o", options, image, mnt]

    def __enter__(self):
        execute(self.command)

    def __exit__(self, *_):
        execute(["umount", self.mnt])


class Tux3(System):
    name, mkfs, check = "tux3", ["mkfs.tux3", "-q"], ["fsck.tux3", "-n"]
    programs = ()
    repair_text = "fsck.tux3 -y"

    @staticmethod
    def version():
        text = execute([program("fsck.tux3"), "--help"])
        return first_line([program("fsck.tux3"), "--version"]) + \
            (" (REPAIRS NOTHING YET)" if "not there yet" in text else "")

    def make(self):
        super().make()
        self.leaves = Leaves(self.image, self.blocks)

    def mounted(self, image, _options):
        return Tux3Mounted(image, self.mnt)

    def read(self, image):
        try:
            return execute([c_program("repair"), "check", image, self.paths], timeout=TIMEOUT_S).split("\n")[-3:-1]
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            return self.nothing(str(e))

    def metadata(self):
        copy = self.scratch()
        execute([program("tux3"), "image", self.image, copy])
        blocks = data_blocks(copy)
        copy.unlink()
        return blocks

    def repair(self, image, outcome):
        outcome.run(program("fsck.tux3"), "-y", image)

    def could(self, wiped):
        return self.leaves.could(wiped, self.paths)


class Tux3Mounted:
    def __init__(self, image, mnt):
        self.image, self.mnt = image, mnt

    def __enter__(self):
        self.mount = Tux3Mount(self.image, self.mnt)

    def __exit__(self, *_):
        try:
            self.mount.unmount()
        finally:
            self.mount.cleanup()


class Ext4(System):
    name, mkfs, check = "ext4", ["mkfs.ext4", "-q", "-F", "-b", str(BLOCK)], ["e2fsck", "-fn"]
    programs = ("mkfs.ext4", "e2fsck", "e2image", "dumpe2fs", "debugfs")
    repair_text = "e2fsck -fy; if it ends with 8 or more, e2fsck -fy -b 32768 -B 4096; again while it ends with 4, three times"
    mounted_options = "ro,noload,loop"

    @staticmethod
    def version():
        return first_line(["e2fsck", "-V"])

    def metadata(self):
        copy = self.scratch()
        execute(["e2image", "-r", self.image, copy])
        blocks = set(data_blocks(copy))
        copy.unlink()
        for line in execute(["dumpe2fs", self.image]).splitlines():
            if "Backup superblock at" in line:
                blocks |= set(numbers(line.partition("at ")[2]))
        stat = execute(["debugfs", "-R", "stat <8>", self.image])
        journal = re.findall(r"\((?:ETB\d+|[\d-]+)\):([\d-]+)", stat)
        return blocks - {block for part in journal for block in numbers(part)}

    def repair(self, image, outcome):
        code = outcome.run("e2fsck", "-fy", image)
        if code >= 8:
            code = outcome.run("e2fsck", "-fy", "-b", 32768, "-B", BLOCK, image)
        for _ in range(3):
            if code != 4:  # errors left: its next run mends them
                break
            code = outcome.run("e2fsck", "-fy", image)


class Xfs(System):
    name, mkfs, check = "xfs", ["mkfs.xfs", "-q", "-b", f"size={BLOCK}"], ["xfs_repair", "-f", "-n"]
    programs = ("mkfs.xfs", "xfs_repair", "xfs_metadump", "xfs_mdrestore", "xfs_db")
    repair_text = "xfs_repair; if it ends with 2, xfs_repair -L"
    mounted_options = "ro,norecovery,nouuid,loop"

    @staticmethod
    def version():
        return first_line(["xfs_repair", "-V"])

    def metadata(self):
        dump, copy = self.work / "xfs.dump", self.scratch()
        execute(["xfs_metadump", "-o", self.image, dump])
        execute(["xfs_mdrestore", dump, copy])
        blocks = set(data_blocks(copy))
        dump.unlink()
        copy.unlink()
        text = execute(["xfs_db", "-r", "-c", "sb 0", "-c", "p logstart logblocks agblocks agblklog", self.image])
        field = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", text)}
        group, at = field["logstart"] >> field["agblklog"], field["logstart"] & (1 << field["agblklog"]) - 1
        log = group * field["agblocks"] + at
        return blocks - set(range(log, log + field["logblocks"]))

    def repair(self, image, outcome):
        if outcome.run("xfs_repair", "-f", image) == 2:
            outcome.run("xfs_repair", "-f", "-L", image)


SYSTEMS = {"tux3": Tux3, "ext4": Ext4, "xfs": Xfs}


# ---- which paths could come back on tux3 ----

class Leaves:
    """What is in which leaf of an undamaged image; as FORMAT.md has it."""

    def __init__(self, image, blocks):
        self.content = defaultdict(set)		# inode: leaves with its attributes and its content
        self.names = {}				# (directory, name): (inode, leaves that say so)
        with open(image, "rb") as f:
            for block in blocks:
                f.seek(block * BLOCK)
                self.read_node(block, f.read(BLOCK))

    def read_node(self, block, data):
        magic, _, _, addr, _, level, count, _, _ = format_reader.NODE.unpack_from(data)
        if magic != int.from_bytes(b"T3ND", "little") or addr != block or level:
            return
        for i in range(count):
            ino_type, _, at, length, _ = format_reader.ITEM.unpack_from(data, format_reader.NODE.size +
                                                                        i * format_reader.ITEM.size)
            self.read_item(block, ino_type >> 8, ino_type & 0xff, data[at:at + length])

    def read_item(self, block, ino, kind, data):
        if kind in (format_reader.ATTR, format_reader.INLINE, format_reader.EXTENT):
            self.content[ino].add(block)
        elif kind == format_reader.PARENT:
            for directory, name in format_reader.parents(data):
                self.names.setdefault((directory, name), (ino, set()))[1].add(block)
        elif kind == format_reader.DIRENT:
            for child, _, name in format_reader.dirents(data):
                self.names.setdefault((ino, name), (child, set()))[1].add(block)

    def could(self, wiped, paths):
        """A list: could the path with this number come back?"""
        wiped = set(wiped)
        known = {ino: directory for (directory, _), (ino, leaves) in self.names.items() if not leaves <= wiped}
        whole = {ino for ino, leaves in self.content.items() if not leaves & wiped}
        reached = {format_reader.INO_ROOT: True}

        def reachable(directory):
            if directory not in reached:
                reached[directory] = directory in known and reachable(known[directory])
            return reached[directory]

        could = [False] * paths
        for (directory, name), (ino, leaves) in self.names.items():
            number = name.rpartition(b"-")[2]
            if number.isdigit() and ino in whole and not leaves <= wiped and reachable(directory):
                could[int(number)] = True
        return could


# ---- one damage ----

def wipe(image, blocks, fraction, seed):
    """Which blocks; and with what."""
    rng = random.Random(f"{seed} {fraction}")
    zeros = rng.random() < 0.5
    chosen = sorted(rng.sample(blocks, max(1, round(len(blocks) * fraction / 100))))
    with open(image, "r+b") as f:
        for block in chosen:
            f.seek(block * BLOCK)
            f.write(bytes(BLOCK) if zeros else rng.randbytes(BLOCK))
    return chosen


class Results:
    """Figures of all damages: (fraction, who, figure): one for each seed."""
    FIGURES = (
        ("right", "path and content are back", "% of paths", "higher"),
        ("could", "could be", "% of paths", "higher"),
        ("anywhere", "content is back, there or elsewhere", "% of paths", "higher"),
        ("wrong", "wrong content without an error", "paths", "lower"),
        ("values", "extended attributes of these are right", "%", "higher"),
        ("clean", "no complaint by the second run", "% of seeds", "higher"),
        ("crashed", "repair crashed or hung", "% of seeds", "lower"),
        ("seconds", "repair took", "s", "lower"),
    )

    def __init__(self):
        self.rows, self.missed = {}, []

    def add(self, fraction, who, figures):
        for figure, text, unit, better in self.FIGURES:
            if figures.get(figure) is not None:
                key = fraction, figure
                self.rows.setdefault(key, Row(f"{fraction:g} % wiped: {text}", unit, better)).add(who, figures[figure])

    def samples(self, fraction, figure, who):
        row = self.rows.get((fraction, figure))
        return row.samples.get(who, []) if row else []

    def in_order(self):
        return [self.rows[fraction, figure] for fraction in sorted({fraction for fraction, _ in self.rows})
                for figure, *_ in self.FIGURES if (fraction, figure) in self.rows]


def percent(part, whole):
    return 100 * part / whole if whole else None


def damage_and_repair(system, fraction, seed, args):
    """Figures by name, and which paths could have come back and did not."""
    image = system.work / "damaged.img"
    image.unlink(missing_ok=True)
    execute(["cp", "--sparse=always", system.image, image])
    chosen = wipe(image, system.blocks, fraction, seed)
    if args.keep:
        keep = Path(args.keep) / f"{system.name}-{fraction:g}-{seed}"
        keep.parent.mkdir(parents=True, exist_ok=True)
        execute(["cp", "--sparse=always", image, f"{keep}.img"])
    outcome = Outcome()
    system.repair(image, outcome)
    clean = system.clean(image)
    fates, values = system.read(image)
    if args.keep:
        Path(f"{keep}.txt").write_text(outcome.said)
    count = Counter(fates)
    could = system.could(chosen)
    missed = [i for i, fate in enumerate(fates) if could and could[i] and fate != "R"]
    of_right = Counter(value for fate, value in zip(fates, values) if fate == "R")
    return {
        "right": percent(count["R"], len(fates)),
        "could": percent(sum(could), len(fates)) if could else None,
        "anywhere": percent(count["R"] + count["E"] + count["w"], len(fates)),
        "wrong": count["W"] + count["w"],
        "values": percent(of_right["R"], of_right["R"] + of_right["W"] + of_right["L"]),
        "clean": 100 * clean,
        "crashed": 100 * outcome.crashed(),
        "seconds": outcome.seconds,
    }, missed, outcome.codes


def measure(systems, fractions, seeds, args, results):
    """How many seeds there were."""
    begun, done = time.monotonic(), 0
    for seed in seeds:
        if args.minutes and time.monotonic() - begun > 60 * args.minutes:
            break
        for fraction in fractions:
            for who, system in systems.items():
                figures, missed, codes = damage_and_repair(system, fraction, seed, args)
                results.add(fraction, who, figures)
                line = f"  seed {seed}, {fraction:g} %, {who}: {figures['right']:.3f} % back"
                line += f" of {figures['could']:.3f} %" if figures["could"] is not None else ""
                print(f"{line}, {figures['wrong']} wrong, {'clean' if figures['clean'] else 'NOT CLEAN'}, "
                      f"exit {codes}, {figures['seconds']:.1f} s", flush=True)
                if missed:
                    results.missed.append((seed, fraction, missed))
                    print(f"    {len(missed)} paths could be back and are not, the first numbers: {missed[:8]}; "
                          f"again: bench/run repair --paths {args.paths} --only {who} --fraction {fraction:g} --seed {seed} "
                          "--seeds 1 --keep DIR", flush=True)
        done += 1
    return done


# ---- what is printed ----

def print_results(results, fractions, names):
    for fraction in fractions:
        print(f"{fraction:g} % of the metadata blocks wiped: median (worst)")
        lines = []
        for figure, text, unit, better in Results.FIGURES:
            cells = []
            for who in names:
                samples = results.samples(fraction, figure, who)
                worst = (min if better == "higher" else max)(samples) if samples else None
                cells.append(f"{exact(statistics.median(samples))} ({exact(worst)})" if samples else "-")
            lines.append([f"{text}, {unit}", *cells])
        print_table(["", *names], lines)


def exact(value):
    """Near 100 % three digits say nothing."""
    return f"{value:.3f}" if 90 <= value < 100 else format_value(value)


def goals_of(results, fractions, names):
    goals = []
    for fraction in fractions:
        def get(figure, who="tux3", fraction=fraction):
            return results.samples(fraction, figure, who)

        if not get("right"):
            continue
        less = sum(seed_fraction == fraction for _, seed_fraction, _ in results.missed)
        goals.append((f"{fraction:g} %: every path with intact content and one surviving pointer to it is back "
                      f"({less} of {len(get('right'))} seeds lack some)", not less))
        for who in names:
            if who != "tux3" and get("right", who):
                ours, theirs = statistics.median(get("right")), statistics.median(get("right", who))
                goals.append((f"{fraction:g} %: more is back than on {who} ({exact(ours)} %, {exact(theirs)} %)",
                              ours > theirs or ours == theirs == 100))
        goals.append((f"{fraction:g} %: nothing comes back with wrong content", not any(get("wrong"))))
        goals.append((f"{fraction:g} %: the second run is silent, with every seed", min(get("clean")) == 100))
        goals.append((f"{fraction:g} %: repair never crashes", not any(get("crashed"))))
    return goals


def configuration(args, only, size, seeds, fractions):
    config = machine()
    config["image files"] = describe_directory(args.dir)
    config["volumes"] = f"{size >> 20} MiB, blocks of {BLOCK} bytes"
    config["tree"] = f"{args.paths:,} paths of bench/repair.c, made in order of their numbers; then unmounted"
    config["seeds"] = f"{seeds[0]} to {seeds[-1]}" + (f", for at most {args.minutes:g} minutes" if args.minutes else "")
    config["fractions"] = ", ".join(f"{fraction:g} %" for fraction in fractions)
    for who in only:
        kind = SYSTEMS[who]
        config[who] = f"{kind.version()}; {' '.join(kind.mkfs)}; repair: {kind.repair_text}"
    return config


def run(args):
    need_root()
    only = args.only.split(",") if args.only else list(SYSTEMS)
    if unknown := set(only) - set(SYSTEMS):
        raise RuntimeError(f"{', '.join(unknown)}: not one of {', '.join(SYSTEMS)}")
    if "xfs" in only:
        execute([ROOT / "scripts/deps.sh", "run", "bench"])
    need(ours=("mkfs.tux3", "tux3-fuse", "fsck.tux3", "tux3"), programs=[p for who in only for p in SYSTEMS[who].programs])
    c_program("repair")
    args.paths = args.paths or (2000 if args.quick else 100000)
    seeds = range(args.seed, args.seed + (args.seeds or (3 if args.quick else 50)))
    fractions = args.fraction or FRACTIONS
    size = (2 << 30) if args.paths > 20000 else 512 << 20
    if disk_space_left(args.dir) < size:
        raise RuntimeError(f"{args.dir} has less than {size >> 20} MiB left")
    config, results = configuration(args, only, size, seeds, fractions), Results()
    with kept(args.json, config, results.in_order), TemporaryDirectory(prefix="bench-repair-", dir=args.dir) as work:
        systems = {who: SYSTEMS[who](Path(work), args.paths, size) for who in only}
        try:
            for who, system in systems.items():
                system.make()
                config[f"metadata of {who}"] = f"{len(system.blocks):,} blocks"
            print_config(config)
            config["seeds done"] = measure(systems, fractions, seeds, args, results)
        finally:
            for system in systems.values():
                if is_mounted(system.mnt):
                    execute(["umount", "-l", system.mnt], check=False)
    print_results(results, fractions, only)
    goals = goals_of(results, fractions, only)
    if args.quick:
        print("This was a quick run: it shows that everything works, and no goals are judged by it.")
        goals = []
    write_json(args.json, config, results.in_order(), goals, missed=results.missed)
    return 0 if not goals or print_goals(goals) else 1
