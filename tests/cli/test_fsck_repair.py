# SPDX-License-Identifier: GPL-2.0-or-later
"""fsck.tux3 -y, -p and --undo as programs: what they change, what they say, how they end, and that it can be undone."""
import json
import os
import shutil
import signal
import struct
import subprocess
import time

import pytest

import repair_loop
from conftest import wait_until
from test_device_use import loop_device
from test_tools import OPERATION, PROBLEMS, USAGE, sentence
from tools_helpers import BLOCK, CREATE, Volume, add_to_log, as_json, digest, edit, edit_anchors, fill

CORRECTED, CANCELED = 1, 32
FILES = 2500


def flip(path, offset):
    edit(path, offset, 1, lambda data: data.__setitem__(0, data[0] ^ 1))


def damage_node(run, path, which=-1):
    """A leaf: what is in it is lost."""
    flip(path, as_json(run("tux3", "show", "--json", path, "nodes"))[which]["addr"] * BLOCK + 1000)


def damage_totals(path):
    """Nothing is lost by it."""
    def change(data):
        used, inodes = struct.unpack_from("<QQ", data, 232)
        struct.pack_into("<QQ", data, 232, used + 1, inodes + 1)
    edit_anchors(path, change)


@pytest.fixture
def filled(build, mkfs):
    path = mkfs("64M")
    fill(build, path)
    return path


@pytest.fixture
def damaged(run, filled):
    damage_node(run, filled)
    return filled


def test_repaired_and_undone(run, damaged, tmp_path):
    undo, before = tmp_path / "undo", digest(damaged)
    done = run("fsck.tux3", "-y", "--undo", undo, damaged, status=CORRECTED)
    assert "node-bad" in done.stdout and ": lost: " in done.stdout and ": repaired: " in done.stdout and done.stderr == ""
    assert ' Path: "/' in done.stdout
    assert f"tux3 undo {undo} {damaged}" in done.stdout
    assert digest(damaged) != before
    assert "clean" in run("fsck.tux3", "-y", "--data", damaged).stdout
    assert "put back" in run("tux3", "undo", undo, damaged).stdout
    assert digest(damaged) == before
    assert "put back already" in run("tux3", "undo", undo, damaged).stdout


def test_undo_file_that_cannot_be_made(run, filled, tmp_path):
    """Told before the check, which may take hours, and not only if that finds something."""
    for place, said in ((tmp_path / "none" / "undo", "No such file"), (tmp_path / ("u" * 300), "File name too long")):
        done = run("fsck.tux3", "-y", "--undo", place, filled, status=OPERATION)
        assert f"the undo file {place} cannot be made: {said}" in done.stderr and not done.stdout
        summary = as_json(run("fsck.tux3", "-y", "--json", "--undo", place, filled, status=OPERATION))["summary"]
        assert "cannot be made" in summary["failure"] and summary["exit"] == OPERATION
    run("fsck.tux3", "-y", "--undo", tmp_path / "undo", filled)
    assert not (tmp_path / "undo").exists()


def test_undo_refuses_what_was_changed_since(run, build, damaged, tmp_path):
    undo = tmp_path / "undo"
    run("fsck.tux3", "-y", "--undo", undo, damaged, status=CORRECTED)
    volume = Volume(build, damaged)
    volume.write("/new", b"new")
    volume.close()
    changed = digest(damaged)
    assert "was changed after" in sentence(run("tux3", "undo", undo, damaged, status=1))
    assert digest(damaged) == changed


def test_an_undo_file_goes_with_its_volume(run, build, mkfs, damaged, tmp_path):
    undo, other = tmp_path / "undo", mkfs("64M")
    run("fsck.tux3", "-y", "--undo", undo, damaged, status=CORRECTED)
    before = digest(other)
    assert "another volume" in sentence(run("tux3", "undo", undo, other, status=1))
    assert digest(other) == before


def test_undo_file_without_an_end(run, damaged, tmp_path):
    """Killed before its anchors were there, the repair has changed nothing that counts; after that, the volume may have been used."""
    undo, copy, before = tmp_path / "undo", tmp_path / "copy", digest(damaged)
    shutil.copy(damaged, copy)
    run("fsck.tux3", "-y", "--undo", undo, damaged, status=CORRECTED)
    os.truncate(undo, os.path.getsize(undo) - 512)
    shutil.copy(undo, tmp_path / "other")
    run("tux3", "undo", tmp_path / "other", copy)
    assert digest(copy) == before
    assert "has no end" in sentence(run("tux3", "undo", undo, damaged, status=1))
    run("tux3", "undo", "-f", undo, damaged)
    assert digest(damaged) == before


def test_no_undo_file_if_nothing_is_written(run, filled, tmp_path):
    undo = tmp_path / "undo"
    run("fsck.tux3", "-y", "--undo", undo, filled)
    damage_node(run, filled)
    run("fsck.tux3", "-p", "--undo", undo, filled, status=PROBLEMS)
    assert not undo.exists()


def test_undo_file_that_must_not_be(run, damaged, tmp_path):
    before, other = digest(damaged), tmp_path / "other"
    other.write_text("mine")
    for path, status in ((other, USAGE), (damaged, USAGE), (tmp_path, OPERATION), (tmp_path / "no" / "such", OPERATION)):
        sentence(run("fsck.tux3", "-y", "--undo", path, damaged, status=status))
    for args in ([], ["-n"]):
        assert "--undo goes with" in sentence(run("fsck.tux3", *args, "--undo", tmp_path / "undo", damaged, status=USAGE))
    assert digest(damaged) == before and other.read_text() == "mine" and os.listdir(tmp_path) == ["0.img", "other"]


def test_undo_file_that_cannot_grow(run, build, damaged, tmp_path):
    """Then there is no repair."""
    undo, before = tmp_path / "undo", digest(damaged)
    done = subprocess.run(["bash", "-c", f"trap '' XFSZ; ulimit -f 8; exec {build}/fsck.tux3 -y --undo {undo} {damaged}"],
                          capture_output=True, text=True)
    assert done.returncode == 12 and "undo file" in sentence(done)
    if undo.exists():
        run("tux3", "undo", undo, damaged)
    assert digest(damaged) == before


# ---- errors while it is written ----

TRACED = "trace=pwrite64,pwritev,fdatasync"


def strace(build, inject, program, *args):
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    done = subprocess.run(["strace", "-f", "-o", os.devnull, "-e", TRACED, "-e", f"inject={inject}", build / program, *args],
                          capture_output=True, text=True)
    if "strace: " in done.stderr:
        pytest.skip("strace may not trace here")
    return done


def injected(build, call, number, path, *options):
    """fsck.tux3 -y, of which the number-th call fails."""
    error = "ENOSPC" if call == "pwrite64" else "EIO"
    return strace(build, f"{call}:error={error}:when={number}", "fsck.tux3", "-y", *options, path)


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "pwritev"])
@pytest.mark.parametrize("search", [False, True])
def test_no_error_is_taken_for_another(run, build, damaged, tmp_path, call, search):
    """Once an anchor is there the repair counts: then that is said, with all that was lost; and undo works, at whichever write it ended."""
    path, undo, size = tmp_path / "x.img", tmp_path / "undo", os.path.getsize(damaged)
    for offset in (65536, 131072, size - 131072, size - 65536)[:4 if search else 1]:
        flip(damaged, offset + 200)
    counted = 0
    for number in range(1, 30):
        shutil.copy(damaged, path)
        before = digest(path)
        done = injected(build, call, number, path, "--undo", undo, *["--search"] * search)
        after = as_json(run("fsck.tux3", "--json", path, status=None))
        clean = {p["name"] for p in after["problems"]} <= {"anchor-copy"} and "failure" not in after["summary"]
        assert bool(done.returncode & CORRECTED) == clean, (number, done)
        assert (": lost: " in done.stdout and ": repaired: " in done.stdout) == clean, (number, done)
        if clean and done.returncode != CORRECTED:
            counted += 1
            left = PROBLEMS if after["problems"] else 0
            assert done.returncode == CORRECTED | OPERATION | left and "was written, but" in sentence(done), (number, done)
        if not clean:
            assert "was written, but" not in done.stderr, (number, done)
        if undo.exists():
            if run("tux3", "undo", undo, path, status=None).returncode:
                run("tux3", "undo", "-f", undo, path)
            assert digest(path) == before
            assert "put back already" in run("tux3", "undo", undo, path).stdout
            undo.unlink()
        assert digest(path) == before, number
        if done.returncode == CORRECTED:
            break
    assert done.returncode == CORRECTED and counted


def test_undo_of_a_repair_that_had_saved_nothing(run, damaged, tmp_path):
    """It was killed when the undo file had its header; and no anchor says whose volume it is."""
    path, undo, size = tmp_path / "x.img", tmp_path / "undo", os.path.getsize(damaged)
    for offset in (65536, 131072, size - 131072, size - 65536):
        flip(damaged, offset + 200)
    shutil.copy(damaged, path)
    run("fsck.tux3", "-y", "--search", "--undo", undo, damaged, status=CORRECTED)
    os.truncate(undo, 512)
    assert "nothing says" in sentence(run("tux3", "undo", undo, path, status=1))
    run("tux3", "undo", "-f", undo, path)
    assert "put back already" in run("tux3", "undo", undo, path).stdout


def test_killed_undo(run, build, damaged, tmp_path):
    """Also of a search, after which no anchor says whose volume it is: it is done again."""
    path, undo, size = tmp_path / "x.img", tmp_path / "undo", os.path.getsize(damaged)
    for offset in (65536, 131072, size - 131072, size - 65536):
        flip(damaged, offset + 200)
    before = digest(damaged)
    run("fsck.tux3", "-y", "--search", "--undo", undo, damaged, status=CORRECTED)
    for number in range(1, 80, 3):
        shutil.copy(damaged, path)
        shutil.copy(undo, tmp_path / "copy")
        done = strace(build, f"pwritev,pwrite64:signal=SIGKILL:when={number}", "tux3", "undo", tmp_path / "copy", path)
        run("tux3", "undo", tmp_path / "copy", path)
        assert digest(path) == before
        if done.returncode == 0:
            break
    assert 3 < number < 79


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_undo_is_finished_first(run, build, damaged, tmp_path, name):
    """In the middle of it the volume is neither the old nor the new one."""
    undo, before = tmp_path / "undo", digest(damaged)
    run("fsck.tux3", "-y", "--undo", undo, damaged, status=CORRECTED)
    done = strace(build, f"pwritev:signal=SIG{name}:when=2", "tux3", "undo", undo, damaged)
    assert done.returncode == 0 and "finished first" in done.stderr, done
    assert digest(damaged) == before and "put back already" in run("tux3", "undo", undo, damaged).stdout


def test_json_of_a_repair_that_ended_with_an_error(run, build, damaged, tmp_path):
    """The last write is the end of the undo file."""
    # Each thread counts its own calls, and how many the one has that writes depends on how far it gets between two of the other.
    for attempt in range(20):
        number = 1
        while True:
            path, undo = tmp_path / f"{attempt}-{number}.img", tmp_path / f"{attempt}-{number}.undo"
            shutil.copy(damaged, path)
            done = injected(build, "fdatasync", number, path, "--json", "--undo", undo)
            path.unlink()
            if done.returncode == CORRECTED:
                break
            last, number = done, number + 1
        result = as_json(last)
        if "end of the undo file" in result["summary"]["failure"]:
            break
    assert last.returncode == result["summary"]["exit"] == CORRECTED | OPERATION
    assert result["summary"]["written"] and not result["summary"]["clean"] and "end of the undo file" in result["summary"]["failure"]
    assert any(note["kind"] == "lost" for note in result["notes"])


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_report_that_cannot_be_written(build, run, damaged, json):
    """What was done is in the exit code all the same, and is not given up because nobody reads of it."""
    image = damaged.read_bytes()
    for reader in ("/dev/full", "|true", "&-"):
        for option, bits in (("-n", PROBLEMS), ("-y", CORRECTED), ("-y", 0)):
            if bits != 0:
                damaged.write_bytes(image)
            if reader == "|true" and option == "-n":
                continue
            where = f"| true; exit ${{PIPESTATUS[0]}}" if reader == "|true" else f">{reader}"
            done = subprocess.run(["bash", "-c", f"{build}/fsck.tux3 {option} {' '.join(json)} {damaged} {where}"], stderr=subprocess.PIPE,
                                  text=True)
            # A pipe may have a reader still when it is written to.
            assert done.returncode in (bits | OPERATION, bits) if reader == "|true" else done.returncode == bits | OPERATION, (reader, done)
    run("fsck.tux3", damaged)


def test_json_of_a_long_path(run, damaged, tmp_path):
    """Each byte of it may take six."""
    path = tmp_path / "/".join(["\x01" * 200] * 15)
    path.mkdir(parents=True)
    shutil.move(damaged, path / "x")
    os.chmod(path / "x", 0o644)
    assert as_json(run("fsck.tux3", "--json", path / "x", status=PROBLEMS))["summary"]["image"] == str(path / "x")
    done = as_json(run("fsck.tux3", "-y", "--json", "--undo", path / "u", path / "x", status=CORRECTED))
    assert done["summary"]["undo_file"] == str(path / "u")
    assert as_json(run("tux3", "undo", "--json", path / "u", path / "x"))["undo_file"] == str(path / "u")


@pytest.mark.parametrize("options", [("-n", "-y"), ("-p", "-y"), ("-y", "-a"), ("-p", "-n")])
def test_only_one_of_them(run, damaged, options):
    before = digest(damaged)
    assert "only one" in sentence(run("fsck.tux3", *options, damaged, status=USAGE))
    assert digest(damaged) == before


@pytest.mark.parametrize("option", ["-p", "-a"])
def test_a_device_that_was_cut_short(run, filled, option):
    """It has its size again, but nothing of the tree is left: that is not repaired without being asked for, and told."""
    size = os.path.getsize(filled)
    os.truncate(filled, 1 << 20)
    os.truncate(filled, size)
    before = digest(filled)
    done = run("fsck.tux3", option, filled, status=PROBLEMS)
    assert "would be lost" in done.stdout and "nothing was changed" in done.stdout and digest(filled) == before
    done = run("fsck.tux3", "-y", filled, status=CORRECTED)
    assert "lost: 304 of 305 inodes" in done.stdout or "lost: 305 of 305 inodes" in done.stdout, done.stdout
    assert ", 0 lost" not in done.stdout


@pytest.mark.parametrize("option", ["-p", "-a"])
def test_careful(run, filled, option):
    """What loses nothing is repaired; else nothing, and it is said who can."""
    damage_totals(filled)
    done = run("fsck.tux3", option, filled, status=CORRECTED)
    assert ": put right: " in done.stdout and ", 0 lost" in done.stdout
    run("fsck.tux3", "-f", filled)
    damage_totals(filled)
    damage_node(run, filled)
    before = digest(filled)
    done = run("fsck.tux3", option, filled, status=PROBLEMS)
    assert "fsck.tux3 -y repairs" in sentence(done) and ": would be lost: " in done.stdout and "nothing was changed" in done.stdout
    assert ": put right: " not in done.stdout and "repaired" not in done.stdout
    assert digest(filled) == before


@pytest.mark.parametrize("option", ["-y", "-p", "-a"])
def test_clean_is_left_alone(run, build, filled, option):
    """Also by those who could write; a log is no reason to."""
    os.chmod(filled, 0o444)
    add_to_log(build, filled)
    before, when = digest(filled), os.stat(filled).st_mtime_ns
    assert ": clean: " in run("fsck.tux3", option, filled).stdout
    assert (digest(filled), os.stat(filled).st_mtime_ns) == (before, when)


def test_a_clean_volume_is_checked_once(run, build, filled):
    """Reads are counted: at boot nobody waits for two checks."""
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    counts = {}
    for option in ("-n", "-a", "-p", "-y"):
        traced = subprocess.run(["strace", "-f", "-c", "-e", "trace=pread64", f"{build}/fsck.tux3", option, filled], capture_output=True,
                                text=True)
        if "pread64" not in traced.stderr:
            pytest.skip("strace may not trace here")
        counts[option] = int(next(line for line in traced.stderr.split("\n") if line.endswith("pread64")).split()[3])
    assert len(set(counts.values())) == 1, counts


def test_json(run, damaged, tmp_path):
    undo = tmp_path / "undo"
    problems = as_json(run("fsck.tux3", "--json", damaged, status=PROBLEMS))
    assert "notes" not in problems and "written" not in problems["summary"]
    refused = as_json(run("fsck.tux3", "-p", "--json", damaged, status=PROBLEMS))
    assert refused["problems"] == problems["problems"] and not refused["summary"]["written"] and refused["summary"]["left"] == 1
    assert "nothing was changed" in refused["summary"]["failure"]
    result = as_json(run("fsck.tux3", "-y", "--json", "--undo", undo, damaged, status=CORRECTED))
    summary = result["summary"]
    assert result["problems"] == problems["problems"] and summary["problem_count"] == 1
    assert summary["written"] and summary["left"] == 0 and summary["clean"] and summary["exit"] == CORRECTED and "failure" not in summary
    assert summary["undo_file"] == str(undo)
    of_files = [note for note in result["notes"] if note.get("path", "/") != "/"]
    assert of_files
    for note in of_files[:5]:
        assert note["path"] in run("tux3", "path", damaged, note["inode"]).stdout.splitlines()
    kinds = [note["kind"] for note in result["notes"]]
    assert {k: kinds.count(k) for k in ("mended", "found", "lost", "left")} == {**{k: summary[k] for k in ("mended", "found", "lost")}, "left": 0}
    assert summary["lost"] > 0 and all(note["text"].endswith(".") and note["inode"] >= 0 for note in result["notes"])
    clean = as_json(run("fsck.tux3", "-y", "--json", damaged))
    assert clean["problems"] == clean["notes"] == [] and not clean["summary"]["written"]
    assert as_json(run("fsck.tux3", "-y", "--json", "-l", "0", damaged))["problems"] == []


def test_damaged_data_is_left(run, filled):
    """Nobody knows what it was: it is not called clean, and -y does not hide it."""
    extent = next(item for item in as_json(run("tux3", "show", "--json", filled, "path", "/big")) if item["type"] == "extent")
    flip(filled, extent["addr"] * BLOCK + 10)
    before = digest(filled)
    done = run("fsck.tux3", "-y", "--data", filled, status=PROBLEMS)
    assert "1 problem is left; nothing was changed" in done.stdout and "clean" not in done.stdout
    assert digest(filled) == before
    damage_node(run, filled)
    done = run("fsck.tux3", "-y", "--data", filled, status=CORRECTED | PROBLEMS)
    assert "1 problem is left\n" in done.stdout and ": repaired: " in done.stdout and "clean" not in done.stdout
    assert as_json(run("fsck.tux3", "-y", "--data", "--json", filled, status=PROBLEMS))["summary"]["left"] == 1


def test_a_volume_that_cannot_be_opened(run, filled):
    """The root of the tree is gone: nothing can be checked before the repair, and its problems are told from there."""
    anchor = next(a["anchor"] for a in as_json(run("tux3", "show", "--json", filled, "anchors")) if a["current"])
    flip(filled, anchor["root_addr"] * BLOCK + 100)
    before = as_json(run("fsck.tux3", "--json", filled, status=PROBLEMS))["summary"]
    assert before["exit"] == PROBLEMS
    done = run("fsck.tux3", "-y", filled, status=CORRECTED)
    assert ": brought back: " in done.stdout or ": lost: " in done.stdout
    assert "clean" in run("fsck.tux3", filled).stdout


def test_without_anchors(run, filled):
    size = os.path.getsize(filled)
    for offset in (65536, 131072, size - 131072, size - 65536):
        flip(filled, offset + 200)
    before = digest(filled)
    done = run("fsck.tux3", "-y", filled, status=None)
    assert done.returncode == OPERATION and f"{filled}: the repair failed and nothing was changed: the anchor at" in sentence(done)
    assert digest(filled) == before
    result = as_json(run("fsck.tux3", "-y", "--json", filled, status=OPERATION))
    assert not result["summary"]["clean"] and not result["summary"]["written"]
    assert "--search looks for what is left" in result["summary"]["failure"]


def test_search(run, filled, tmp_path):
    """Without anchors: only on demand, and then all comes back that was not in the log; undo puts the damage back."""
    size, undo = os.path.getsize(filled), tmp_path / "undo"
    was = as_json(run("fsck.tux3", "--json", filled))["summary"]
    for offset in (65536, 131072, size - 131072, size - 65536):
        flip(filled, offset + 200)
    before = digest(filled)
    assert "--search goes with -y" in sentence(run("fsck.tux3", "-p", "--search", filled, status=USAGE))
    done = run("fsck.tux3", "-y", "--search", "--undo", undo, filled, status=CORRECTED)
    assert ": lost: All anchors" in done.stdout
    now = as_json(run("fsck.tux3", "--data", "--json", filled))["summary"]
    assert [now[what] for what in ("clean", "inodes", "names", "xattrs", "extents")] == \
        [was[what] for what in ("clean", "inodes", "names", "xattrs", "extents")]
    assert "put back" in run("tux3", "undo", undo, filled).stdout
    assert digest(filled) == before


def test_search_finds_nothing_where_there_is_nothing(run, image):
    zeros = image("16M")
    sentence(run("fsck.tux3", "-y", "--search", zeros, status=OPERATION))
    assert digest(zeros) == digest(image("16M"))


def test_not_a_volume(run, image, tmp_path):
    zeros = image("16M")
    for option in ("-y", "-p", "-n"):
        why = sentence(run("fsck.tux3", option, zeros, status=OPERATION))
        assert "no Tux3 volume" in why and "fsck.tux3 -y --search" in why
        assert "does not exist" in sentence(run("fsck.tux3", option, tmp_path / "none", status=OPERATION))
    assert digest(zeros) == digest(image("16M")) and not os.path.exists(tmp_path / "none")


def test_in_use(run, damaged, mount, tmp_path):
    before, undo = digest(damaged), tmp_path / "undo"
    m = mount(damaged, "ro")
    with loop_device(damaged) as loop:
        for name in (damaged, loop):
            done = run("fsck.tux3", "-y", "--undo", undo, name, status=None)
            assert done.returncode in (OPERATION, 12) and "in use" in sentence(done) and not undo.exists()
    m.unmount()
    assert digest(damaged) == before


def test_mounted_read_only_and_clean(run, filled, mount):
    """As the root filesystem at boot."""
    m = mount(filled, "ro")
    assert ": clean: " in run("fsck.tux3", "-a", filled).stdout
    m.unmount()


def test_file_that_may_only_be_read(run, damaged):
    if os.geteuid() == 0:
        subprocess.run(["chattr", "+i", damaged], capture_output=True)
    try:
        if os.access(damaged, os.W_OK):
            pytest.skip("no immutable files here")
        done = run("fsck.tux3", "-y", damaged, status=12)
        assert "immutable" in sentence(done) or "permission" in sentence(done)
    finally:
        subprocess.run(["chattr", "-i", damaged], capture_output=True)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    return repair_loop.Bases(tmp_path_factory.mktemp("undo"))


@pytest.mark.parametrize("seed", range(1, 13))
def test_any_repair_can_be_undone(run, bases, tmp_path, seed):
    """Whatever was damaged, and however the repair ended."""
    path, undo, base = tmp_path / "x.img", tmp_path / "undo", bases.of(seed)
    path.write_bytes(base.image.read_bytes())
    repair_loop.damage(base, path, seed)
    before = digest(path)
    done = run("fsck.tux3", "-y", "--undo", undo, path, status=None)
    assert done.returncode in (0, CORRECTED, PROBLEMS, CORRECTED | PROBLEMS, OPERATION, PROBLEMS | OPERATION), done.stderr
    assert undo.exists() == (digest(path) != before) and (undo.exists() or not done.returncode & CORRECTED)
    if undo.exists():
        run("tux3", "undo", undo, path)
    assert digest(path) == before


# ---- interruptions ----

@pytest.fixture(scope="module")
def large(build, run, tmp_path_factory):
    """So many inodes that a repair takes a moment."""
    path = tmp_path_factory.mktemp("large") / "large.img"
    run("mkfs.tux3", "-q", path, "16M")
    volume = Volume(build, path)
    for i in range(FILES):
        if i % 250 == 0:
            volume.mkdir(f"/d{i // 250}")
        volume.lib.tux3_node_put(volume.node(f"/d{i // 250}/file-with-a-long-name-{i}", CREATE), 1)
    volume.close()
    damage_node(run, path, len(as_json(run("tux3", "show", "--json", path, "nodes"))) // 2)
    return path.read_bytes()


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def interrupted(build, path, undo, which, delay, *options):
    """What it ended with, and said; the signal comes so long after the undo file is there."""
    process = subprocess.Popen([build / "fsck.tux3", "-y", *options, "--undo", undo, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    # The first one, which only tries whether it can be made, is empty.  No pause: what is to be met may take no longer.
    wait_until(lambda: size_of(undo) or process.poll() is not None, "undo file", pause=0)
    time.sleep(delay)
    process.send_signal(which)
    report, said = process.communicate(timeout=60)
    return process.returncode, said, report


def test_canceled(run, build, large, tmp_path):
    """Before it is written: nothing was changed.  After that: it is finished."""
    path, undo, ends = tmp_path / "x.img", tmp_path / "undo", set()
    for turn in range(24):
        path.write_bytes(large)
        before = digest(path)
        ended, said, _ = interrupted(build, path, undo, signal.SIGINT, turn % 12 * 0.004)
        ends.add(ended)
        if ended == CANCELED:
            assert "nothing was changed" in said and digest(path) == before and not undo.exists()
            continue
        assert ended == CORRECTED, (ended, said)
        run("fsck.tux3", path)
        run("tux3", "undo", undo, path)
        assert digest(path) == before
        undo.unlink()
    assert CANCELED in ends


def test_canceled_as_json(run, build, large, tmp_path):
    """Who reads the report gets one, whenever it was; and if something was written, what."""
    path, undo, ends = tmp_path / "x.img", tmp_path / "undo", set()
    for turn in range(36):
        path.write_bytes(large)
        before = digest(path)
        ended, _, report = interrupted(build, path, undo, signal.SIGINT, turn % 12 * 0.004, "--json", "--data")
        ends.add(ended)
        result = json.loads(report)
        assert result["summary"]["exit"] == ended and result["summary"]["interrupted"] == bool(ended & CANCELED)
        assert result["problems"] and result["summary"]["problem_count"]
        assert result["summary"]["written"] == (digest(path) != before) == bool(ended & CORRECTED) == bool(result["notes"])
        undo.unlink(missing_ok=True)
    assert CANCELED in ends


def test_undo_of_another_copy(run, damaged, tmp_path):
    """One that was not repaired: that it was changed would be wrong."""
    copy, undo = tmp_path / "copy", tmp_path / "undo"
    shutil.copy(damaged, copy)
    before = digest(copy)
    run("fsck.tux3", "-y", "--undo", undo, damaged, status=CORRECTED)
    assert "as it was before the repair" in sentence(run("tux3", "undo", undo, copy, status=1))
    assert digest(copy) == before
    run("tux3", "undo", undo, damaged)
    assert digest(damaged) == before


def test_device_that_was_cut_short(run, damaged):
    """What to do is said, and does it."""
    size = damaged.stat().st_size
    os.truncate(damaged, size - (2 << 20))
    for option in ("-n", "-y"):
        said = sentence(run("fsck.tux3", option, damaged, status=PROBLEMS if option == "-n" else OPERATION))
        assert f"truncate --size={size}" in said, said
    os.truncate(damaged, size)
    run("fsck.tux3", "-y", damaged, status=CORRECTED)
    run("fsck.tux3", damaged)


def test_killed(run, build, large, tmp_path):
    """Whenever it is: what was there can be put back, and the repair can be begun again."""
    path, undo, killed = tmp_path / "x.img", tmp_path / "undo", 0
    for turn in range(24):
        path.write_bytes(large)
        before = digest(path)
        ended, *_ = interrupted(build, path, undo, signal.SIGKILL, turn % 12 * 0.004)
        killed += ended == -signal.SIGKILL
        if turn % 2:
            run("fsck.tux3", "-y", path, status=None)
            run("fsck.tux3", path)
        elif undo.exists():
            done = run("tux3", "undo", undo, path, status=None)
            if done.returncode:		# between its anchors and the end of the undo file
                assert "has no end" in sentence(done)
                run("tux3", "undo", "-f", undo, path)
            assert digest(path) == before
        undo.unlink(missing_ok=True)
    assert killed
