#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Cut the power of a virtual machine at random moments, and see that the volume is as some delta left it.

    tests/vm/kill.py [--rounds N] [--seed S]

One volume lives through all rounds.  In each, a machine boots, mounts it with the module, and makes the operations of
tests/vm/sequence.py in a new directory, until it is killed.  Then fsck.tux3 must find nothing, and the directory must hold exactly
what it held after some number of operations, at least as many as were known to be durable.  In every third round
tests/vm/guest/untorn.c writes pages beside that, and each of its files must be what some number of its writes left.  Who
replays the log and looks takes turns: tux3-fuse, or the module in the next round.  In between the other one goes on writing
to the volume.
"""
import argparse
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
SEQUENCE = "tests/vm/sequence.py"
UNTORN = "build/tests/untorn"
SIZE = "512M"


def run(*words, **more):
    return subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, **more)


class Rounds:
    def __init__(self, seed, folder):
        self.random, self.seed = random.Random(seed), seed
        self.image, self.mount, self.acked = folder / "volume.img", folder / "mnt", folder / "acked"
        self.mount.mkdir()
        self.due = None			# a check that the module makes in the next round

    def guest_script(self, number, seed):
        """Check what is due, then make operations until the machine is killed."""
        lines = ["mount -t tux3 -o age=0.3 /dev/vda /mnt || exit 40"]
        if self.due:
            lines.append(f"{self.due} || exit 41")
        lines += [f"mkdir /mnt/round{number} /mnt/pages{number}; sync; echo begun",
                  f"nice -n 19 {UNTORN} run /mnt/pages{number} 0 &" if number % 3 == 0 else "",
                  f"exec python3 {SEQUENCE} run /mnt/round{number} --seed {seed} --sync-share 0.01"]
        return "\n".join(lines)

    def one(self, number):
        """None, or what went wrong."""
        seed, seconds = self.seed * 1000 + number, round(self.random.uniform(2, 7) + (8 if self.due else 0), 2)
        done = subprocess.run(["vm/run", "--disk", self.image, "--kill-after", str(seconds), "--", "bash", "-c",
                               self.guest_script(number, seed)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        if done.returncode:
            return f"the machine ended with status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        self.due = None
        synced = re.findall(r"^synced (\d+)$", done.stdout, re.M)
        synced = int(synced[-1]) if synced else 0
        acked = "".join(line + "\n" for line in re.findall(r"^acked \S+ \d+$", done.stdout, re.M))
        self.acked.write_text(acked)
        checked = run(BUILD / "fsck.tux3", "-n", "--data", self.image)
        if checked.returncode:
            return f"fsck.tux3 after the power cut: {checked.stdout[-3000:]}"
        if "begun" not in done.stdout:
            return None if number > 1 else "the machine was killed before it began"
        check = [SEQUENCE, "check", "--seed", str(seed), "--from", str(synced)]
        if number % 2:
            self.due = (shlex.join(["python3", *check, f"/mnt/round{number}"]) + f" && echo {shlex.quote(acked)} >/tmp/acked && "
                        f"{UNTORN} check /mnt/pages{number} /tmp/acked && rm -r /mnt/round{number} /mnt/pages{number}")
            self.note = f"killed after {seconds} s, {synced} synced; the next machine looks"
            return None
        return self.look_through_fuse(number, check, seconds, synced)

    def look_through_fuse(self, number, check, seconds, synced):
        done = run(BUILD / "tux3-fuse", self.image, self.mount)
        if done.returncode:
            return f"tux3-fuse cannot mount it: {done.stdout}"
        try:
            found = run("/usr/bin/python3", *check, self.mount / f"round{number}")
            pages = run(UNTORN, "check", self.mount / f"pages{number}", self.acked)
            if not found.returncode and not pages.returncode:
                subprocess.run(["cp", "-r", ROOT / "core", self.mount / f"fuse{number}"], check=True)
                subprocess.run(["rm", "-r", self.mount / f"round{number}", self.mount / f"pages{number}"], check=True)
        finally:
            subprocess.run(["umount", self.mount], check=True)
        if found.returncode or pages.returncode:
            return found.stdout[-3000:] + pages.stdout[-3000:]
        checked = run(BUILD / "fsck.tux3", "-n", "--data", self.image)
        self.note = f"killed after {seconds} s, {synced} synced, {found.stdout.strip()}, {pages.stdout.strip()}"
        return f"fsck.tux3 after tux3-fuse: {checked.stdout[-3000:]}" if checked.returncode else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1_000_000))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    passed = failed = 0
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tux3-kill-", dir=where) as folder:
        rounds = Rounds(args.seed, Path(folder))
        made = run(BUILD / "mkfs.tux3", "--quiet", rounds.image, SIZE)
        if made.returncode:
            sys.exit(f"kill.py: mkfs.tux3: {made.stdout}")
        for number in range(1, args.rounds + 1):
            rounds.note = ""
            why = rounds.one(number)
            if why:
                failed += 1
                kept = Path(tempfile.gettempdir()) / f"tux3-kill-{args.seed}-{number}.img"
                subprocess.run(["cp", "--sparse=always", rounds.image, kept], check=True)
                print(f"round {number}: FAILED: {why}\nThe volume is kept in {kept}.  Again (the moment of the cut may "
                      f"differ): tests/vm/kill.py --seed {args.seed} --rounds {number}", flush=True)
                break
            passed += 1
            print(f"round {number}: {rounds.note}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
