# SPDX-License-Identifier: GPL-2.0-or-later
"""What operations cost in writes, by the volume's counters; above all: made and removed in one delta costs nothing.

First through libtux3 (bench/counts.c, where nothing but the case itself commits), then on a mount, where
`tux3 stat` is asked before and after.
"""
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from common import ROOT, Tux3Mount, c_program, machine, need, program, run as execute, sparse_file, wait_for, write_json

FILES = 1000
WRITTEN = ("data_blocks", "log_blocks", "node_blocks", "map_blocks", "anchor_blocks", "flushes")


def add_options(parser):
    parser.add_argument("--dir", metavar="DIR", default=ROOT / "build", help="where the image is (%(default)s)")


def statistics(mnt):
    text = execute([program("tux3"), "stat", mnt, "--json"])
    return {name: entry["value"] for name, entry in json.loads(text).items()}


def sync(mnt):
    execute(["sync", "-f", mnt])
    fd = os.open(mnt, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


@contextmanager
def requests(mnt, work):
    """How many requests the daemon has not answered, by a function."""
    control = work / "fusectl"
    control.mkdir()
    execute(["mount", "-t", "fusectl", "fusectl", control])
    try:
        waiting = control / str(os.minor(os.stat(mnt).st_dev)) / "waiting"
        yield lambda: int(waiting.read_text())
    finally:
        execute(["umount", control])


def make_and_remove(directory, count, waiting):
    """The kernel tells of a last close later, and what is still open when its delta is committed has to be written."""
    for n in range(count):
        with open(directory / f"file{n}", "wb") as f:
            f.write(bytes(8192))
    wait_for(lambda: not waiting(), "answers to all requests")
    for n in range(count):
        os.unlink(directory / f"file{n}")
    time.sleep(1)  # "forget" has no answer


def cost(mnt, count, waiting):
    sync(mnt)
    before = statistics(mnt)
    make_and_remove(mnt / "dir", count, waiting)
    sync(mnt)
    after = statistics(mnt)
    return {name: after[name] - before[name] for name in after}


def run_mounted(work):
    """(passed, failed)"""
    image = work / "counts-fuse.img"
    sparse_file(image, 256 << 20)
    execute([program("mkfs.tux3"), "-q", image])
    mount = Tux3Mount(image, work / "mnt", "age=3600")
    try:
        os.mkdir(mount.path / "dir")
        with requests(mount.path, work) as waiting:
            one, many = cost(mount.path, 1, waiting), cost(mount.path, FILES, waiting)
        mount.unmount()
    finally:
        mount.cleanup()
    same = all(one[name] == many[name] for name in WRITTEN)
    checks = [
        (same, f"{FILES} files made and removed cost what 1 does: " +
         ", ".join(f"{name} {one[name]}/{many[name]}" for name in WRITTEN)),
        (many["inodes_vanished"] == FILES, f"all vanished: {many['inodes_vanished']}"),
    ]
    print("\nMounted, by `tux3 stat`:")
    for good, text in checks:
        print(f"{'ok' if good else 'FAILED':6} {text}")
    return sum(good for good, _ in checks), sum(not good for good, _ in checks)


def run(args):
    need(ours=("mkfs.tux3", "tux3-fuse", "tux3"))
    with TemporaryDirectory(prefix="bench-counts-", dir=args.dir) as work:
        work = Path(work)
        print("Through libtux3:", flush=True)
        text = execute([c_program("counts"), work / "counts.img"], check=False)
        print(text, end="")
        line = text.strip().splitlines()[-1].split() if text.strip() else []
        if len(line) != 4 or line[1] != "passed,":
            raise RuntimeError("bench/counts.c did not come to its end")
        passed, failed = int(line[0]), int(line[2])
        if os.geteuid() == 0:
            more_passed, more_failed = run_mounted(work)
            passed, failed = passed + more_passed, failed + more_failed
        else:
            print("\nNot root: nothing was mounted.")
    write_json(args.json, machine(), [], [], passed=passed, failed=failed)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
