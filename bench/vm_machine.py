# SPDX-License-Identifier: GPL-2.0-or-later
"""Has bench/guest/agent.py do measurements in virtual machines (vm/run), and hands on what it prints.

The disk is one sparse image file in memory, used by all filesystems one after the other.  Each round has a machine
booted for it, in which each measurement is done on all filesystems right after each other: near in time, so
that what disturbs this computer disturbs them alike, and all on the same kernel in the same places of memory.  What the
one before left is cleared away as far as can be: a discarded disk, a new filesystem, caches dropped, memory compacted.
"""
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from common import ROOT, describe_directory, sparse_file
from common import run as execute

IMAGE_SIZE = 8 << 30
GUEST_WORK = "/tmp/bench-work"
# As vm/cache.py has it.
CACHE = Path(os.environ.get("TUX3_CACHE") or ROOT / "cache/vm")
BOOT_LIMIT_S = 300
# vm/run's exit status for it.
KERNEL_DEFECT, DEFECT = 97, "the kernel told of a defect"


class Step:
    """One measurement of one filesystem in one round."""

    def __init__(self, group, fs, number, limit_s):
        self.group, self.fs, self.round, self.limit_s = group, fs, number, limit_s

    def job(self):
        return {"fs": self.fs, "measurement": self.group.measurement, "params": self.group.params}

    def __str__(self):
        return f"{self.group.title}, {self.fs}, round {self.round + 1}"


class Lines:
    """Lines from a pipe, with a limit on the wait for each."""

    def __init__(self, pipe):
        self.pipe, self.data = pipe, b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(pipe, selectors.EVENT_READ)

    def next(self, limit_s):
        """None at the end; TimeoutError."""
        while b"\n" not in self.data:
            if not self.selector.select(limit_s):
                raise TimeoutError
            more = os.read(self.pipe.fileno(), 1 << 16)
            if not more:
                return None
            self.data += more
        line, _, self.data = self.data.partition(b"\n")
        return line.decode(errors="replace")


def programs_disk(part, path):
    """What vm/fetch has of this part, postgresql for one, as a disk of its own: vm/run gives disks to write to."""
    execute([ROOT / "vm/fetch", part])
    shutil.copy(CACHE / part / "root.img", path)
    return path


def disk_name(number):
    """In the guest."""
    return f"/dev/vd{chr(ord('a') + number)}"


class VmRun:
    """vm/run at work: its lines, and in the end what it had to say beside them."""

    def __init__(self, command):
        self.command, self.complaints = command, ""

    def __enter__(self):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors)
        self.lines = Lines(self.process.stdout)
        return self

    def __exit__(self, *_error):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        self.complaints = self.errors.read().decode(errors="replace").strip()
        self.errors.close()

    def described(self):
        """What vm/run says it is; None."""
        told = [line for line in self.complaints.splitlines() if line.startswith("# vm: ")]
        return told[0].removeprefix("# vm: ") if told else None


class Bench:
    """Steps to be done; settings that are known once a machine runs; troubles: sentences.

    on_result(step, result): called for each step that was done.
    """

    def __init__(self, args, names, on_result, image_size=IMAGE_SIZE):
        self.args, self.names, self.on_result, self.image_size = args, names, on_result, image_size
        self.throttle = getattr(args, "throttle", None)
        self.settings, self.mounted, self.troubles, self.copy_in, self.more_disks = {}, {}, [], [], []
        self.xfsprogs = None
        self.begun = self.settled = 0
        shm = Path("/dev/shm")
        place = shm if os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > image_size / 2 else ROOT / "build"
        self.folder = Path(tempfile.mkdtemp(prefix="tux3-bench-", dir=place))
        self.image = self.folder / "disk.img"
        sparse_file(self.image, image_size)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def add_disk(self, path):
        """Its name in the guest."""
        self.more_disks.append(path)
        return disk_name(len(self.more_disks))

    def add_programs(self):
        """What the filesystems need that the guest does not have: after the disks of the benchmark itself."""
        if any(name.startswith("xfs-parent") for name in self.names):
            self.xfsprogs = self.add_disk(programs_disk("xfsprogs", self.folder / "xfsprogs"))

    def describe(self):
        return {
            "file systems": ", ".join(self.names),
            "disk": f"one sparse image file of {self.image_size >> 30} GiB in {describe_directory(self.folder.parent)}, the "
                    "same for all in turn; virtio-blk, raw, cache=writeback; before each measurement discarded as a "
                    "whole and the filesystem made anew",
            "before each measurement": "sync, drop_caches=3, compact_memory=1",
            "rounds": f"{self.args.rounds}, a machine booted for each; within it each measurement is done on all "
                      "filesystems one right after the other, their order rotated and every other round reversed",
        }

    def run(self, steps):
        """All of them; a machine that dies costs the step that it was doing."""
        for number in sorted({step.round for step in steps}):
            todo = [step for step in steps if step.round == number]
            while todo:
                done = self.boot(todo)
                todo = todo[done:]

    def command(self, steps):
        job = {"disk": disk_name(0), "work": GUEST_WORK, "filesystems": self.names,
               "steps": [step.job() for step in steps], "xfsprogs": self.xfsprogs}
        job_file = self.folder / "job.json"
        job_file.write_text(json.dumps(job))
        copies = [(job_file, "job.json"), *((path, path.name) for path in self.copy_in)]
        limit_s = BOOT_LIMIT_S + sum(step.limit_s for step in steps)
        return [str(word) for word in (
            ROOT / "vm/run", "--cpus", self.args.cpus, "--memory", self.args.memory, "--disk", self.image,
            *(word for disk in self.more_disks for word in ("--disk", disk)),
            *(["--throttle", self.throttle] if self.throttle else []), "--timeout", limit_s, *([] if "tux3" in self.names else ["--no-module"]),
            *(word for path, name in copies for word in ("--copy-in", f"{path}:{GUEST_WORK}/{name}")),
            "--", "/usr/bin/python3", "bench/guest/agent.py", f"{GUEST_WORK}/job.json")]

    def boot(self, steps):
        """One machine.  How many of the steps are settled then; at least one, or RuntimeError."""
        self.settled, self.begun, failed = 0, 0, ""
        with VmRun(self.command(steps)) as machine:
            try:
                self.listen(machine.lines, steps)
                status = machine.process.wait(BOOT_LIMIT_S)
                if status:
                    failed = DEFECT if status == KERNEL_DEFECT else f"vm/run ended with exit status {status}"
            except (TimeoutError, subprocess.TimeoutExpired):
                failed = "no answer"
        text = machine.complaints
        if told := machine.described():
            self.settings.setdefault("machine", told)
        if failed:
            self.explain(failed, text, steps)
        # A step that was begun and has no result is lost.  After an error the agent may have ended on purpose.
        return max(self.begun, self.settled, 1)

    def explain(self, failed, text, steps):
        print(text, flush=True)
        if "guest kernel" not in self.settings:
            raise RuntimeError(f"no virtual machine: {failed}")
        if self.begun > self.settled:
            self.trouble(f"{failed}, while it did {steps[self.begun - 1]}")
        elif failed == DEFECT or self.settled == len(steps):
            self.trouble(f"{failed}, in round {steps[0].round + 1}")

    def trouble(self, text):
        print(f"  TROUBLE: {text}", flush=True)
        self.troubles.append(text)

    def listen(self, lines, steps):
        """Until the agent's end.  Counts the steps it has begun, and settled: with a result or an error."""
        limit_s = BOOT_LIMIT_S
        while (line := lines.next(limit_s)) is not None:
            try:
                said = json.loads(line)
            except ValueError:
                print(f"  guest: {line}", flush=True)
                continue
            if "machine" in said:
                self.settings.update(said["machine"])
            elif "begin" in said:
                self.begun = said["begin"] + 1
                limit_s = steps[said["begin"]].limit_s
            elif "step" in said:
                step = steps[said["step"]]
                self.settled = said["step"] + 1
                limit_s = BOOT_LIMIT_S
                if "error" in said:
                    self.trouble(f"{step}: {said['error']}")
                else:
                    self.mounted.setdefault(step.fs, said["mounted"])
                    self.on_result(step, said)
