# SPDX-License-Identifier: GPL-2.0-or-later
"""The measurements.  Each works on a mounted, empty filesystem and returns figures: (name, unit, better, value).

The name "" is the figure the measurement is about.  Names that begin with "CPU" are processor time: "front end" is what
the programs used, system calls included; "back end" what all kernel threads of the machine used, and the caller of
sync; "machine" is the time in which any CPU was not idle.  All filesystems are counted in the same way, and what one
does later, or elsewhere, is in it.  Counts are those of the disk: "write bios" as the filesystem submitted them, before the
block layer merged any (but one that is too large for the disk counts as the pieces it was split into), "write requests"
as the disk got them.  A flush without data counts as one of each, too.

What dbench prints at its end is without its warm-up.
"""
import errno
import os
import re
import resource
import subprocess
import threading
import time

import dbench
from counters import SECTOR_SIZE, Snapshot, Usage
from filesystems import execute, mount_line


class Setting:
    """Where and on what a measurement works.

    disk: name of the block device, None without one.  own_folder: where the filesystem has counters of its own, or
    None.  work: a folder elsewhere.
    """

    def __init__(self, path, disk, own_folder, work, params):
        self.path, self.disk, self.own_folder, self.work, self.params = path, disk, own_folder, work, params
        self.details = {}

    def snapshot(self):
        return Snapshot(self.disk, self.own_folder)


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3\n")


class Syncer(threading.Thread):
    """sync(2) every so many seconds."""

    def __init__(self, period_s):
        super().__init__(daemon=True)
        self.period_s, self.cpu_s, self.took_s, self.ended = period_s, 0.0, [], threading.Event()

    def run(self):
        next_time = time.monotonic() + self.period_s
        while not self.ended.wait(max(0.0, next_time - time.monotonic())):
            begun = time.monotonic()
            os.sync()
            self.took_s.append(round(time.monotonic() - begun, 4))
            self.cpu_s = time.thread_time()
            next_time = max(next_time + self.period_s, time.monotonic())

    def stop(self):
        self.ended.set()
        self.join()


def figures_of_usage(usage, sync_cpu_s, front_s, operations, what):
    """CPU time and counts, per operation.  what: the operations' name, in plural."""
    per_us = 1e6 / operations
    back_s = usage.kernel_s() + sync_cpu_s
    yield "CPU front end", f"us/{what[:-1]}", "lower", front_s * per_us
    yield "CPU back end", f"us/{what[:-1]}", "lower", back_s * per_us
    yield "CPU machine", f"us/{what[:-1]}", "lower", usage.busy_s * per_us
    yield from counts_of_disk(usage.disk, operations / 1000, f"per 1000 {what}")


def counts_of_disk(disk, divisor, unit):
    """Without a disk the figures are there, so that all filesystems have the same, but have no value."""
    for name, kind, value in (
            ("write bios", "", disk and disk["writes"] + disk["write_merges"]),
            ("write requests", "", disk and disk["writes"]),
            ("flushes", "", disk and disk["flushes"]),
            ("written", "KiB ", disk and disk["write_sectors"] * SECTOR_SIZE / 1024)):
        yield name, kind + unit, "lower", None if value is None else value / divisor


def details_of_usage(usage, sync_cpu_s, front_s, operations):
    return {"seconds": round(usage.seconds, 3), "operations": operations, "front_end_s": round(front_s, 4),
            "kernel_threads_s": usage.busiest(), "sync_caller_s": round(sync_cpu_s, 4),
            "machine_busy_s": usage.busy_s, "disk": usage.disk, "own_counters": usage.own}


# ---- dbench ----

def measure_dbench(setting):
    """params: load, clients, seconds, sync_s (0: never)"""
    params, marks = setting.params, []
    syncer = Syncer(params["sync_s"]) if params["sync_s"] else None

    def on_status(phase, second, lines):
        # A window in the steady part; the last mark counts.
        if phase == "execute" and (not marks or second >= params["seconds"] - 2):
            marks.append((setting.snapshot(), lines, syncer.cpu_s if syncer else 0))

    if syncer:
        syncer.start()
    try:
        text = dbench.run(setting.work / f"{params['load']}.txt", setting.path, params["seconds"], params["clients"],
                          on_status)
    finally:
        if syncer:
            syncer.stop()
    result = dbench.parse_result(text)
    yield "", "MB/s", "higher", result["mb_s"]
    yield "max latency", "ms", "lower", result["max_latency_ms"]
    for name, operation in result["operations"].items():
        yield f"{name} average", "us", "lower", operation["avg_ms"] * 1000
        yield f"{name} maximum", "ms", "lower", operation["max_ms"]
    if len(marks) >= 2 and marks[-1][1] > marks[0][1]:
        usage, operations = Usage(marks[0][0], marks[-1][0]), marks[-1][1] - marks[0][1]
        sync_cpu_s, front_s = marks[-1][2] - marks[0][2], usage.programs.get("dbench", 0)
        yield from figures_of_usage(usage, sync_cpu_s, front_s, operations, "operations")
        setting.details["window"] = details_of_usage(usage, sync_cpu_s, front_s, operations)
    setting.details["counts"] = {name: operation["count"] for name, operation in result["operations"].items()}
    setting.details["syncs_took_s"] = syncer.took_s if syncer else []


# ---- commands, and then sync ----

def children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Timed:
    """An action and then sync: the time of both, and what was used from the first to the last."""

    def __init__(self, setting, action):
        # What the snapshots use is not the measurement's.
        front, begin = children_cpu_s(), setting.snapshot()
        begun = time.monotonic()
        self.result = action()
        self.seconds = time.monotonic() - begun
        self.front_s = children_cpu_s() - front
        begun, cpu = time.monotonic(), time.thread_time()
        os.sync()
        self.and_sync_s = self.seconds + time.monotonic() - begun
        self.sync_cpu_s = time.thread_time() - cpu
        self.usage = Usage(begin, setting.snapshot())

    def figures(self, setting, title, operations, what):
        """title: in front of each name"""
        setting.details[title] = details_of_usage(self.usage, self.sync_cpu_s, self.front_s, operations)
        yield f"{title} and sync", "s", "lower", self.and_sync_s
        for name, *rest in figures_of_usage(self.usage, self.sync_cpu_s, self.front_s, operations, what):
            yield f"{title}: {name}", *rest


def touch_programs(*names):
    """Have them in the page cache: what they are read from is not what is measured."""
    for name in names:
        execute([name, "--version"])


def measure_tree(setting):
    """params: tar, copies, files (in one copy, of all kinds)"""
    params = setting.params
    tar = setting.work / params["tar"]
    copies = [setting.path / f"copy{n}" for n in range(params["copies"])]
    touch_programs("tar", "rm")

    def untar():
        for copy in copies:
            copy.mkdir()
            execute(["tar", "-xf", tar, "-C", copy])

    files = params["files"] * params["copies"]
    name = f"untar x{params['copies']}"
    timed = Timed(setting, untar)
    yield name, "s", "lower", timed.seconds
    yield from timed.figures(setting, name, files, "files")
    timed = Timed(setting, lambda: execute(["rm", "-r", *copies]))
    yield "rm -r", "s", "lower", timed.seconds
    yield from timed.figures(setting, "rm -r", files, "files")


def measure_fs_mark(setting):
    """params: files, bytes"""
    params = setting.params
    folder = setting.path / "fs_mark"
    folder.mkdir()
    touch_programs("rm")

    def create():
        # fs_mark takes only short path names.
        text = execute(["fs_mark", "-d", folder.name, "-n", params["files"], "-s", params["bytes"], "-S", 0, "-k",
                        "-t", 1, "-l", setting.work / "fs_mark.log"], cwd=setting.path)
        # Columns: FSUse%, Count, Size, Files/sec, App Overhead.
        lines = [line.split() for line in text.splitlines() if re.match(r"^\s*\d+\s+\d+\s+\d+\s+[0-9.]+\s+\d+", line)]
        if not lines:
            raise RuntimeError(f"fs_mark printed no result:\n{text[-2000:]}")
        return float(lines[-1][3])

    timed = Timed(setting, create)
    yield "create", "files/s", "higher", timed.result
    yield from timed.figures(setting, "create", params["files"], "files")
    timed = Timed(setting, lambda: execute(["rm", "-r", folder]))
    yield "rm -r", "s", "lower", timed.seconds
    yield from timed.figures(setting, "rm -r", params["files"], "files")


# ---- fsync ----

def measure_fsync(setting):
    """params: program, kind (of the program), count (for each process), processes, load ("" or that of the program), seconds"""
    params = setting.params
    if params["kind"] in ("overwrite", "rewritten", "saved"):
        execute([params["program"], setting.path, f"prepare-{params['kind']}", 1, params["processes"]])
    begin = setting.snapshot()
    text = execute([params["program"], setting.path, params["kind"], params["count"], params["processes"],
                    *([params["load"], params["seconds"]] if params["load"] else [])])
    usage = Usage(begin, setting.snapshot())
    mean_ns, max_ns, median_ns, p99_ns, operations, alone, beside = map(float, text.split())
    setting.details["usage"] = {"kernel_threads_s": usage.busiest(), "machine_busy_s": usage.busy_s, "disk": usage.disk,
                                "own_counters": usage.own, "operations": operations, "load_alone": alone, "load_beside": beside}
    if params["load"]:
        # The machine and the disk are the load's, too.
        yield "median", "ms", "lower", median_ns / 1e6
        yield "p99", "ms", "lower", p99_ns / 1e6
        yield "max latency", "ms", "lower", max_ns / 1e6
        yield "load alone", "/s", "higher", alone
        yield "load beside it", "/s", "higher", beside
        return
    yield "", "ms", "lower", mean_ns / 1e6
    yield "median", "ms", "lower", median_ns / 1e6
    yield "max latency", "ms", "lower", max_ns / 1e6
    yield from counts_of_disk(usage.disk, operations, "per operation")
    yield "CPU machine", "us/operation", "lower", usage.busy_s * 1e6 / operations


# ---- mappings ----

def measure_mmap(setting):
    """params: program, way (of the program), mib"""
    params, path = setting.params, setting.path / "file"
    begin = setting.snapshot()
    stored_ns, durable_ns, pieces = map(int, execute([params["program"], path, "fill", params["way"], params["mib"]]).split())
    usage = Usage(begin, setting.snapshot())
    drop_caches()
    read_ns = int(execute([params["program"], path, "read", params["mib"]]))
    yield "", "s", "lower", durable_ns / 1e9
    yield "stores alone", "s", "lower", stored_ns / 1e9
    yield "pieces", "runs", "lower", None if pieces < 0 else pieces
    yield "cold read", "s", "lower", setting.disk and read_ns / 1e9
    yield from counts_of_disk(usage.disk, params["mib"], "per MiB")
    yield "CPU machine", "ms/MiB", "lower", usage.busy_s * 1e3 / params["mib"]
    setting.details["usage"] = {"kernel_threads_s": usage.busiest(), "disk": usage.disk, "own_counters": usage.own}


# ---- direct I/O ----

def measure_direct(setting):
    """params: program, way (of the program), mib, count; the file is made first"""
    params, path = setting.params, setting.path / "file"
    writes = params["way"] in ("write", "rewrite")
    if params["way"] != "write":
        execute([params["program"], path, "write", params["mib"]])
        mount_anew(setting)
    begin = setting.snapshot()
    command = [params["program"], path, params["way"], params["mib"], params["count"]]
    done_ns, durable_ns, cached = map(int, execute(command).split())
    usage = Usage(begin, setting.snapshot())
    yield "", "s", "lower", done_ns / 1e9
    yield "durable", "s", "lower", durable_ns / 1e9 if writes else None
    yield "CPU machine", "s", "lower", usage.busy_s
    yield "in the page cache", "MiB", "lower", cached * 4096 / (1 << 20)
    setting.details["usage"] = {"kernel_threads_s": usage.busiest(), "disk": usage.disk, "own_counters": usage.own}


# ---- bulkstat ----

def mount_anew(setting):
    """Nothing of it is in memory.  Dropping caches does not do that: what is not at its place on the disk yet stays."""
    kind, device = mount_line(setting.path).split()[0], f"/dev/{setting.disk}"
    execute(["umount", setting.path])
    drop_caches()
    execute(["mount", "-t", kind, device, setting.path])


def walk(setting, name, reads):
    """All inodes by bulkstat, and what that took; reads: tell what was read of the disk, too.  params of it: bulkstat (program),
    wanted (inodes with each call), files, directories and bytes (of each file) that there are."""
    params, expected = setting.params, setting.params["files"] + setting.params["directories"] + 1
    begin = setting.snapshot()
    ns, cpu_ns, inodes, calls, size = map(int, execute([params["bulkstat"], setting.path, params["wanted"]]).split())
    usage = Usage(begin, setting.snapshot())
    if inodes < expected or size < params["files"] * params["bytes"]:
        raise RuntimeError(f"bulkstat told {inodes} inodes with {size} bytes, {expected} were made")
    yield name, "us/inode", "lower", ns / 1e3 / inodes
    yield f"{name}: CPU in all", "us/inode", "lower", (cpu_ns / 1e3 + usage.kernel_s() * 1e6) / inodes
    yield f"{name}: CPU front end", "us/inode", "lower", cpu_ns / 1e3 / inodes
    yield f"{name}: CPU back end", "us/inode", "lower", usage.kernel_s() * 1e6 / inodes
    yield f"{name}: CPU machine", "us/inode", "lower", usage.busy_s * 1e6 / inodes
    if reads:
        yield f"{name}: read requests", "per 1000 inodes", "lower", usage.disk and usage.disk["reads"] * 1e3 / inodes
        yield f"{name}: read", "bytes/inode", "lower", usage.disk and usage.disk["read_sectors"] * SECTOR_SIZE / inodes
    setting.details[name] = {"inodes": inodes, "calls": calls, "disk": usage.disk, "own_counters": usage.own,
                             "kernel_threads_s": usage.busiest()}


def measure_bulkstat(setting):
    """params: names (program), and those of walk()"""
    params = setting.params
    execute([params["names"], setting.path, "create", params["files"], params["directories"], params["bytes"]])
    os.sync()
    yield from walk(setting, "just made", False)
    mount_anew(setting)
    yield from walk(setting, "cold", True)
    yield from walk(setting, "again", False)


# ---- names ----

def phase(setting, name, words, operations, what):
    """The figures of a command: the time of each of its operations, until all is durable."""
    timed, unit = Timed(setting, lambda: execute(words)), f"us/{what[:-1]}"
    setting.details[name] = details_of_usage(timed.usage, timed.sync_cpu_s, timed.front_s, operations)
    yield name, unit, "lower", timed.and_sync_s * 1e6 / operations
    yield f"{name}: CPU in all", unit, "lower", (timed.front_s + timed.usage.kernel_s() + timed.sync_cpu_s) * 1e6 / operations
    for part, *rest in figures_of_usage(timed.usage, timed.sync_cpu_s, timed.front_s, operations, what):
        yield f"{name}: {part}", *rest


def measure_names(setting):
    """params: names (program), with_bulkstat (filesystems that have it), and those of walk()"""
    params = setting.params
    files, directories = params["files"], params["directories"]
    create = [params["names"], setting.path, "create", files, directories, params["bytes"]]
    unlink = [params["names"], setting.path, "unlink", files, directories]
    yield from phase(setting, "create", create, files, "files")
    if mount_line(setting.path).split()[0] in params["with_bulkstat"]:
        yield from walk(setting, "bulkstat warm", False)
        mount_anew(setting)
        yield from walk(setting, "bulkstat cold", True)
    mount_anew(setting)
    yield from phase(setting, "unlink cold", unlink, files, "files")
    execute(create)
    os.sync()
    yield from phase(setting, "unlink warm", unlink, files, "files")


def measure_maildir(setting):
    """params: names (program), mails"""
    for name in ("deliver", "remove"):
        mails = setting.params["mails"]
        yield from phase(setting, name, [setting.params["names"], setting.path, name, mails], mails, "mails")


# ---- a volume that is nearly full ----

MIB = 1 << 20


def available(path):
    told = os.statvfs(path)
    return told.f_bavail * told.f_frsize


def fill(path, left):
    """By one file, until statfs says that so many bytes are left; 0: until nothing more goes in.  What it says then."""
    with open(path / "filler", "wb", buffering=0) as filler:
        for _ in range(50):
            try:
                while not left or available(path) >= left + MIB:
                    filler.write(bytes(MIB))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            os.sync()
            if available(path) < left + 2 * MIB:
                break
    return available(path)


def fails_for_space(command):
    """Does it say that there is no space?  Any other failure is an error."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, errors="replace", check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode and "No space left on device" not in done.stderr:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.returncode != 0


def measure_nearly_full(setting):
    """params: left (MiB; None: the volume is empty), and one of: dd (MiB), tar and copies, tasks (with program, bytes, rounds)"""
    params = setting.params
    if params["left"] is not None:
        setting.details["left"] = fill(setting.path, params["left"] * MIB)
    if "dd" in params:
        touch_programs("dd")
        commands = [["dd", "if=/dev/zero", f"of={setting.path}/dd", "bs=1M", f"count={params['dd']}"]]
    elif "tar" in params:
        touch_programs("tar")
        commands = []
        for n in range(params["copies"]):
            # On a full volume there is no room for a directory of its own.
            folder = setting.path / f"copy{n}" if params["copies"] > 1 else setting.path
            if folder != setting.path:
                folder.mkdir()
            commands.append(["tar", "-xf", setting.work / params["tar"], "-C", folder])
    else:
        commands = [[params["program"], setting.path, params["tasks"], params["bytes"], params["rounds"]]]
    timed = Timed(setting, lambda: sum(map(fails_for_space, commands)))
    yield "", "s", "lower", timed.seconds
    yield "and sync", "s", "lower", timed.and_sync_s
    yield "refused", "commands", "lower", timed.result
    told = os.statvfs(setting.path)
    yield "in use at the end", "%", "higher", 100 * (1 - told.f_bavail / told.f_blocks)
    yield "CPU machine", "s", "lower", timed.usage.busy_s
    yield from counts_of_disk(timed.usage.disk, 1, "in all")
    setting.details["usage"] = details_of_usage(timed.usage, timed.sync_cpu_s, timed.front_s, 1)


MEASUREMENTS = {"dbench": measure_dbench, "tree": measure_tree, "fs_mark": measure_fs_mark, "fsync": measure_fsync,
                "mmap": measure_mmap, "direct": measure_direct, "bulkstat": measure_bulkstat, "names": measure_names,
                "maildir": measure_maildir, "nearly full": measure_nearly_full}
