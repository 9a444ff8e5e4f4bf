# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3 undo: undo files that are good, cut off, damaged, of another volume; and volumes that were changed meanwhile."""
import shutil
from pathlib import Path

import pytest

import undo_file
from tools_helpers import BLOCK, add_to_log, as_json, digest, edit, edit_anchors, fill
from test_tools import sentence


class Changed:
    """A volume of which a few free and other blocks were changed, and the undo file of that."""

    def __init__(self, run, path, tmp_path):
        self.run, self.path, self.undo = run, path, tmp_path / "undo"
        self.delta = as_json(run("fsck.tux3", "--json", path))["summary"]["delta"]
        self.before = digest(path)
        self.header = undo_file.header(path, before=(undo_file.generation(path), self.delta))
        self.records = []
        with open(path, "r+b") as f:
            for seq, addr in enumerate((3000, 1, 5000), start=1):
                f.seek(addr * BLOCK)
                self.records.append(undo_file.record(seq, addr * BLOCK, f.read(seq * BLOCK)))
                f.seek(addr * BLOCK)
                f.write(bytes([seq]) * seq * BLOCK)
        self.after = digest(path)
        self.end = undo_file.end(path, len(self.records) + 1, self.delta)
        self.write(self.header, *self.records, self.end)

    def write(self, *parts):
        self.undo.write_bytes(b"".join(parts))

    def put_back(self, *args, status=0):
        return self.run("tux3", "undo", *args, self.undo, self.path, status=status)

    def refused(self, *args):
        """Why nothing was put back."""
        before, file = digest(self.path), digest(self.undo)
        said = sentence(self.put_back(*args, status=1))
        assert (digest(self.path), digest(self.undo)) == (before, file)
        return said


@pytest.fixture
def changed(run, build, mkfs, tmp_path):
    path = mkfs("64M")
    fill(build, path)
    return Changed(run, path, tmp_path)


def test_all_is_put_back(changed):
    assert changed.after != changed.before
    assert "24 KiB put back" in changed.put_back().stdout
    assert digest(changed.path) == changed.before and undo_file.state_of(changed.undo) == 2
    changed.run("fsck.tux3", changed.path)


def test_json(changed):
    result = as_json(changed.put_back("--json"))
    assert result == {"image": str(changed.path), "as_before": True, "was_already": False, "undo_file": str(changed.undo),
                      "records": 3, "bytes": 6 * BLOCK, "complete": True, "cut_off": False}
    assert as_json(changed.put_back("--json"))["was_already"]
    edit(changed.path, 3000 * BLOCK, 1, lambda data: data.__setitem__(0, data[0] ^ 1))
    done = changed.put_back("--json", status=1)
    assert not as_json(done)["as_before"] and "changed after that" in as_json(done)["failure"]


@pytest.mark.parametrize("cut", [1, 100, 512, 513, 512 + 3 * BLOCK - 1])
def test_cut_off(changed, cut):
    """The last record is not whole: what it is for was not written yet."""
    whole = b"".join([changed.header, *changed.records[:2]])
    edit(changed.path, 5000 * BLOCK, 3 * BLOCK, lambda data: data.__setitem__(slice(None), changed.records[2][512:]))
    changed.write(whole, changed.records[2][:cut])
    assert "not written whole" in changed.put_back().stdout
    assert digest(changed.path) == changed.before


def test_without_an_end(changed):
    """The program was killed: all its records count."""
    changed.write(changed.header, *changed.records)
    assert "not written whole" not in changed.put_back().stdout
    assert digest(changed.path) == changed.before


@pytest.mark.parametrize("at", [0, 20, 71, 600, 512 + 600, 3000, 512 + 512 + BLOCK + 30, 9000])
def test_damaged_file(changed, at):
    edit(changed.undo, at, 1, lambda data: data.__setitem__(0, data[0] ^ 4))
    said = changed.refused()
    assert "no undo file" in said if at < 8 else "damaged" in said


def test_interrupted(changed):
    """Marked as begun, and some of it is in its place, even anchors: it can be done again, and the volume does not say otherwise."""
    changed.write(undo_file.header(changed.path, state=1), *changed.records, changed.end)
    edit(changed.path, 5000 * BLOCK, 2 * BLOCK, lambda data: data.__setitem__(slice(None), changed.records[2][512:512 + 2 * BLOCK]))
    changed.put_back()
    assert digest(changed.path) == changed.before


def test_used_after_an_interruption(build, changed):
    """Of the first try nothing was put back, and the volume is in use again."""
    changed.write(undo_file.header(changed.path, state=1), *changed.records, changed.end)
    add_to_log(build, changed.path)
    assert "was changed after" in changed.refused()


@pytest.mark.parametrize("end", ["", "damaged"])
def test_used_and_without_an_end(build, changed, end):
    """Whether the repair was finished nobody knows."""
    damaged = bytearray(changed.end)
    damaged[100] ^= 0xff
    changed.write(changed.header, *changed.records, bytes(damaged) if end else b"")
    add_to_log(build, changed.path)
    assert "has no end" in changed.refused()
    changed.put_back("-f")


def test_without_an_end_or_a_beginning(changed):
    """An undo file of an earlier program does not say how the volume was before."""
    changed.write(undo_file.header(changed.path), *changed.records)
    assert "has no end" in changed.refused()
    changed.put_back("-f")
    assert digest(changed.path) == changed.before


def test_cut_short_and_forced(run, build, mkfs, tmp_path):
    """Without what was where the anchors are, part of the old volume would be put below the new one."""
    path, undo = mkfs("64M"), tmp_path / "undo"
    fill(build, path)
    leaf = as_json(run("tux3", "show", "--json", path, "nodes"))[-1]["addr"]
    edit(path, leaf * BLOCK + 1000, 1, lambda data: data.__setitem__(0, data[0] ^ 1))
    before = digest(path)
    run("fsck.tux3", "-y", "--undo", undo, path, status=1)
    whole, after = undo.read_bytes(), digest(path)
    for size in range(512, len(whole) - 512, 4096):
        undo.write_bytes(whole[:size])
        done = run("tux3", "undo", "-f", undo, path, status=None)
        if done.returncode:
            assert "nothing is put back" in sentence(done) and digest(path) == after
        else:
            assert digest(path) == before
            break
    assert size > 3000 * 4
    undo.write_bytes(whole)
    run("tux3", "undo", "-f", undo, path)
    assert digest(path) == before


def test_another_volume(run, mkfs, changed):
    other = mkfs("64M")
    changed.path = other
    assert "another volume" in changed.refused()
    changed.path = mkfs("65M")
    for args in ([], ["-f"]):
        assert f"has {65 << 20} bytes" in changed.refused(*args)


def test_nothing_says_which_it_is(changed, image):
    changed.path = image("64M")
    assert "no Tux3 volume" in changed.refused()


def test_changed_since(build, changed):
    copy = f"{changed.path}.copy"
    shutil.copy(changed.path, copy)
    # Only in the log: no anchor says so.
    add_to_log(build, changed.path)
    assert "was changed after" in changed.refused()
    shutil.copy(copy, changed.path)
    edit_anchors(changed.path, lambda data: data.__setitem__(100, 1))
    assert "was changed after" in changed.refused()
    shutil.copy(copy, changed.path)
    changed.put_back()
    edit(changed.path, BLOCK + 5, 1, lambda data: data.__setitem__(0, 0x55))
    assert "changed after that" in changed.refused()
    changed.put_back("--force")
    assert digest(changed.path) == changed.before


def test_in_use(mount, changed):
    m = mount(changed.path)
    assert "in use" in changed.refused()
    m.unmount()
    # Nothing was written.
    shutil.copy(changed.undo, f"{changed.undo}.copy")
    changed.put_back()
    assert digest(changed.path) == changed.before
    shutil.copy(f"{changed.undo}.copy", changed.undo)
    m = mount(changed.path)
    (Path(m.path) / "new").write_text("new")
    m.unmount()
    assert "was changed after" in changed.refused()


def test_not_to_be_used(run, changed, tmp_path):
    for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "no undo file"), ("/dev/null", "no undo file"),
                       (changed.path, "no undo file")):
        assert said in sentence(run("tux3", "undo", path, changed.path, status=1))
    assert "does not exist" in sentence(run("tux3", "undo", changed.undo, tmp_path / "none", status=1))
    assert digest(changed.path) == changed.after
    changed.write(undo_file.sealed(undo_file.HEADER, undo_file.MAGIC, 0, 2, *[0] * 3, bytes(16), *[0] * 7))
    assert "newer program" in changed.refused()
