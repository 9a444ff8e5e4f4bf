#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in the virtual machine: does the measurements of a job file and prints what came out, as lines of JSON.

	agent.py JOB

JOB: {"disk": "/dev/vda", "work": folder in memory, "filesystems": [names], "steps": [{"fs", "measurement", "params"}],
"xfsprogs": disk with newer ones, or None}

Lines: {"machine": settings}, then for each step {"begin": number} and {"step": number, "figures", "mounted", "details"}
or {"step": number, "error": sentence}.  The end comes early when a filesystem cannot be unmounted.
"""
import json
import os
import platform
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import dbench
from databases import DATABASES
from filesystems import FILESYSTEMS, XFSPROGS, execute, mount_line
from measure import MEASUREMENTS, Setting, drop_caches

MOUNT_POINT = Path("/tmp/bench-mnt")
SYSCTLS = ("dirty_background_ratio", "dirty_ratio", "dirty_expire_centisecs", "dirty_writeback_centisecs",
           "vfs_cache_pressure", "swappiness")


def say(**what):
    print(json.dumps(what), flush=True)


def read_text(path, default="?"):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


def chosen(text):
    """Of "a [b] c" the b."""
    return text[text.index("[") + 1:text.index("]")] if "[" in text else text


def first_line(command):
    try:
        return (execute(command).strip().splitlines() or ["?"])[0]
    except (OSError, RuntimeError):
        return "?"


def describe_machine(job):
    disk = Path(job["disk"]).name
    queue = Path("/sys/block") / disk / "queue"
    cpu = {}
    for line in read_text("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        cpu[key.strip()] = value.strip()
    holes = Path("/sys/devices/system/cpu/vulnerabilities")
    settings = {
        "guest kernel": f"{platform.release()} {platform.version()}",
        "kernel command line": read_text("/proc/cmdline"),
        "guest CPUs": f"{os.cpu_count()} x {cpu.get('model name', '?')}",
        "guest CPU flags": cpu.get("flags", "?"),
        "guest memory": read_text("/proc/meminfo").splitlines()[0].split(":")[1].strip(),
        "clock source": read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "mitigations": "; ".join(sorted({read_text(path) for path in holes.iterdir()})) if holes.exists() else "?",
        "huge pages": f"transparent: {chosen(read_text('/sys/kernel/mm/transparent_hugepage/enabled'))}; tmpfs: "
                      f"{chosen(read_text('/sys/kernel/mm/transparent_hugepage/shmem_enabled'))}",
        "guest disk": f"{job['disk']}, {int(read_text(queue.parent / 'size', '0')) >> 21} GiB, cache "
                      f"\"{read_text(queue / 'write_cache')}\", FUA {read_text(queue / 'fua')}, scheduler "
                      f"{chosen(read_text(queue / 'scheduler'))}, read ahead {read_text(queue / 'read_ahead_kb')} KiB",
        "guest vm settings": ", ".join(f"{name} {read_text(f'/proc/sys/vm/{name}')}" for name in SYSCTLS),
        "guest programs": f"{first_line(['tar', '--version'])}; {first_line(['rm', '--version'])}",
    }
    if "tux3" in job["filesystems"]:
        settings["tux3 module"] = ", ".join(f"{name} {read_text(f'/sys/module/tux3/{name}')}"
                                            for name in ("version", "srcversion", "taint"))
    for name in job["filesystems"]:
        fs = FILESYSTEMS[name]
        if geometry := fs.geometry(job["disk"]):
            settings[f"{name} geometry"] = geometry
        settings[f"{name} made by"] = f"{fs.describe()}{'; ' if fs.version() else ''}{fs.version()}"
    if any(step["measurement"] == "dbench" for step in job["steps"]):
        for name, text in dbench.prepare_loads(Path(job["work"])).items():
            settings[f"load \"{name}\""] = text
    return settings


def write_to(path, text):
    with open(path, "w") as file:
        file.write(text)


def calm_down():
    """As little as possible of what was before: nothing dirty, no caches, memory in one piece."""
    drop_caches()
    write_to("/proc/sys/vm/compact_memory", "1\n")


def do_step(job, step):
    fs, disk = FILESYSTEMS[step["fs"]], job["disk"]
    disk_name = Path(disk).name if fs.on_disk() else None
    own_folder = f"/sys/fs/tux3/{disk_name}" if fs.kind == "tux3" else None
    fs.mount(disk, MOUNT_POINT)
    try:
        mounted = mount_line(MOUNT_POINT)
        calm_down()
        setting = Setting(MOUNT_POINT, disk_name, own_folder, Path(job["work"]), step["params"])
        figures = list((MEASUREMENTS | DATABASES)[step["measurement"]](setting))
    finally:
        execute(["umount", MOUNT_POINT])
    return {"figures": figures, "mounted": mounted, "details": setting.details}


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    if job["xfsprogs"]:
        XFSPROGS.mkdir()
        execute(["mount", "-t", "erofs", "-o", "ro", job["xfsprogs"], XFSPROGS])
    say(machine=describe_machine(job))
    for number, step in enumerate(job["steps"]):
        say(begin=number)
        try:
            say(step=number, **do_step(job, step))
        except (OSError, RuntimeError, ValueError) as error:
            say(step=number, error=f"{step['fs']}: {error}")
            if mount_line(MOUNT_POINT):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
