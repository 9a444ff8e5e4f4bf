#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in the virtual machine for bench/run crash: records a program's load on each filesystem, then looks at it after each cut.

	crash.py JOB

JOB: {"program", "seconds", "cuts", "seed", "work": folder, "base": disk, "cow": disk, "pairs": [{"fs", "disk", "log"}],
      "image": disk with more programs, or null, "record": false if the logs are there already, "cut": the only one to look at, or null}

Lines of JSON: {"machine": settings}, {"recorded": fs, ...} for each filesystem, {"cut": number, "fs", "state", ...} for each cut,
{"error": sentence, "fs"}.
"""
import json
import multiprocessing
import os
import platform
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from crash_dpkg import Dpkg
from crash_git import Git
from crash_postgres import Postgres
from crash_program import Damage
from crash_record import START, Log, Progress, Recording, Replay, mount_cut
from crash_rename import Rename, RenameNew
from crash_sqlite import Sqlite, SqliteWal
from filesystems import FILESYSTEMS, execute, mount_line

PROGRAMS = {"rename": Rename, "rename-new": RenameNew, "sqlite": Sqlite, "sqlite-wal": SqliteWal, "git": Git,
            "dpkg": Dpkg, "postgresql": Postgres}
SYSCTLS = ("dirty_background_ratio", "dirty_ratio", "dirty_expire_centisecs", "dirty_writeback_centisecs")


def say(**what):
    print(json.dumps(what), flush=True)


def describe_machine(job):
    settings = {
        "guest kernel": f"{platform.release()} {platform.version()}",
        "guest CPUs": str(os.cpu_count()),
        "guest vm settings": ", ".join(f"{name} {Path('/proc/sys/vm', name).read_text().strip()}" for name in SYSCTLS),
        job["program"]: PROGRAMS[job["program"]].describe(),
    }
    for pair in job["pairs"]:
        fs = FILESYSTEMS[pair["fs"]]
        settings[f"{fs.name} made by"] = f"{fs.describe()}; {fs.version()}"
    return settings


class Pair:
    """The program on one of the filesystems."""

    def __init__(self, job, pair):
        self.job, self.fs, self.log = job, FILESYSTEMS[pair["fs"]], pair["log"]
        self.path = Path(job["work"]) / self.fs.name
        self.program = PROGRAMS[job["program"]](self.path / "data", job["seed"])
        self.recording = Recording(self.fs, pair["disk"], pair["log"], self.path)
        self.mounted = None

    def prepare(self):
        self.recording.begin()
        self.mounted = mount_line(self.path)
        self.program.folder.mkdir()
        self.program.setup()
        execute(["sync", "-f", self.path])
        self.recording.mark(START)

    def load(self):
        progress = Progress(self.recording, self.job["seconds"])
        try:
            self.program.load(progress)
            progress.end()
        finally:
            self.program.stop()

    def look(self):
        """At each cut."""
        log = Log(self.log)
        say(recorded=self.fs.name, mounted=self.mounted, **log.describe())
        replay = Replay(log, self.job["base"], self.job["cow"])
        for cut in log.cuts(self.job["cuts"], f"{self.job['seed']}/{self.job['program']}/{self.fs.name}"):
            if self.job["cut"] in (None, cut.number):
                seconds, count = log.acknowledged(cut)
                replay.make(cut)
                try:
                    found = self.look_at(replay.device, count)
                finally:
                    replay.drop()
                if found.get("found") is not None:
                    found["missing_s"] = round(log.missing_s(cut, found["found"]), 2)
                say(cut=cut.number, fs=self.fs.name, kind=cut.kind, entry=cut.entry, seconds=seconds, acknowledged=count, **found)

    def look_at(self, device, acknowledged):
        try:
            mount_cut(self.fs, device, self.path)
        except RuntimeError as error:
            return damaged(error)
        try:
            found = self.program.check(acknowledged)
            order = self.program.in_order(found)
            return {"state": "whole" if found >= acknowledged else "stale", "found": found, "disorder": order}
        except (Damage, OSError, UnicodeError) as damage:
            return damaged(damage)
        finally:
            self.program.stop()
            execute(["umount", self.path])


def damaged(why):
    return {"state": "damaged", "why": " ".join(str(why).split())[:300]}


def load_pair(pair):
    pair.load()


def record(pairs):
    """All at the same time."""
    for pair in pairs:
        pair.prepare()
    with ProcessPoolExecutor(len(pairs), multiprocessing.get_context("fork")) as pool:
        list(pool.map(load_pair, pairs))
    for pair in pairs:
        pair.recording.finish()


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    for name in ("dm-log-writes", "dm-snapshot"):
        execute(["modprobe", name])
    pairs = [Pair(job, pair) for pair in job["pairs"]]
    try:
        PROGRAMS[job["program"]].once(job)
        say(machine=describe_machine(job))
        if job["record"]:
            record(pairs)
        for pair in pairs:
            pair.look()
    except (Damage, OSError, RuntimeError, subprocess.SubprocessError) as error:
        say(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
