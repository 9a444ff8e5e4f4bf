# SPDX-License-Identifier: GPL-2.0-or-later
"""What the programs have in common whose files bench/guest/crash.py looks at after a power cut.

A program numbers what it does.  After a cut, check() says up to which number it is all there, or raises Damage: something
is there that the program cannot have left at any time, or something is missing of what was there long before.
"""
import hashlib


class Damage(Exception):
    """What is wrong, as a sentence."""


class Program:
    """In a folder of the filesystem.  setup() is durable before the power may go; stop() ends what load() has left running."""

    def __init__(self, folder, seed):
        self.folder, self.seed = folder, seed

    @classmethod
    def once(cls, job):
        """Before anything else, for all filesystems."""

    def setup(self):
        pass

    def load(self, progress):
        """Until progress.over(), telling progress.done(number)."""

    def stop(self):
        pass

    def check(self, acknowledged):
        """The number up to which all is there; Damage.  What was acknowledged need not be there if nothing was fsynced."""

    def in_order(self, _found):
        """A sentence if something is missing before what is there; that is damage for some programs, for others not."""


def body_of(number, size):
    unit = hashlib.blake2b(b"%d" % number, digest_size=64).digest()
    return (unit * (size // len(unit) + 1))[:size]


def text_of(number, size):
    return body_of(number, size // 2 + 1).hex()[:size]


def digest(data):
    return hashlib.blake2b(data, digest_size=16).hexdigest()
