# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies of the anchor: one that is damaged counts for nothing, is told, and is written again; one that a power cut left is no damage."""
import ctypes
import os
import struct

import pytest

from tools_helpers import STRIDE, Volume, add_to_log, as_json, digest, edit, fill

CLEAN, CORRECTED, PROBLEMS = 0, 1, 4


def places(path):
    size = os.path.getsize(path)
    return [STRIDE, 2 * STRIDE, size - 2 * STRIDE, size - STRIDE]


def generations(path):
    """By slot; None: no anchor."""
    found = []
    for offset in places(path):
        with open(path, "rb") as f:
            f.seek(offset)
            data = f.read(512)
        found.append(struct.unpack_from("<Q", data, 32)[0] if data[:8] == b"TUX3ANC1" else None)
    return found


def newest(path):
    """The slots of the newest anchor."""
    found = generations(path)
    return [n for n in range(4) if found[n] == max(g for g in found if g)]


def flip(path, slot, at):
    edit(path, places(path)[slot] + at, 1, lambda data: data.__setitem__(0, data[0] ^ 1))


def content(path, slot):
    with open(path, "rb") as f:
        f.seek(places(path)[slot])
        return f.read(4096)


def put(path, slot, data):
    edit(path, places(path)[slot], len(data), lambda old: old.__setitem__(slice(None), data))


def grow(build, path, name):
    volume = Volume(build, path)
    volume.write(name, b"more")
    volume.close()


@pytest.fixture
def filled(build, run, mkfs):
    path = mkfs("64M")
    fill(build, path)
    grow(build, path, "/second")
    return path


@pytest.mark.parametrize("slot", range(4))
def test_version_flipped(run, filled, slot):
    """Its checksum says that it is no anchor, whatever version it seems to have."""
    edit(filled, places(filled)[slot] + 12, 4, lambda data: data.__setitem__(2, 0x40))
    done = run("fsck.tux3", "-n", filled, status=None)
    assert done.returncode in (CLEAN, PROBLEMS) and "newer" not in done.stderr
    run("fsck.tux3", "-y", filled, status=None)
    run("fsck.tux3", "-n", filled)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("how", ["flipped", "zeros"])
def test_copy_damaged(run, build, filled, second, how, tmp_path):
    slot = newest(filled)[second]
    good = content(filled, slot)
    if how == "zeros":
        put(filled, slot, bytes(4096))
    else:
        flip(filled, slot, 100)
    before = digest(filled)
    done = run("fsck.tux3", "-n", filled, status=PROBLEMS)
    assert "anchor-copy (1001)" in done.stdout and "1 problem found" in done.stdout and "fsck.tux3 -y" in done.stdout
    problem, = as_json(run("fsck.tux3", "--json", filled, status=PROBLEMS))["problems"]
    assert problem["name"] == "anchor-copy" and problem["block"] == places(filled)[slot] // 4096
    scrub = as_json(run("tux3", "scrub", "--json", filled, status=PROBLEMS))["problems"]
    assert [p["kind"] for p in scrub] == ["anchor"] and scrub[0]["block"] == problem["block"]
    assert digest(filled) == before
    undo = tmp_path / "undo"
    done = run("fsck.tux3", "-p", "--undo", undo, filled, status=CORRECTED)
    assert "1 put right, 0 brought back, 0 lost" in done.stdout
    assert content(filled, slot) == good  # nothing else was written
    assert "clean" in run("fsck.tux3", "-n", filled).stdout
    run("tux3", "undo", undo, filled)
    assert digest(filled) == before


def test_copy_damaged_with_log(run, build, filled):
    """What is in the log stays there."""
    add_to_log(build, filled)
    flip(filled, newest(filled)[1], 100)
    run("fsck.tux3", "-n", filled, status=PROBLEMS)
    run("fsck.tux3", "-y", filled, status=CORRECTED)
    assert "the log holds" in run("fsck.tux3", "-n", filled).stdout
    assert as_json(run("tux3", "show", "--json", filled, "path", "/logged"))


def test_copy_damaged_told_by_library(build, filled):
    """tux3_check() tells it; of a volume that has changes it makes a new anchor, with both copies."""
    class Problem(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint32), ("name", ctypes.c_char_p), ("text", ctypes.c_char_p), ("path", ctypes.c_char_p),
                    ("ino", ctypes.c_uint64), ("block", ctypes.c_uint64)]

    def told(change=False, **options):
        names = []
        volume = Volume(build, filled, **options)
        if change:
            volume.write("/change", b"change")
        tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Problem))(lambda ctx, p: names.append(p.contents.name))
        assert volume.lib.tux3_check(volume.handle, tell, None) == 0
        volume.close()
        return names
    flip(filled, newest(filled)[1], 100)
    assert told(read_only=True) == [b"anchor-copy"]
    assert told() == [b"anchor-copy"]
    assert told(change=True) == []
    assert told(read_only=True) == []


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("before", ["older", "never"])
def test_power_cut(run, build, mkfs, copy, before):
    """Only one copy was written when the power failed: no damage, and mount goes on from there."""
    path = mkfs("64M")
    if before == "older":
        fill(build, path)
        volume = Volume(build, path)
        volume.write("/more", b"more")
        volume.sync()
    else:
        volume = Volume(build, path)
        volume.write("/more", b"more")
    was = [content(path, slot) for slot in range(4)]
    volume.close()
    slots = newest(path)
    if before == "never":  # the first one after mkfs, in what mkfs has left empty
        assert max(generations(path), key=lambda g: g or 0) == 2 and not any(was[slots[copy]])
    put(path, slots[copy], was[slots[copy]])
    done = run("fsck.tux3", "-n", path)
    assert "clean" in done.stdout and "only one copy" in done.stdout
    assert as_json(run("fsck.tux3", "--json", path))["summary"]["anchor_copies"] == 1
    run("fsck.tux3", "-y", path)
    run("tux3", "scrub", path)
    was = generations(path)
    Volume(build, path).close()
    assert generations(path)[slots[copy]] == max(g for g in was if g)  # before all else
    assert as_json(run("fsck.tux3", "--json", path))["summary"]["anchor_copies"] == 2


@pytest.mark.parametrize("slot", [0, 2])
def test_mkfs_cut(run, mkfs, slot):
    path = mkfs("64M")
    put(path, slot, bytes(4096))
    assert "only one copy" in run("fsck.tux3", "-n", path).stdout
    run("tux3", "scrub", path)


def test_older_one_is_damaged(build, run, filled):
    """It is told, and no problem: a power cut may have left it so, and the next one is written there."""
    grow(build, filled, "/third")
    older = [n for n in range(4) if n not in newest(filled)]
    for n, slot in enumerate(older, start=1):
        flip(filled, slot, 100)
        assert "is damaged, in" in run("fsck.tux3", filled).stdout
        assert as_json(run("fsck.tux3", "--json", filled))["summary"]["older_anchors_bad"] == n
    grow(build, filled, "/fourth")
    grow(build, filled, "/fifth")
    assert as_json(run("fsck.tux3", "--json", filled))["summary"]["older_anchors_bad"] == 0
