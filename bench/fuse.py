# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3-fuse beside fuse2fs, ext4 on a loop device and tmpfs, in one run.

Every measurement has a newly made file system, mounted with its default options, in an image file (sparse,
4 GiB) that lies in the same directory for all of them.  Within a round each measurement is done on
all file systems, one right after the other, and the order changes with each; what is printed is the
median of the rounds and half their range.  Before each, everything is written back and the kernel's
caches are dropped; before the first, memory is touched that a host may not have provided yet.  Nothing is synced while
it is measured but where the row says so.

FUSE over io_uring, which tux3-fuse uses where it is to be had, is switched on in the kernel for the run, and afterwards
as it was; --no-io-uring leaves it alone.
"""
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from common import (ROOT, Row, Tux3Mount, describe_directory, disk_space_left, drop_caches, first_line, format_value,
                    is_mounted, kept, machine, mount_line, need, need_root, print_config, print_goals, print_table, program,
                    run as execute, sparse_file, touch_memory, wait_for, write_json)

sys.path.insert(0, str(ROOT / "scripts"))
import fuse_io_uring  # noqa: E402

LOADFILE = "/usr/share/dbench/client.txt"
IMAGE_SIZE = 4 << 30
SEQUENTIAL_SIZE = 400 << 20


# ---- file systems ----

class Tux3:
    programs = ()
    made = "mkfs.tux3; default options"

    def __init__(self, work):
        self.image, self.path = work / "tux3.img", work / "mnt-tux3"

    def make(self):
        sparse_file(self.image, IMAGE_SIZE)
        execute([program("mkfs.tux3"), "-q", self.image])

    def mount(self):
        self.mounted = Tux3Mount(self.image, self.path)

    def unmount(self):
        self.mounted.unmount()

    def cleanup(self):
        if is_mounted(self.path):
            self.mounted.cleanup()
        self.image.unlink(missing_ok=True)


class Ext4:
    programs = ("mkfs.ext4",)
    made = "mkfs.ext4 -E lazy_itable_init=0,lazy_journal_init=0; mount -o loop"

    def __init__(self, work):
        self.image, self.path = work / "ext4.img", work / "mnt-ext4"

    def make(self):
        sparse_file(self.image, IMAGE_SIZE)
        # Lazily initialised tables would be written while we measure.
        execute(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image])

    def mount(self):
        self.path.mkdir(exist_ok=True)
        execute(["mount", "-o", "loop", self.image, self.path])

    def unmount(self):
        execute(["umount", self.path])

    def cleanup(self):
        if is_mounted(self.path):
            execute(["umount", "-l", self.path], check=False)
        self.image.unlink(missing_ok=True)


class Fuse2fs(Ext4):
    programs = ("mkfs.ext4", "fuse2fs")
    made = "mkfs.ext4 as for ext4; fuse2fs; default options"

    def __init__(self, work):
        self.image, self.path = work / "fuse2fs.img", work / "mnt-fuse2fs"

    def mount(self):
        self.path.mkdir(exist_ok=True)
        self.daemon = subprocess.Popen(["fuse2fs", str(self.image), str(self.path), "-f"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: is_mounted(self.path) or self.daemon.poll() is not None, "mount of fuse2fs")
        if self.daemon.poll() is not None:
            raise RuntimeError(f"fuse2fs: exit status {self.daemon.returncode}")

    def unmount(self):
        execute(["umount", self.path])
        self.daemon.wait(600)


class Tmpfs:
    programs = ()
    made = "mount -t tmpfs -o size=4G"

    def __init__(self, work):
        self.path = work / "mnt-tmpfs"

    def make(self):
        pass

    def mount(self):
        self.path.mkdir(exist_ok=True)
        if not is_mounted(self.path):
            execute(["mount", "-t", "tmpfs", "-o", "size=4G,mode=755", "tmpfs", self.path])

    def unmount(self):
        execute(["umount", self.path])

    def cleanup(self):
        if is_mounted(self.path):
            execute(["umount", "-l", self.path], check=False)


FILE_SYSTEMS = {"tux3-fuse": Tux3, "fuse2fs": Fuse2fs, "ext4": Ext4, "tmpfs": Tmpfs}


# ---- measurements: each yields (row name, value) for a mounted file system ----

def timed(action, *args):
    begun = time.perf_counter()
    action(*args)
    return time.perf_counter() - begun


def sync_file_system(path):
    """syncfs(2) reaches a FUSE daemon only as writes of the kernel's dirty pages; fsync of the root says the rest."""
    execute(["sync", "-f", path])
    fsync_file(path)


def remount_cold(fs):
    """Nothing of it is cached anywhere, the daemons' memory included."""
    fs.unmount()
    drop_caches()
    fs.mount()


def dbench(fs, load, seconds):
    text = execute(["dbench", "-c", load, "-D", fs.path, "-t", seconds, "1"])
    return float(re.search(r"^Throughput ([0-9.]+) MB/sec", text, re.M).group(1))


def measure_dbench(fs, setup):
    yield "dbench, no Flush", dbench(fs, setup.load_without_flush, setup.dbench_seconds)


def measure_dbench_flush(fs, setup):
    yield "dbench, unmodified", dbench(fs, LOADFILE, setup.dbench_seconds)


def read_files(path):
    execute(["sh", "-c", 'find "$0" -type f -print0 | xargs -0 cat >/dev/null', path])


def measure_tree(fs, setup):
    copies = [fs.path / f"copy{n}" for n in range(setup.copies)]

    def untar():
        for copy in copies:
            copy.mkdir()
            execute(["tar", "-xf", setup.tar, "-C", copy])

    # Reading the archive should not be part of it.
    execute(["sh", "-c", 'cat "$0" >/dev/null', setup.tar])
    seconds = timed(untar)
    yield f"untar x{setup.copies}", seconds
    yield f"untar x{setup.copies} and sync", seconds + timed(sync_file_system, fs.path)
    yield "read all", timed(read_files, fs.path)
    if not isinstance(fs, Tmpfs):
        remount_cold(fs)
        yield "read all, remounted", timed(read_files, fs.path)
        remount_cold(fs)
    yield "rm -r", timed(execute, ["rm", "-r", *copies])


def measure_fs_mark(fs, setup):
    path = fs.path / "fs_mark"
    path.mkdir()
    # fs_mark takes only short path names.
    text = execute(["fs_mark", "-d", path.name, "-n", setup.files, "-s", 0, "-S", 0, "-k", "-t", 1,
                    "-l", setup.fs_mark_log], cwd=fs.path)
    # Columns: FSUse%, Count, Size, Files/sec, App Overhead.
    line = [line.split() for line in text.splitlines() if re.match(r"^\s*\d+\s+\d+\s+\d+\s+[0-9.]+\s+\d+", line)][-1]
    yield f"fs_mark, {setup.files:,} empty files", float(line[3])
    yield "rm of them", timed(execute, ["rm", "-r", path])


def write_file(path, size, chunk):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for _ in range(size // len(chunk)):
            os.write(fd, chunk)
    finally:
        os.close(fd)


def fsync_file(path):
    # fuse2fs ignores fsync of a file that is not open for writing.
    fd = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    os.fsync(fd)
    os.close(fd)


def read_file(path):
    buffer = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as f:
        while f.readinto(buffer):
            pass


def measure_sequential(fs, setup):
    path, mib = fs.path / "sequential", setup.sequential_bytes >> 20
    # Not compressible, not zeros.
    seconds = timed(write_file, path, setup.sequential_bytes, os.urandom(1 << 20))
    yield f"{mib} MB write", seconds
    yield f"{mib} MB write and fsync", seconds + timed(fsync_file, path)
    yield f"{mib} MB read", timed(read_file, path)
    if not isinstance(fs, Tmpfs):
        remount_cold(fs)
        yield f"{mib} MB read, remounted", timed(read_file, path)


def measure_fsync(fs, setup):
    data, spent = os.urandom(4096), []

    def create_and_fsync(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)

    for n in range(setup.fsyncs):
        spent.append(timed(create_and_fsync, fs.path / f"file{n}"))
    yield "4 KiB create + fsync", 1000 * sum(spent) / len(spent)


# Short name for --only: measurement.
MEASUREMENTS = {
    "dbench": measure_dbench,
    "dbench-flush": measure_dbench_flush,
    "tree": measure_tree,
    "fs_mark": measure_fs_mark,
    "sequential": measure_sequential,
    "fsync": measure_fsync,
}

PROGRAMS = {"dbench": ["dbench"], "dbench-flush": ["dbench"], "tree": ["tar"], "fs_mark": ["fs_mark"]}

# Row: how many times better than fuse2fs.
GOALS = [
    (r"dbench", 5), (r"untar x\d+$", 5), (r"rm", 5), (r"fs_mark", 20),
]


def unit_of(name):
    if name.startswith("dbench"):
        return "MB/s", "higher"
    if name.startswith("fs_mark"):
        return "files/s", "higher"
    return ("ms" if name.startswith("4 KiB") else "s"), "lower"


class Setup:
    """How much work, and its input."""

    def __init__(self, args, work):
        self.dbench_seconds = args.seconds or (2 if args.quick else 12)
        self.copies = 1 if args.quick else 3
        self.files = 1000 if args.quick else 20000
        self.sequential_bytes = SEQUENTIAL_SIZE // (10 if args.quick else 1)
        self.fsyncs = 30 if args.quick else 300
        self.fs_mark_log = work / "fs_mark.log"
        self.tar = work / "headers.tar"
        self.load_without_flush = work / "client-without-flush.txt"

    def prepare(self):
        tree, note = self.find_tree()
        execute(["tar", "-cf", self.tar, "-C", tree.parent, tree.name])
        files = int(execute(["sh", "-c", 'find "$0" -type f | wc -l', tree]))
        lines = Path(LOADFILE).read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("Flush ")]
        self.load_without_flush.write_text("".join(kept))
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
        return {
            "load file": f"{LOADFILE}, {len(lines)} lines, sha256 {digest}...; unmodified, and without the "
                         f"{len(lines) - len(kept)} lines that begin with \"Flush\"",
            "dbench": f"{first_line(['dbench', '--version'])}; 1 client, {self.dbench_seconds} s, nothing synced beside",
            "tree": f"{tree} ({files} files, {self.tar.stat().st_size >> 20} MiB as tar){note}",
            "fs_mark": f"-n {self.files} -s 0 -S 0 (no sync) -t 1, one directory",
            "sequential": f"{self.sequential_bytes >> 20} MiB of random bytes, 1 MiB per call",
            "create + fsync": f"mean of {self.fsyncs} new files in one directory: open, write, fsync, close",
        }

    @staticmethod
    def find_tree():
        found = subprocess.run([ROOT / "scripts/headers-tree"], stdout=subprocess.PIPE, text=True)
        if found.returncode == 0:
            return Path(found.stdout.strip()), ""
        return Path("/usr/include"), "; instead of the kernel headers package, which could not be fetched"


def add_options(parser):
    parser.add_argument("--only", metavar="NAME", action="append", choices=list(MEASUREMENTS),
                        help="only this measurement (may be repeated): " + ", ".join(MEASUREMENTS))
    parser.add_argument("--fs", metavar="LIST", default=",".join(FILE_SYSTEMS),
                        help="file systems, separated by commas (%(default)s)")
    parser.add_argument("--rounds", type=int, help="how often each measurement is done (3; 1 with --quick)")
    parser.add_argument("--seconds", type=int, help="for each dbench (12; 2 with --quick)")
    parser.add_argument("--no-io-uring", action="store_true",
                        help="do not switch FUSE over io_uring on in the kernel")
    parser.add_argument("--dir", metavar="DIR", default=ROOT / "build/bench-fuse",
                        help="where the images and mount points are (%(default)s)")


def describe_io_uring(was_on):
    state = "on" if fuse_io_uring.is_on() else "off"
    if was_on is None:
        return f"{fuse_io_uring.PARAMETER} is {state}"
    return state if was_on else "switched on for this run, then off again as it was"


def settings(args, setup, work, names, was_on):
    config = machine()
    config.update({
        "FUSE over io_uring": describe_io_uring(was_on),
        "image files": f"{describe_directory(work)}, sparse, {IMAGE_SIZE >> 30} GiB each, "
                       "made anew for each measurement",
        "versions": f"{first_line(['fuse2fs', '-V'])}; {first_line(['mkfs.ext4', '-V'])}",
        "caches": "before each measurement sync and drop_caches=3; \"remounted\": unmounted, sync, drop_caches=3, "
                  "mounted; rm -r after such a remount; other rows as the step before left the caches",
        "synced": "only in the rows that say so (sync: syncfs of the file system and fsync of its root); "
                  "closing and unmounting are not timed",
        "rounds": f"{args.rounds}, order of file systems rotated",
    })
    config.update(setup.prepare())
    for name in names:
        config[f"{name}"] = FILE_SYSTEMS[name].made
    return config


def measure(fs, name, measurement, setup, rows, config):
    fs.make()
    fs.mount()
    try:
        config.setdefault(f"mounted {name}", mount_line(fs.path))
        drop_caches()
        for row, value in measurement(fs, setup):
            if row not in rows:
                rows[row] = Row(row, *unit_of(row))
            rows[row].add(name, value)
            print(f"  {row:32} {name:10} {format_value(value):>10} {rows[row].unit}", flush=True)
        fs.unmount()
    finally:
        fs.cleanup()


def print_rows(rows, names):
    shown = [name for name in names if any(name in row.samples for row in rows)]
    ratios = [peer for peer in ("fuse2fs", "ext4")
              if peer in shown and "tux3-fuse" in shown]
    lines = []
    for row in rows:
        cells = [f"{row.name}, {row.unit}"]
        for name in shown:
            cells.append(f"{format_value(row.median(name))} ±{row.spread(name):.0f}%" if name in row.samples else "-")
        for peer in ratios:
            ratio = row.times_better("tux3-fuse", peer)
            cells.append("-" if ratio is None else f"{ratio:.2f}")
        lines.append(cells)
    print()
    print_table(["median ± half the range", *shown, *(f"x {peer}" for peer in ratios)], lines)
    if ratios:
        print("\"x fuse2fs\": how many times better tux3-fuse is (more work per second, or less time).\n")


def judge(rows):
    goals = []
    for row in rows:
        ratio = row.times_better("tux3-fuse", "fuse2fs")
        factor = next((f for pattern, f in GOALS if re.match(pattern, row.name)), 1)
        what = f"at least {factor}x as good as" if factor > 1 else "better than"
        goals.append((f"{row.name}: {what} fuse2fs" + (f" (is {ratio:.2f}x)" if ratio else ""),
                      ratio >= factor and ratio > 1 if ratio else None))
    return goals


def run(args):
    need_root()
    ring = contextlib.nullcontext() if args.no_io_uring else fuse_io_uring.switched_on()
    with ring as was_on:
        return run_with_ring(args, was_on)


def run_with_ring(args, was_on):
    names = args.fs.split(",")
    for name in names:
        if name not in FILE_SYSTEMS:
            raise RuntimeError(f"there is no file system \"{name}\" here: {', '.join(FILE_SYSTEMS)}")
    chosen = args.only or list(MEASUREMENTS)
    need(ours=("mkfs.tux3", "tux3-fuse", "tux3"), files=[LOADFILE],
         programs=["tar", "findmnt", *(p for name in names for p in FILE_SYSTEMS[name].programs),
                   *(p for name in chosen for p in PROGRAMS.get(name, ()))])
    args.rounds = args.rounds or (1 if args.quick else 3)
    work = Path(args.dir).resolve()
    work.mkdir(parents=True, exist_ok=True)
    if disk_space_left(work) < 3 << 30:
        raise RuntimeError(f"{work} has less than 3 GiB left")
    setup = Setup(args, work)
    config = settings(args, setup, work, names, was_on)
    config["memory touched before"] = f"{touch_memory(args.quick) >> 20} MiB"
    print_config(config)
    systems = {name: FILE_SYSTEMS[name](work) for name in names}
    rows = {}
    with kept(args.json, config, lambda: list(rows.values())):
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", flush=True)
            for step, measurement in enumerate(MEASUREMENTS[m] for m in chosen):
                first = (number + step) % len(names)
                for name in names[first:] + names[:first]:
                    measure(systems[name], name, measurement, setup, rows, config)
    print("\nMount options as the kernel shows them:")
    print_config({name: config[f"mounted {name}"] for name in names})
    rows = list(rows.values())
    print_rows(rows, names)
    if args.quick:
        print("This was a quick run: it shows that everything works, and no goals are judged by it.")
    goals = [] if args.quick else judge(rows)
    write_json(args.json, config, rows, goals)
    return 0 if not goals or print_goals(goals) else 1
