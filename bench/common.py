# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benchmarks share: running programs, what machine this is, mounts, tables, goals, JSON."""
import contextlib
import importlib.util
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TUX3_BUILD", ROOT / "build")).resolve()


def run(command, check=True, **kwargs):
    """A program to its end; its output as text."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **kwargs)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def program(name):
    """A program of this project."""
    path = BUILD / name
    if not path.exists():
        raise RuntimeError(f"{path} is not there: run make first")
    return path


def c_program(name):
    """bench/NAME.c, built."""
    run(["make", "-s", "-C", ROOT, f"build/bench/{name}"])
    return ROOT / "build/bench" / name


def embedding_program(name, library, headers, out, *flags):
    """bench/NAME.c with another libtux3.a, and the public headers of its tree."""
    run(["cc", "-std=gnu11", "-Wall", "-D_GNU_SOURCE", "-O2", *flags, f"-I{headers}", "-o", out, ROOT / f"bench/{name}.c", library,
         "-pthread", "-luring", "-lblkid"])
    return out


SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def missing(programs=(), files=(), modules=()):
    """What of it is not there; of this project's programs by their path."""
    return [*(name for name in programs if not shutil.which(name, path=SBIN)),
            *(str(path) for path in files if not Path(path).exists()),
            *(f"Python's {name}" for name in modules if importlib.util.find_spec(name) is None)]


def need(ours=(), programs=(), files=(), modules=()):
    """All that a benchmark will run, before it begins.  Root gets what is missing from the distribution."""
    for name in ours:
        program(name)
    if not missing(programs, files, modules):
        return
    if os.geteuid() == 0:
        print(run([ROOT / "scripts/deps.sh", "run", "test"], check=False), end="", flush=True)
        importlib.invalidate_caches()
    if lacking := missing(programs, files, modules):
        raise RuntimeError(f"{', '.join(lacking)}: not installed; \"sudo scripts/deps.sh run test\" does that")


TOUCHED_MAX = 8 << 30


def touch_memory(quick):
    """Have the host of a virtual machine provide memory now, not while the first filesystem is measured.  Bytes."""
    free = int(read_text("/proc/meminfo").split("MemFree:")[1].split()[0]) << 10
    size = min(free // 10 * 8, TOUCHED_MAX) >> (3 if quick else 0)
    with mmap.mmap(-1, max(size, mmap.PAGESIZE)) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
    return size


def need_root():
    if os.geteuid() != 0:
        raise RuntimeError("this benchmark mounts file systems: run it as root")


def first_line(command):
    try:
        return (run(command, check=False).strip().splitlines() or ["?"])[0]
    except OSError:
        return "not installed"


def read_text(path, default="?"):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


def machine():
    """What the figures depend on."""
    cpu = [line.split(":")[1].strip() for line in read_text("/proc/cpuinfo").splitlines()
           if line.startswith("model name")]
    memory_kb = int(read_text("/proc/meminfo").split()[1])
    commit = run(["git", "-C", ROOT, "describe", "--always", "--dirty"], check=False).strip()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "tux3": first_line([BUILD / "tux3", "--version"]) + (f", commit {commit}" if "fatal" not in commit else ""),
        "kernel": f"{platform.release()} {platform.version()}",
        "cpu": f"{len(cpu)} x {cpu[0] if cpu else platform.machine()}",
        "memory": f"{memory_kb / 2**20:.1f} GiB",
        "load average at start": read_text("/proc/loadavg").split()[0],
    }


def describe_directory(path):
    """Where the image files are: device and file system."""
    source, fstype, size = run(["findmnt", "-n", "-o", "SOURCE,FSTYPE,SIZE", "--target", path]).split()[:3]
    return f"{path} on {source} ({fstype}, {size})"


def print_config(config):
    for key, value in config.items():
        print(f"{key + ':':28} {value}", flush=True)
    print()


def is_mounted(path):
    path = os.path.realpath(path)
    with open("/proc/self/mountinfo") as f:
        return any(line.split()[4] == path for line in f)


def mount_line(path):
    """Type and options as the kernel has them."""
    path = os.path.realpath(path)
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        if fields[4] == path:
            after = fields[fields.index("-") + 1:]
            return f"{after[0]} {fields[5]},{after[2]}"
    return "not mounted"


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.005)


class Tux3Mount:
    """An image mounted by a tux3-fuse that stays our child, so that we see its end and its memory."""

    def __init__(self, image, path, options=""):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        command = [str(program("tux3-fuse")), "-f", *(["-o", options] if options else []), str(image), str(path)]
        begun = time.monotonic()
        self.daemon = subprocess.Popen(command)
        wait_for(lambda: is_mounted(path) or self.daemon.poll() is not None, "mount")
        if self.daemon.poll() is not None:
            raise RuntimeError(f"{' '.join(command)}: exit status {self.daemon.returncode}")
        os.stat(path)
        self.mount_seconds = time.monotonic() - begun

    def peak_memory(self):
        """Bytes."""
        for line in open(f"/proc/{self.daemon.pid}/status"):
            if line.startswith("VmHWM"):
                return int(line.split()[1]) << 10
        return 0

    def unmount(self):
        run(["umount", self.path])
        if self.daemon.wait(600):
            raise RuntimeError(f"tux3-fuse ended with exit status {self.daemon.returncode}")

    def cleanup(self):
        """Whatever state it is in: neither mount nor daemon are left."""
        if is_mounted(self.path):
            run(["umount", "-l", self.path], check=False)
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()


def drop_caches():
    """Write everything back, then forget what the kernel has cached of any file system."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3\n")


def sparse_file(path, size):
    with open(path, "wb") as f:
        f.truncate(size)


def disk_space_left(path):
    return shutil.disk_usage(path).free


def format_value(value):
    """Three significant digits, without an exponent."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    digits = 0
    while digits < 5 and abs(value) * 10**digits < 100 and value:
        digits += 1
    return f"{value:.{digits}f}"


def print_table(head, lines):
    """First column left, others right."""
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    for line in [head, *lines]:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))))
    print()


class Row:
    """One figure, measured several times on several file systems."""

    def __init__(self, name, unit, better):
        self.name, self.unit, self.better = name, unit, better
        self.samples = {}

    def add(self, who, value):
        self.samples.setdefault(who, []).append(value)

    def median(self, who):
        return statistics.median(self.samples[who]) if self.samples.get(who) else None

    def times_better(self, who, than):
        """How many times better who is; None if one was not measured."""
        a, b = self.median(who), self.median(than)
        if not a or not b:
            return None
        return b / a if self.better == "lower" else a / b

    def spread(self, who):
        """Half the range of the samples, in percent of the median."""
        samples = self.samples[who]
        return 50 * (max(samples) - min(samples)) / statistics.median(samples) if statistics.median(samples) else 0

    def as_json(self):
        return {"name": self.name, "unit": self.unit, "better": self.better,
                "results": {who: self.median(who) for who in self.samples}, "samples": self.samples}


def print_goals(goals):
    """goals: (text, met) with met None if it could not be judged.  Returns whether none was missed."""
    print("Goals:")
    for text, met in goals:
        print(f"  {'not measured' if met is None else 'met' if met else 'MISSED':12} {text}")
    missed = sum(met is False for _, met in goals)
    print(f"{sum(met is True for _, met in goals)} met, {missed} missed")
    return missed == 0


@contextlib.contextmanager
def kept(path, config, rows):
    """What rows() has is written even if what is done here does not come to its end."""
    try:
        yield
    except BaseException as e:
        write_json(path, config, rows(), [], incomplete=str(e) or type(e).__name__)
        raise


def write_json(path, config, rows, goals, **more):
    result = {"config": config, "rows": [row.as_json() for row in rows],
              "goals": [{"goal": text, "met": met} for text, met in goals], **more}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(result, indent=1) + "\n")
    print(f"Figures: {path}", flush=True)
