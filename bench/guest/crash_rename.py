# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that are written anew and renamed, without fsync, for bench/guest/crash.py."""
import os
import random
import time

from crash_program import Damage, Program, body_of, digest


class Rename(Program):
    """Saves files as editors do, without fsync: writes NAME.new, and renames it to NAME.

    Three of four saves replace a file, the others make a new one (and remove the oldest of those).
    """

    REPLACED, NEW, PER_SECOND, SIZE_MAX = 100, 200, 100, 64 << 10

    @classmethod
    def describe(cls):
        return (f"{cls.PER_SECOND} saves a second at most: of 4 the first 3 over one of {cls.REPLACED} files, the other to a new "
                f"name of which the last {cls.NEW} stay; 1 byte to {cls.SIZE_MAX >> 10} KiB; no fsync")

    def plan(self, number):
        """Name, size and what goes of a save."""
        chance = random.Random(number)
        size = chance.randrange(1, self.SIZE_MAX)
        if number <= self.REPLACED:
            return f"file{number}", size, None
        if number % 4:
            return f"file{chance.randrange(1, self.REPLACED + 1)}", size, None
        return f"new{number}", size, f"new{number - 4 * self.NEW}" if number > 4 * self.NEW + self.REPLACED else None

    def save(self, number):
        name, size, removed = self.plan(number)
        body = body_of(number, size)
        temp = self.folder / f"{name}.new"
        with open(temp, "wb") as file:
            file.write(b"%d %d %s\n" % (number, size, digest(body).encode()))
            file.write(body)
        os.rename(temp, self.folder / name)
        if removed:
            os.unlink(self.folder / removed)

    def setup(self):
        for number in range(1, self.REPLACED + 1):
            self.save(number)

    def load(self, progress):
        number = self.REPLACED
        while not progress.over():
            number += 1
            self.save(number)
            progress.done(number)
            time.sleep(max(0, (number - self.REPLACED) / self.PER_SECOND - progress.passed()))

    def check(self, _acknowledged):
        found = {}
        for path in self.folder.iterdir():
            if path.suffix != ".new":
                found[path.name] = self.read(path)
        for number in range(1, self.REPLACED + 1):
            if f"file{number}" not in found:
                raise Damage(f"file{number} is missing")
        return max(found.values())

    @staticmethod
    def read(path):
        """The number of the save that this file is of."""
        data = path.read_bytes()
        if not data:
            raise Damage(f"{path.name} is empty")
        head, _, body = data.partition(b"\n")
        try:
            number, size, told = head.split()
            number, size = int(number), int(size)
        except ValueError:
            raise Damage(f"{path.name} is not what was written: it begins with {data[:16]!r}") from None
        if len(body) != size:
            raise Damage(f"{path.name} has {len(body)} bytes instead of {size}")
        if digest(body).encode() != told:
            raise Damage(f"{path.name} has other contents than were written")
        return number

    def in_order(self, found):
        """A sentence if not all saves up to this one are there."""
        names = {}
        for number in range(1, found + 1):
            name, _, removed = self.plan(number)
            names[name] = number
            names.pop(removed, None)
        for name, number in names.items():
            path = self.folder / name
            if not path.exists() or self.read(path) != number:
                return f"save {found} is there, save {number} of {name} is not"
        return None
