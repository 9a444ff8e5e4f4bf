# SPDX-License-Identifier: GPL-2.0-or-later
"""git with core.fsync=none, for bench/guest/crash.py."""
import os
import random
import subprocess

from crash_program import Damage, Program, text_of


class Git(Program):
    """Commit N changes a few files; its message is N."""

    FILES, CHANGED, GC_EVERY, SIZE_MAX = 60, 3, 25, 8000
    LIMIT_S = 120

    @classmethod
    def describe(cls):
        version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
        return (f"{version}, core.fsync=none; commits of {cls.CHANGED} of {cls.FILES} files one after the other, git gc after every "
                f"{cls.GC_EVERY}.  Afterwards: git fsck --full, git log from HEAD has commits N to 0, git status")

    def git(self, *words):
        """Its output; Damage if it fails."""
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        done = subprocess.run(["git", "-C", self.folder, *words], capture_output=True, text=True, errors="replace", env=env,
                              stdin=subprocess.DEVNULL, timeout=self.LIMIT_S, check=False)
        if done.returncode:
            told = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise Damage(f"git {words[0]} ends with status {done.returncode}: {'; '.join(told[:2])}")
        return done.stdout

    def write(self, number, files):
        for file in files:
            path = self.folder / f"dir{file % 7}/file{file}"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text_of(number * 1000 + file, random.Random(number + file).randrange(self.SIZE_MAX)))

    def commit(self, number):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", str(number))

    def setup(self):
        self.git("init", "-q", "-b", "main")
        for name, value in (("core.fsync", "none"), ("user.name", "nobody"), ("user.email", "nobody@localhost"),
                            ("gc.auto", "0"), ("maintenance.auto", "false")):
            self.git("config", name, value)
        self.write(0, range(self.FILES))
        self.commit(0)

    def load(self, progress):
        number = 0
        while not progress.over():
            number += 1
            chance = random.Random(number)
            self.write(number, [chance.randrange(self.FILES) for _ in range(self.CHANGED)])
            self.commit(number)
            progress.done(number)
            if number % self.GC_EVERY == 0:
                self.git("gc", "-q")

    def check(self, _acknowledged):
        try:
            self.git("fsck", "--full", "--no-dangling")
            numbers = [int(line) for line in self.git("log", "--format=%s").splitlines()]
            self.git("status", "--porcelain")
        except subprocess.TimeoutExpired as error:
            raise Damage(str(error)) from None
        if not numbers or numbers != list(range(numbers[0], -1, -1)):
            raise Damage(f"the commits from HEAD are {numbers[:5]}...")
        return numbers[0]
