# SPDX-License-Identifier: GPL-2.0-or-later
"""Records what a filesystem writes, and makes of it what a power cut would have left on the disk.

The recorder is the kernel's dm-log-writes.  It puts a write into its log when a flush has come after it, or when it is complete
if it is FUA; so all that is in the log before a flush was durable then, in any order that a disk may have chosen.  A cut is a
place in that log.  There are two kinds:

	order	the disk kept its order: all of the log up to there, of the last write only a part (whole 4 KiB, from the start)
	cache	the disk has a volatile cache: what is before the last flush, and what is FUA; of other blocks of 4 KiB each
		is there with probability 1/2

What the filesystem has discarded stays: a disk need not do anything about it.
"""
import os
import random
import sys
import time
from pathlib import Path

from filesystems import ROOT, execute

sys.path.insert(0, str(ROOT / "tests/vm"))

from log_writes import DISCARD, FLUSH, FUA, index, read_data

BLOCK = 4096
MARK_INTERVAL_S = 0.5
START, END = "start", "end"


def dmsetup(*words, table=None):
    execute(["dmsetup", *words, *(["--table", table] if table else [])])


def sectors(disk):
    return int(execute(["blockdev", "--getsz", disk]))


class Recording:
    """A filesystem on a device whose writes go into a log as well."""

    def __init__(self, fs, disk, log, path):
        self.fs, self.disk, self.log, self.path = fs, disk, log, path
        self.name = f"crash-{fs.name}"

    def begin(self):
        for disk in (self.disk, self.log):
            execute(["blkdiscard", "-f", disk])
        dmsetup("create", self.name, table=f"0 {sectors(self.disk)} log-writes {self.disk} {self.log}")
        self.fs.mount(f"/dev/mapper/{self.name}", self.path)

    def mark(self, text):
        dmsetup("message", self.name, "0", "mark", text)

    def finish(self):
        execute(["umount", self.path])
        dmsetup("remove", self.name)


class Progress:
    """How far a load has come, as marks among the writes.  What is told with done() has been acknowledged to the program."""

    def __init__(self, recording, seconds):
        self.recording, self.begun, self.seconds, self.marked, self.count = recording, time.monotonic(), seconds, 0, 0

    def passed(self):
        return time.monotonic() - self.begun

    def over(self):
        return self.passed() >= self.seconds

    def done(self, count):
        self.count = count
        if self.passed() - self.marked >= MARK_INTERVAL_S:
            self.marked = self.passed()
            self.recording.mark(f"{self.marked:.2f}:{count}")

    def end(self):
        self.recording.mark(f"{self.passed():.2f}:{self.count}")
        self.recording.mark(END)


class Cut:
    def __init__(self, number, entry, kind, seed):
        self.number, self.entry, self.kind, self.seed = number, entry, kind, seed


class Log:
    """What was recorded, cuts of it, and how far the program had come at each."""

    def __init__(self, disk):
        self.file = open(disk, "rb")
        self.entries = list(index(self.file))
        marks = [entry for entry in self.entries if entry.text]
        self.start, self.end = (next(e.number for e in marks if e.text == text) for text in (START, END))
        self.progress = []
        for entry in marks:
            if self.start < entry.number < self.end:
                seconds, count = entry.text.split(":")
                self.progress.append((entry.number, float(seconds), int(count)))
        self.writes = [e.number for e in self.entries[self.start:self.end] if e.size and not e.flags & DISCARD]

    def describe(self):
        part = self.entries[self.start:self.end]
        return {"writes": len(self.writes), "flushes": sum(bool(e.flags & FLUSH) for e in part),
                "bytes": sum(self.entries[number].size for number in self.writes),
                "seconds": self.progress[-1][1], "done": self.progress[-1][2]}

    def cuts(self, count, seed):
        """In the order of the log; every second one is of the other kind.  After the same write only if there are not enough."""
        chance = random.Random(seed)
        chosen = chance.sample(self.writes, min(count, len(self.writes)))
        if self.writes:
            chosen += chance.choices(self.writes, k=count - len(chosen))
        chosen.sort()
        return [Cut(number, entry, ("order", "cache")[number % 2], f"{seed}/{number}")
                for number, entry in enumerate(chosen)]

    def acknowledged(self, cut):
        """(seconds, count) when the power went."""
        before = [(seconds, count) for entry, seconds, count in self.progress if entry <= cut.entry]
        return before[-1] if before else (0, 0)

    def missing_s(self, cut, found):
        """How long before the cut what was found was all that there was."""
        now, _ = self.acknowledged(cut)
        return max(0, now - next((seconds for _, seconds, count in self.progress if count >= found), now))

    def parts(self, cut):
        """After the last flush before the cut: what of it is on the disk, as (offset, data)."""
        chance = random.Random(cut.seed)
        for entry in self.entries[self.last_flush(cut):cut.entry + 1]:
            data = read_data(self.file, entry)
            if cut.kind == "order":
                kept = chance.randrange(len(data) // BLOCK + 1) * BLOCK if entry.number == cut.entry else len(data)
                yield entry.offset, data[:kept]
            elif entry.flags & FUA:
                yield entry.offset, data
            else:
                for at in range(0, len(data), BLOCK):
                    if chance.random() < 0.5:
                        yield entry.offset + at, data[at:at + BLOCK]

    def last_flush(self, cut):
        return next((n for n in range(cut.entry, -1, -1) if self.entries[n].flags & FLUSH), 0)


class Replay:
    """The disk at one cut after the other.  What a check changes is on another one, and forgotten."""

    NAME = "crash-cut"

    def __init__(self, log, base, cow):
        self.log, self.base, self.cow, self.next = log, base, cow, 0
        execute(["blkdiscard", "-f", base])
        self.device = f"/dev/mapper/{self.NAME}"

    def make(self, cut):
        flush = self.log.last_flush(cut)
        with open(self.base, "r+b", buffering=0) as disk:
            for entry in self.log.entries[self.next:flush]:
                os.pwrite(disk.fileno(), read_data(self.log.file, entry), entry.offset)
            os.fsync(disk.fileno())
        self.next = max(self.next, flush)
        execute(["blkdiscard", "-f", self.cow])
        dmsetup("create", self.NAME, table=f"0 {sectors(self.base)} snapshot {self.base} {self.cow} N 8")
        with open(self.device, "r+b", buffering=0) as disk:
            for offset, data in self.log.parts(cut):
                os.pwrite(disk.fileno(), data, offset)
            os.fsync(disk.fileno())

    def drop(self):
        dmsetup("remove", "--retry", self.NAME)


def mount_cut(fs, device, path):
    if fs.name == "btrfs":
        # It remembers volumes, and takes this one for the older one of two that are the same.
        execute(["btrfs", "device", "scan", "--forget"])
    Path(path).mkdir(exist_ok=True)
    execute(["mount", "-t", fs.name, *fs.mount_words, device, path])
