# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel counts: I/O of a disk, CPU time of tasks and of the whole machine.  Snapshots, and their differences.

CPU time of a task is what the scheduler says (schedstat: nanoseconds), busy time of the machine is what the timer ticks
say (/proc/stat), so the two differ a little.  A kernel thread that ended between two snapshots is missed; workers of
the kernel live for minutes after their last work.
"""
import os
import re
import time

# Of the fields of /sys/block/DISK/stat, by position.
DISK_FIELDS = {
    "reads": 0, "read_merges": 1, "read_sectors": 2, "writes": 4, "write_merges": 5, "write_sectors": 6,
    "discards": 11, "flushes": 15,
}
SECTOR_SIZE = 512
PF_KTHREAD = 0x00200000


def parse_disk_stat(text):
    """Counters of a block device."""
    fields = [int(word) for word in text.split()]
    if len(fields) < 17:
        raise ValueError(f"a kernel that does not count flushes: {text.strip()}")
    return {name: fields[position] for name, position in DISK_FIELDS.items()}


def parse_busy_ticks(text):
    """From /proc/stat: ticks in which any CPU was not idle."""
    words = text.splitlines()[0].split()
    if words[0] != "cpu":
        raise ValueError(f"no line of all CPUs: {text[:60]}")
    user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in words[1:8])
    return user + nice + system + irq + softirq


def parse_task_stat(text):
    """(name, whether a kernel thread, ticks in user mode, ticks in the kernel) from /proc/PID/stat."""
    # The name may hold blanks and parentheses.
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return name, bool(int(rest[6]) & PF_KTHREAD), int(rest[11]), int(rest[12])


def thread_group(name):
    """Kernel threads that do the same work have one name here."""
    if name.startswith("kworker"):
        return "kworker"
    return re.sub(r"[-/:]?(\d+|vd[a-z]|u\d+)(:\w+)*$", "", name) or name


def read_text(path):
    with open(path) as file:
        return file.read()


def read_tasks():
    """{pid: (name, whether a kernel thread, nanoseconds of CPU, user ticks, system ticks)}"""
    tasks = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, kernel, user, system = parse_task_stat(read_text(f"/proc/{pid}/stat"))
            ns = 0
            for thread in [pid] if kernel else os.listdir(f"/proc/{pid}/task"):
                ns += int(read_text(f"/proc/{pid}/task/{thread}/schedstat").split()[0])
            tasks[int(pid)] = (name, kernel, ns, user, system)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return tasks


def read_numbers(folder):
    """{name: number} of the files in a folder that hold one."""
    numbers = {}
    for name in os.listdir(folder) if folder and os.path.isdir(folder) else []:
        try:
            numbers[name] = int(read_text(f"{folder}/{name}"))
        except (OSError, ValueError):
            # No number, or busy.
            continue
    return numbers


class Snapshot:
    """All counters, now.

    disk: a block device's name, or None.  own_folder: where the filesystem has counters of its own, or None.
    """

    def __init__(self, disk, own_folder=None):
        self.time = time.monotonic()
        self.disk = parse_disk_stat(read_text(f"/sys/block/{disk}/stat")) if disk else None
        # Before and after our own work.
        self.busy_ticks_before = parse_busy_ticks(read_text("/proc/stat"))
        self.tasks = read_tasks()
        self.busy_ticks_after = parse_busy_ticks(read_text("/proc/stat"))
        self.own = read_numbers(own_folder)


class Usage:
    """What happened between two snapshots."""

    def __init__(self, begin, end):
        self.seconds = end.time - begin.time
        self.disk = {name: end.disk[name] - begin.disk[name] for name in end.disk} if end.disk else None
        self.busy_s = (end.busy_ticks_before - begin.busy_ticks_after) / os.sysconf("SC_CLK_TCK")
        self.kernel_threads = {}
        self.programs = {}
        for pid, (name, kernel, ns, _, _) in end.tasks.items():
            before = begin.tasks.get(pid, (None, None, 0))[2]
            where, group = (self.kernel_threads, thread_group(name)) if kernel else (self.programs, name)
            where[group] = where.get(group, 0) + (ns - before) / 1e9
        # Of some the difference means nothing: the name tells.
        self.own = {name: end.own[name] - begin.own[name] for name in sorted(end.own)
                    if name in begin.own and end.own[name] != begin.own[name]}

    def kernel_s(self):
        return sum(self.kernel_threads.values())

    def busiest(self, at_least_s=0.005):
        """Kernel threads that did something worth mentioning."""
        return {name: round(s, 4) for name, s in sorted(self.kernel_threads.items(), key=lambda item: -item[1])
                if s >= at_least_s}
