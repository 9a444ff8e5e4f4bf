# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs lose when the power goes: tux3 beside ext4, xfs and btrfs, in a virtual machine.

For each program a machine is booted, in which it runs on all filesystems at the same time, on a disk each, whose writes are
recorded (dm-log-writes).  Then the power is cut: at places of the recording that a seed chooses, evenly over all writes, the
disk is made as a cut there would have left it, mounted again as the kernel does it (peers with their default options), and
looked at by the program's own means.  Half of the cuts keep the order of the writes ("order": all up to there, of the last one a
part), the other half do what a disk's volatile cache may do ("cache": what was flushed or is FUA, and any others).

A state is whole, or stale (the end is missing, nothing else), or damaged.  Missing is the time between the last thing that is
there and the cut, of states that are not damaged: median, and at most.  It is an upper bound, since the recorder has a write only
when it is flushed.
Goal: nothing damaged on tux3, and nothing out of order.
"""
import json
import random
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from common import BUILD, ROOT, describe_directory, machine, need, print_config, print_goals, print_table
from common import run as execute, sparse_file
from vm_machine import VmRun, programs_disk

FILESYSTEMS = ("tux3", "ext4", "xfs", "btrfs")
PROGRAMS = ("rename", "rename-new", "sqlite", "sqlite-wal", "git", "dpkg", "postgresql")
DISK_SIZE, LOG_SIZE, COW_SIZE = 2 << 30, 8 << 30, 1 << 30
GUEST_WORK = "/tmp/crash"
BOOT_LIMIT_S, CUT_LIMIT_S = 300, 60
DESCRIPTION = "recording.json"


def add_options(parser):
    parser.add_argument("--only", metavar="PROGRAM", action="append", choices=PROGRAMS,
                        help=f"only this one (may be repeated): {', '.join(PROGRAMS)}")
    parser.add_argument("--filesystems", metavar="LIST", default=",".join(FILESYSTEMS), help="separated by commas (%(default)s)")
    parser.add_argument("--cuts", type=int, metavar="N", help="for each program and filesystem (20; 4 with --quick)")
    parser.add_argument("--seconds", type=int, metavar="N", help="that a program runs (75; 8 with --quick)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the cuts (a new one)")
    parser.add_argument("--keep", metavar="FOLDER", default=BUILD / "crash",
                        help="where recordings with damage on tux3 are kept, and those of --keep-all (%(default)s)")
    parser.add_argument("--keep-all", action="store_true", help="keep all recordings: up to a GB each")
    parser.add_argument("--replay", metavar="FOLDER", help="look at the cuts of a recording that was kept")
    parser.add_argument("--cut", type=int, metavar="N", help="only at this one, with --replay")
    parser.add_argument("--memory", type=int, default=4096, metavar="MB", help="of the machine (%(default)s)")
    parser.add_argument("--cpus", type=int, default=2, metavar="N", help="of the machine (%(default)s)")


class Machine:
    """One boot: a program, all filesystems.  The disks are sparse files in memory."""

    def __init__(self, args, program, names, replayed=None):
        self.args, self.program, self.names, self.replayed = args, program, names, replayed
        self.settings, self.recorded, self.cuts, self.troubles = {}, {}, [], []
        shm = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="tux3-crash-", dir=shm if shm.is_dir() else BUILD))

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_file(self, name):
        return Path(self.replayed) / f"{name}.log" if self.replayed else self.folder / f"{name}.log"

    def command(self):
        """What vm/run is told; disks in the order of their letters."""
        disks, pairs = [self.folder / "base", self.folder / "cow"], []
        sparse_file(disks[0], DISK_SIZE)
        sparse_file(disks[1], COW_SIZE)
        for name in self.names:
            disk, log = self.folder / f"{name}.disk", self.log_file(name)
            sparse_file(disk, DISK_SIZE)
            if not self.replayed:
                sparse_file(log, LOG_SIZE)
            pairs.append({"fs": name, "disk": f"/dev/vd{chr(97 + len(disks))}", "log": f"/dev/vd{chr(98 + len(disks))}"})
            disks += [disk, log]
        image = None
        if self.program == "postgresql":
            image = f"/dev/vd{chr(97 + len(disks))}"
            disks.append(programs_disk("postgresql", self.folder / "programs"))
        args = self.args
        job = {"program": self.program, "seconds": args.seconds, "cuts": args.cuts, "seed": args.seed, "work": GUEST_WORK,
               "base": "/dev/vda", "cow": "/dev/vdb", "pairs": pairs, "image": image, "record": not self.replayed, "cut": args.cut}
        (self.folder / "job.json").write_text(json.dumps(job))
        # A machine under load takes long.
        limit_s = BOOT_LIMIT_S + 5 * args.seconds + CUT_LIMIT_S * args.cuts * len(self.names)
        return [str(word) for word in (
            ROOT / "vm/run", "--cpus", args.cpus, "--memory", args.memory, "--timeout", limit_s,
            *(word for disk in disks for word in ("--disk", disk)), *([] if "tux3" in self.names else ["--no-module"]),
            *(word for name in ("job.json", *self.prepare()) for word in ("--copy-in", f"{self.folder}/{name}:{GUEST_WORK}/{name}")),
            "--", "/usr/bin/python3", "bench/guest/crash.py", f"{GUEST_WORK}/job.json")]

    def prepare(self):
        """What the program needs in the guest."""
        if self.program == "dpkg":
            execute([ROOT / "bench/guest/crash_dpkg.py", self.folder / "debs"])
            return ["debs"]
        return []

    def run(self):
        with VmRun(self.command()) as machine:
            while (line := machine.lines.next(None)) is not None:
                self.take(line)
            if status := machine.process.wait():
                self.trouble(f"vm/run ended with exit status {status}")
        self.settings["machine"] = machine.described()
        if self.troubles:
            print(machine.complaints, flush=True)

    def take(self, line):
        """A line of the agent in the guest."""
        try:
            said = json.loads(line)
        except ValueError:
            print(line, flush=True)
            return
        if "machine" in said:
            self.settings.update(said["machine"])
        elif "recorded" in said:
            name = said.pop("recorded")
            self.recorded[name] = said
            print(f"  {self.program:10} {name:6} {said['done']:7,} done in {said['seconds']:.0f} s, {said['writes']:,} writes of "
                  f"{said['bytes'] / 2**20:,.1f} MiB, {said['flushes']:,} flushes", flush=True)
        elif "cut" in said:
            said["program"] = self.program
            self.cuts.append(said)
            why = said.get("why") or (f"out of order: {said['disorder']}" if said.get("disorder") else "")
            if why:
                print(f"  {self.program:10} {said['fs']:6} cut {said['cut']} ({said['kind']}), {said['seconds']:.1f} s, "
                      f"{said['state']}: {why}", flush=True)
        elif "error" in said:
            self.trouble("; ".join(said["error"].splitlines()[:3]))

    def trouble(self, text):
        self.troubles.append(f"{self.program}: {text}")
        print(f"  TROUBLE: {text}", flush=True)

    def keep(self):
        """Copies of the recordings with bad states on tux3; how to look again."""
        for name in self.names:
            bad = [cut for cut in self.cuts if cut["fs"] == name and is_bad(cut)]
            if self.replayed or name not in self.recorded or not (self.args.keep_all or bad and name == "tux3"):
                continue
            folder = Path(self.args.keep) / f"{self.program}-{name}-{self.args.seed}"
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--sparse=always", self.log_file(name), folder / f"{name}.log"], check=True)
            (folder / DESCRIPTION).write_text(json.dumps({
                "program": self.program, "names": [name], "seed": self.args.seed, "cuts": self.args.cuts,
                "seconds": self.args.seconds}))
            for cut in bad[:1]:
                print(f"  look at it again: bench/run crash --replay {folder} --cut {cut['cut']}", flush=True)


def is_bad(cut):
    return cut["state"] == "damaged" or bool(cut.get("disorder"))


# ---- the report ----

def row(program, name, cuts, recorded):
    states = [cut["state"] for cut in cuts]
    missing = [cut["missing_s"] for cut in cuts if "missing_s" in cut]
    by_kind = [sum(cut["state"] == "damaged" for cut in cuts if cut["kind"] == kind) for kind in ("order", "cache")]
    return [f"{program}, {name}", str(len(cuts)), *(str(states.count(state)) for state in ("whole", "stale", "damaged")),
            f"{by_kind[0]} + {by_kind[1]}", str(sum(bool(cut.get("disorder")) for cut in cuts)),
            f"{statistics.median(missing):.1f}" if missing else "-", f"{max(missing):.1f}" if missing else "-",
            f"{recorded['flushes']:,}" if recorded else "-"]


def print_report(machines):
    lines = []
    for each in machines:
        for name in each.names:
            cuts = [cut for cut in each.cuts if cut["fs"] == name]
            lines.append(row(each.program, name, cuts, each.recorded.get(name)))
    print_table(["", "cuts", "whole", "stale", "damaged", "order + cache", "out of order", "missing, s", "at most", "flushes"],
                lines)
    first = {}
    for cut in (cut for each in machines for cut in each.cuts if cut.get("why")):
        first.setdefault((cut["program"], cut["fs"]), cut)
    for (program, name), cut in first.items():
        print(f"{program}, {name}, the first damage: {' '.join(cut['why'].split())}")
    print()


def goals(machines):
    judged = []
    for each in machines:
        cuts = [cut for cut in each.cuts if cut["fs"] == "tux3"]
        if "tux3" in each.names:
            bad = sum(map(is_bad, cuts))
            judged.append((f"{each.program}: no damaged state on tux3, and none out of order: {bad} of {len(cuts)}",
                           None if not cuts else bad == 0))
        judged += [(trouble, False) for trouble in each.troubles]
    return judged


def write_json(path, config, machines, judged):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({
        "config": config, "programs": [{"program": each.program, "settings": each.settings, "recorded": each.recorded,
                                        "cuts": each.cuts} for each in machines],
        "goals": [{"goal": text, "met": met} for text, met in judged]}, indent=1) + "\n")
    print(f"Figures: {path}", flush=True)


# ---- ----

def plan(args):
    """(program, filesystems, recording that was kept) of each machine."""
    if args.replay:
        kept = json.loads((Path(args.replay) / DESCRIPTION).read_text())
        args.seed, args.cuts, args.seconds = kept["seed"], kept["cuts"], kept["seconds"]
        return [(kept["program"], kept["names"], args.replay)]
    if args.cut is not None:
        raise RuntimeError("--cut needs --replay: each recording is another one")
    names = args.filesystems.split(",")
    for name in names:
        if name not in FILESYSTEMS:
            raise RuntimeError(f"there is no file system \"{name}\" here: {', '.join(FILESYSTEMS)}")
    args.seconds = args.seconds or (8 if args.quick else 75)
    args.cuts = args.cuts or (4 if args.quick else 20)
    args.seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    return [(program, names, None) for program in args.only or PROGRAMS]


def run(args):
    planned = plan(args)
    need(["mkfs.tux3"], ["dpkg-deb"])
    machines = [Machine(args, *each) for each in planned]
    config = {
        **machine(),
        "file systems": ", ".join(planned[0][1]),
        "seed": args.seed,
        "cuts": f"{args.cuts} for each program and filesystem, half of them \"order\", half \"cache\"",
        "load": f"{args.seconds} s, on all filesystems at the same time",
        "disks": f"sparse files of {DISK_SIZE >> 30} GiB in {describe_directory(machines[0].folder)}",
    }
    print_config(config)
    judged = []
    try:
        for each in machines:
            each.run()
            each.keep()
            # Up to a GB of memory.
            each.close()
    finally:
        for each in machines:
            each.close()
            config.update(each.settings)
            config.update({f"{name} mounted": said["mounted"] for name, said in each.recorded.items() if said["mounted"]})
        judged = goals(machines)
        write_json(args.json, config, machines, judged)
    print("\nIn the virtual machine:")
    print_config({key: value for each in machines for key, value in each.settings.items()} |
                 {key: value for key, value in config.items() if key.endswith(" mounted")})
    print_report(machines)
    return 0 if print_goals(judged) else 1
