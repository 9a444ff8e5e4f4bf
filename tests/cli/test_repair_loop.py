# SPDX-License-Identifier: GPL-2.0-or-later
"""Thirty volumes damaged and repaired: repair_loop.py says what must hold."""
import os
import random
import struct

import pytest
import repair_loop
from format_reader import sealed

SEEDS = 30


@pytest.fixture(scope="module")
def bases(tmp_path_factory, build):
    return repair_loop.Bases(tmp_path_factory.mktemp("repair-loop"))


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_damage_and_repair(bases, tmp_path, seed):
    if not repair_loop.has_repair():
        pytest.skip("fsck.tux3 of this build repairs nothing")
    why = repair_loop.run_seed(bases.of(seed), seed, tmp_path)
    assert not why, why


@pytest.mark.parametrize("number", range(len(repair_loop.BASES)))
def test_what_is_not_damaged_is_as_it_was(bases, tmp_path, number):
    """The loop's own measure: it finds everything in an undamaged volume, and can use it."""
    base = bases.of(number)
    image = tmp_path / "copy.img"
    image.write_bytes(base.image.read_bytes())
    tree = repair_loop.Tree(image)
    found = tree.walk()
    tree.close()
    nothing = {"wiped": [], "flipped": [], "data": []}
    assert found == base.states[-1] and len(found) > 330
    assert repair_loop.compare(found, base, nothing, set()) == (0, 0)
    repair_loop.use(image)
    repair_loop.check_clean(image, "used", False)


def test_wrong_content_is_seen(bases):
    base, nothing = bases.of(0), {"flipped": []}
    found = dict(base.states[-1])
    path = next(path for path, seen in found.items() if len(seen.content) > 100)
    seen = found[path]
    found[path] = seen._replace(content=seen.content[:50] + b"?" + seen.content[51:])
    with pytest.raises(repair_loop.Failure, match="wrong content"):
        repair_loop.compare(found, base, nothing, {seen.ino + 1})
    assert repair_loop.compare(found, base, nothing, {seen.ino}) == (1, 0)
    found[path] = seen._replace(content=-5)
    assert repair_loop.compare(found, base, nothing, set()) == (0, 0)


def test_damage_is_seen_and_has_right_checksums_where_it_should(bases, tmp_path):
    """Each kind of damage is noticed by a check, at least once; a seed does the same each time."""
    seen = set()
    for seed in range(12):
        base = bases.of(seed)
        images = [tmp_path / "a.img", tmp_path / "b.img"]
        done = []
        for image in images:
            image.write_bytes(base.image.read_bytes())
            done.append(repair_loop.damage(base, image, seed))
        assert done[0] == done[1] and images[0].read_bytes() == images[1].read_bytes()
        with open(images[0], "rb") as f:
            for number in set(done[0]["flipped"]) - set(done[0]["wiped"]):
                f.seek(number * base.block_size)
                assert sealed(f.read(base.block_size), 4)
        if repair_loop.tool("fsck.tux3", "-n", images[0]).returncode:
            seen |= {kind for kind in ("wiped", "flipped") if done[0][kind]}
    assert seen == {"wiped", "flipped"}


def test_bits_are_flipped_only_in_what_has_a_checksum_at_its_front():
    rng = random.Random(1)
    assert not repair_loop.flip_bits(rng, bytearray(4096))
    block = bytearray(struct.pack("<4sI", b"T3ND", 0) + os.urandom(4088))
    before = bytes(block)
    assert repair_loop.flip_bits(rng, block)
    assert sealed(block, 4) and block[8:] != before[8:]
