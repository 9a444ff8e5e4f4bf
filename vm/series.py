# SPDX-License-Identifier: GPL-2.0-or-later
"""The series of stock kernels that the module is built and tested for.

Of each, the newest kernel that the mirror serves is taken, within the versions that linux/compat.h is known to do for: a
newer one that appears there changes nothing until it was tried, and LAST is raised here.
"""
import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Series:
    """release: of Debian, whose packages and backports it is taken from; None: that of this machine."""
    name: str
    release: str | None
    first: tuple
    last: tuple

    def has(self, uname):
        """Whether a kernel of this "uname -r" is one of the series."""
        return self.first <= numbers(uname)[:2] <= self.last

    def __str__(self):
        first, last = (".".join(map(str, version)) for version in (self.first, self.last))
        return first if first == last else f"{first} to {last}"


def numbers(text):
    return tuple(int(n) for n in re.findall(r"\d+", text))


ALL = (
    Series("6.12", None, (6, 12), (6, 12)),
    Series("6.12-deb13", "trixie", (6, 12), (6, 12)),
    Series("7", "trixie", (7, 0), (7, 3)),
)
BY_NAME = {series.name: series for series in ALL}

# What vm/run boots unless told otherwise, and vm/debug-kernel builds.
DEFAULT = ALL[0]
