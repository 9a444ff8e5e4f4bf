#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""dpkg with force-unsafe-io, for bench/guest/crash.py, and the packages that it installs.

	crash_dpkg.py FOLDER		make them there
"""
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from crash_program import Damage, Program, text_of

PACKAGES, VERSIONS, FILES, SIZE_MAX = 8, 16, 20, 20000
MANIFEST = "manifest.json"


def make_packages(folder):
    """Small ones; a manifest says what each file is."""
    manifest = {}
    for package in range(PACKAGES):
        for version in range(1, VERSIONS + 1):
            name, files = f"crash{package}", {}
            with tempfile.TemporaryDirectory() as tree:
                control = Path(tree, "DEBIAN")
                control.mkdir()
                for number in range(FILES):
                    key = (package * 100 + version) * 100 + number
                    path = Path(tree, f"usr/share/{name}/dir{number % 3}/file{number}")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text_of(key, random.Random(key).randrange(1, SIZE_MAX)))
                    files[str(path.relative_to(tree))] = hashlib.md5(path.read_bytes()).hexdigest()
                (control / "control").write_text(f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
                                                 "Maintainer: nobody <nobody@localhost>\nDescription: a package to lose\n")
                (control / "md5sums").write_text("".join(f"{value}  {path}\n" for path, value in files.items()))
                subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, folder / f"{name}_{version}.deb"],
                               check=True, stdout=subprocess.DEVNULL)
            manifest[f"{name}_{version}"] = files
    (folder / MANIFEST).write_text(json.dumps(manifest))


class Dpkg(Program):
    """Step N installs version 1 + N / 8 of package N % 8, of which there were older ones from the start."""

    LIMIT_S = 120
    DEBS = Path("/tmp/crash/debs")

    @classmethod
    def describe(cls):
        told = subprocess.run(["dpkg", "--version"], capture_output=True, text=True, check=True).stdout
        return (f"dpkg {told.split('version ')[1].split()[0]}, --force-unsafe-io; upgrades of {PACKAGES} packages of {FILES} files one after "
                "the other.  Afterwards: the status file is read, all files of installed packages have their MD5 sums, dpkg -i of a package "
                "that was under way (or else of any) succeeds, and then dpkg --audit has nothing to say")

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.admin = folder / "var/lib/dpkg"

    def dpkg(self, program, *words):
        done = subprocess.run([program, f"--admindir={self.admin}", *map(str, words)], capture_output=True, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, timeout=self.LIMIT_S, check=False,
                              env={**os.environ, "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        if done.returncode:
            told = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise Damage(f"{program} {words[-1]} ends with status {done.returncode}: {'; '.join(told[:3])}")
        return done.stdout

    def install(self, package, version):
        # --root would have it look for programs there.
        self.dpkg("dpkg", f"--instdir={self.folder}", "--force-unsafe-io", "--log=/dev/null", "-i",
                  self.DEBS / f"crash{package}_{version}.deb")

    def setup(self):
        for name in ("info", "updates", "triggers"):
            (self.admin / name).mkdir(parents=True)
        for name in ("status", "available"):
            (self.admin / name).touch()
        for package in range(PACKAGES):
            self.install(package, 1)

    def load(self, progress):
        number = 0
        while not progress.over() and number < PACKAGES * (VERSIONS - 1):
            self.install(number % PACKAGES, 2 + number // PACKAGES)
            number += 1
            progress.done(number)

    def check(self, _acknowledged):
        try:
            return self.look()
        except subprocess.TimeoutExpired as error:
            raise Damage(str(error)) from None

    def look(self):
        manifest = json.loads((self.DEBS / MANIFEST).read_text())
        installed, begun, found = {}, [], 0
        for line in self.dpkg("dpkg-query", "-f", "${Package} ${Version} ${db:Status-Status}\\n", "-W").splitlines():
            name, version, status = line.split()
            number = int(name.removeprefix("crash"))
            if status == "installed":
                installed[name] = version
                found = max(found, (int(version) - 2) * PACKAGES + number + 1)
            else:
                begun.append(number)
        for number in range(PACKAGES):
            name = f"crash{number}"
            if name not in installed and number not in begun:
                raise Damage(f"dpkg does not know {name} any more")
        for name, version in installed.items():
            self.compare(name, version, manifest)
        for number in begun or [0]:
            self.install(number, VERSIONS)
            self.compare(f"crash{number}", VERSIONS, manifest)
        if told := self.dpkg("dpkg", "--audit").strip():
            raise Damage(f"dpkg --audit: {' '.join(told.split())[:200]}")
        return found

    def compare(self, name, version, manifest):
        for path, wanted in manifest[f"{name}_{version}"].items():
            path = self.folder / path
            if not path.exists():
                raise Damage(f"{path.name} of {name} {version}, which is installed, is missing")
            data = path.read_bytes()
            if hashlib.md5(data).hexdigest() != wanted:
                raise Damage(f"{path.name} of {name} {version}, which is installed, " +
                             (f"has another MD5 sum than it should ({len(data)} bytes)" if data else "is empty"))


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    os.makedirs(sys.argv[1])
    make_packages(Path(sys.argv[1]))
