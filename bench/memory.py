# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory and time of large volumes: 1 million files created, mounted, listed, checked; mkfs and mount of 10 TiB.

Goals: less than 1 GiB resident in every step; mkfs of a 10 TiB sparse image in under a second; mount in
under 100 ms.  Peak memory is what the kernel says of each process (ru_maxrss, VmHWM).  A mount is the fastest of
three, each after caches are dropped: others take the machine for a tenth of a second now and then.
"""
import json
import os
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from common import (ROOT, Row, Tux3Mount, c_program, describe_directory, drop_caches, kept, machine, need, print_config,
                    print_goals, print_table, program, sparse_file, write_json)

MEMORY_LIMIT = 1 << 30
MKFS_LIMIT_S = 1
MOUNT_LIMIT_S = 0.1
LARGE = 10 << 40
MOUNTS = 3


def add_options(parser):
    parser.add_argument("--files", type=int, help="(1,000,000; 20,000 with --quick)")
    parser.add_argument("--directories", type=int, default=100, help="they are spread over (%(default)s)")
    parser.add_argument("--dir", metavar="DIR", default=ROOT / "build", help="where the images are (%(default)s)")


def measured(command):
    """Output, seconds, peak memory in bytes."""
    begun = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {process.returncode}\n{text}")
    return text, time.perf_counter() - begun, usage.ru_maxrss << 10


class Steps:
    """What was done, how long it took, and how much memory it needed."""

    def __init__(self):
        self.rows, self.goals, self.lines = [], [], []

    def add(self, what, seconds, memory=None, seconds_limit=None):
        self.lines.append([what, f"{seconds:.3f}", "-" if memory is None else f"{memory / 2**20:.0f}"])
        row = Row(f"{what}, time", "s", "lower")
        row.add("tux3", seconds)
        self.rows.append(row)
        if memory is not None:
            row = Row(f"{what}, peak memory", "MiB", "lower")
            row.add("tux3", memory / 2**20)
            self.rows.append(row)
            self.goals.append((f"{what}: less than 1 GiB resident ({memory / 2**20:.0f} MiB)", memory < MEMORY_LIMIT))
        if seconds_limit is not None:
            self.goals.append((f"{what}: in less than {seconds_limit * 1000:g} ms ({seconds * 1000:.1f} ms)",
                               seconds < seconds_limit))


def count_entries(path):
    """As find does: every entry is listed and its attributes are asked for."""
    files = 0
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            files += count_entries(entry.path)
        else:
            entry.stat(follow_symlinks=False)
            files += 1
    return files


def measure_many(steps, work, directories, files):
    image = work / "many.img"
    sparse_file(image, 8 << 30)
    _, seconds, _ = measured([program("mkfs.tux3"), "-q", image])
    each = files // directories
    files = each * directories
    _, seconds, memory = measured([c_program("memory"), "create", image, directories, each])
    steps.add(f"create {files:,} files (libtux3)", seconds, memory)
    text, seconds, memory = measured([c_program("memory"), "list", image])
    if int(text.split()[1]) != files:
        raise RuntimeError(f"{text.split()[1]} files were listed, not {files}")
    steps.add(f"list and stat {files:,} files (libtux3)", seconds, memory)
    text, seconds, memory = measured([program("fsck.tux3"), "-n", "--json", image])
    if not json.loads(text)["summary"]["clean"]:
        raise RuntimeError(f"fsck.tux3 found problems: {text}")
    steps.add(f"fsck of {files:,} files", seconds, memory)
    if os.geteuid() == 0:
        measure_mounted(steps, image, work / "mnt", files)
    image.unlink()


def fastest_mount(image, path):
    """The last mount, still there, and the seconds of the fastest."""
    seconds = []
    for i in range(MOUNTS):
        drop_caches()
        mount = Tux3Mount(image, path)
        seconds.append(mount.mount_seconds)
        if i + 1 < MOUNTS:
            try:
                mount.unmount()
            finally:
                mount.cleanup()
    return mount, min(seconds)


def measure_mounted(steps, image, path, files):
    mount, seconds = fastest_mount(image, path)
    try:
        steps.add(f"mount with {files:,} files", seconds, mount.peak_memory(), MOUNT_LIMIT_S)
        begun = time.perf_counter()
        found = count_entries(mount.path)
        if found != files:
            raise RuntimeError(f"{found} files were listed, not {files}")
        steps.add(f"list and stat {files:,} files (mounted)", time.perf_counter() - begun, mount.peak_memory())
        mount.unmount()
    finally:
        mount.cleanup()


def measure_large(steps, work):
    image = work / "large.img"
    sparse_file(image, LARGE)
    _, seconds, memory = measured([program("mkfs.tux3"), "-q", image])
    steps.add("mkfs of 10 TiB", seconds, memory, MKFS_LIMIT_S)
    if os.geteuid() == 0:
        mount, seconds = fastest_mount(image, work / "mnt")
        try:
            steps.add("mount of 10 TiB", seconds, mount.peak_memory(), MOUNT_LIMIT_S)
            mount.unmount()
        finally:
            mount.cleanup()
    _, seconds, memory = measured([program("fsck.tux3"), "-n", image])
    steps.add("fsck of 10 TiB, empty", seconds, memory)
    image.unlink()


def run(args):
    need(ours=("mkfs.tux3", "tux3-fuse", "fsck.tux3"), programs=["findmnt"])
    c_program("memory")
    files = args.files or (20000 if args.quick else 1000000)
    config = machine()
    config["image files"] = describe_directory(args.dir)
    config["files"] = f"{files:,} in {args.directories} directories, a few bytes in each"
    config["mounted"] = f"default options; fastest of {MOUNTS}, caches dropped before each" if os.geteuid() == 0 else "not measured: not root"
    print_config(config)
    steps = Steps()
    with kept(args.json, config, lambda: steps.rows), TemporaryDirectory(prefix="bench-memory-", dir=args.dir) as work:
        measure_large(steps, Path(work))
        measure_many(steps, Path(work), args.directories, files)
    print_table(["step", "seconds", "peak MiB"], steps.lines)
    write_json(args.json, config, steps.rows, steps.goals)
    return 0 if print_goals(steps.goals) else 1
