#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the README's commands as they are written there.

In README.md, a block that begins with ```sh run is run, and one that begins with ```c FILE is written to FILE, all
in the order of the page and in one shell (bash), as a reader would do it.  The shell stands in a scratch
directory with links to the repository's build/ and user/, so it looks like the top of the repository.  A block passes
if each of its commands succeeds.  Ends with `N passed, N failed`, a block counting as one; after one
that failed nothing more is tried, and the rest count as failed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKS = ("build", "user")
TIMEOUT_S = 300


def blocks(text):
    """(what the opening line says, contents, line number) of each fenced block."""
    for match in re.finditer(r"^```([^\n]+)\n(.*?)^```$", text, re.M | re.S):
        yield match.group(1).split(), match.group(2), text[:match.start()].count("\n") + 1


def script(page, scratch):
    """One bash script with all commands; says after each block that it passed.  And how many blocks."""
    lines, count = ["set -euo pipefail"], 0
    for info, contents, line in blocks(page):
        if info[0] == "c" and len(info) == 2:
            (scratch / info[1]).write_text(contents)
        elif info == ["sh", "run"]:
            count += 1
            lines += [f"echo '== README.md:{line}'", "set -x", contents, "{ set +x; } 2>/dev/null",
                      f"echo ok >>passed-blocks"]
    return "\n".join(lines) + "\n", count


def unmount_all(scratch):
    """What a failed block left."""
    with open("/proc/self/mountinfo") as f:
        left = [line.split()[4] for line in f if line.split()[4].startswith(f"{scratch}/")]
    for path in left:
        subprocess.run(["umount", "-l", path], check=False)


def main():
    scratch = Path(tempfile.mkdtemp(prefix="tux3-readme-"))
    try:
        for name in LINKS:
            (scratch / name).symlink_to(ROOT / name)
        text, count = script((ROOT / "README.md").read_text(), scratch)
        if not count:
            sys.exit("tests/readme/run.py: README.md has no commands to run")
        (scratch / "commands").write_text(text)
        sys.stdout.flush()
        try:
            subprocess.run(["bash", "commands"], cwd=scratch, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                           timeout=TIMEOUT_S, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
        except subprocess.TimeoutExpired:
            print(f"not done after {TIMEOUT_S} s")
        passed_file = scratch / "passed-blocks"
        passed = len(passed_file.read_text().split()) if passed_file.exists() else 0
    finally:
        unmount_all(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {count - passed} failed")
    return 0 if passed == count else 1


if __name__ == "__main__":
    sys.exit(main())
