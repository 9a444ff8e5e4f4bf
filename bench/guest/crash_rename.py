# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that are written anew and renamed, without fsync, for bench/guest/crash.py."""
import os
import random
import time

from crash_program import Damage, Program, body_of, digest


class Rename(Program):
    """Saves files as editors do, without fsync: writes NAME.new, and renames it over NAME."""

    FILES, PER_SECOND, SIZE_MAX = 100, 100, 64 << 10

    @classmethod
    def describe(cls):
        return (f"{cls.PER_SECOND} saves a second at most, each over one of {cls.FILES} files; {cls.how()}")

    @classmethod
    def how(cls):
        return (f"1 byte to {cls.SIZE_MAX >> 10} KiB, no fsync.  Afterwards: each file is as one of the saves wrote it, none that was "
                "replaced is missing; and if a save is there, so are all before it")

    def plan(self, number):
        """Name, size and what goes of a save."""
        chance = random.Random(number)
        size, file = chance.randrange(1, self.SIZE_MAX), chance.randrange(1, self.FILES + 1)
        return f"file{number if number <= self.FILES else file}", size, None

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
        for number in range(1, self.FILES + 1):
            self.save(number)

    def load(self, progress):
        number = self.FILES
        while not progress.over():
            number += 1
            self.save(number)
            progress.done(number)
            time.sleep(max(0, (number - self.FILES) / self.PER_SECOND - progress.passed()))

    def check(self, _acknowledged):
        found = {path.name: self.read(path) for path in self.folder.iterdir() if path.suffix != ".new"}
        if not found:
            raise Damage("no file is there any more")
        if missing := sorted(self.always() - found.keys()):
            raise Damage(f"{missing[0]} is missing")
        return max(found.values())

    def always(self):
        """Names that are there at any time."""
        return {f"file{number}" for number in range(1, self.FILES + 1)}

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


class RenameNew(Rename):
    """The same to a name that was not there before, as mail is delivered; after some time it is removed."""

    STAY = 1000

    @classmethod
    def describe(cls):
        return f"{cls.PER_SECOND} files a second at most, each renamed to a new name; the last {cls.STAY} stay; {cls.how()}"

    def plan(self, number):
        return f"mail{number}", random.Random(number).randrange(1, self.SIZE_MAX), (
            f"mail{number - self.STAY}" if number > self.STAY else None)

    def always(self):
        return set()
